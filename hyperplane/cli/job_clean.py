"""``hyperplane job clean``."""

from __future__ import annotations

from typing import Annotated

import typer

from hyperplane import config
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import format_bytes, parse_seconds, plural
from hyperplane.jobs.job_cleanup import RemovedJob, clean_jobs
from hyperplane.jobs.job_progress import to_plain_line


def clean(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only jobs that ended this long ago, such as 30d."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keep the newest N ended jobs of each pipeline."),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs of this pipeline.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the jobs and their bytes; remove nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove ended jobs of this user on this machine, with their logs and results.

    Jobs that have not ended are never removed. --older-than or --keep is needed, unless the
    configuration has clean_older_than or clean_keep; with both, a job is removed if both allow it.
    """
    settings, age = config.jobs(), None
    if older_than is None and keep is None:
        age, keep = settings.clean_seconds, settings.clean_keep
    if older_than is not None:
        try:
            age = parse_seconds(older_than)
        except ValueError:
            check([Fault("--older-than", repr(older_than)[:80], "a duration such as 30d or 12h")])
    removed = clean_jobs(
        age, keep, pipeline=pipeline, dry_run=dry_run,
        report=(lambda each: None) if as_json else _show,
    )  # fmt: skip
    total = sum(each.size for each in removed)
    if as_json:
        write_json({
            "dry_run": dry_run, "bytes": total,
            "jobs": [
                {
                    "id": each.job.id, "run_name": each.job.run_name, "bytes": each.size,
                    "kept_folder": each.kept_folder or None,
                }
                for each in removed
            ],
        })  # fmt: skip
        return
    action = "would be removed" if dry_run else "removed"
    typer.echo(f"{plural(len(removed), 'job')} {action}, {format_bytes(total)}")


def _show(removed: RemovedJob) -> None:
    job = removed.job
    kept = f"; its folder is kept: {removed.kept_folder}" if removed.kept_folder else ""
    text = f"{job.id[:8]} {job.run_name} {job.status} {format_bytes(removed.size)}{kept}"
    typer.echo(to_plain_line(text))
