"""``hyperplane report``: one HTML file about a run or a job, to send to others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hyperplane.cli.history import read_named
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import Fault, JobError, RequestError, check
from hyperplane.core.optional import is_installed
from hyperplane.history.run_record import RunRecord, name_start, split_run_name
from hyperplane.history.store import LATEST
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.jobs_home import has_store, open_store
from hyperplane.reports import save_job_report, save_report

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_records import Job


def report(
    name: Annotated[
        str,
        typer.Argument(
            help="A job: its id or the beginning of it, nightly#12, or the name of a pipeline for "
            "its newest; or a run of hyperplane history: its time, a cluster, a block, or "
            "pipeline/step. latest is the newest of both."
        ),
    ] = LATEST,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The file; one that exists is replaced."),
    ] = Path("run.html"),
    as_json: JsonOption = False,
) -> None:
    """Write what a job or a run took as one HTML file: pictures over the time, tables, advice."""
    job, record = _choose(name)
    if job is not None:
        file = save_job_report(job.id, out)
        document = {"job": job.id, "file": str(file)}
        lines = [f"wrote {file}, the report of job {_describe(job)}"]
        if record is not None:
            lines.append(
                f"a run has this name, too: 'hyperplane report {record.name}' writes its report"
            )
    else:
        assert record is not None  # noqa: S101 - else _choose raises
        file = save_report(record, out)
        document = {"run": record.name, "file": str(file)}
        lines = [f"wrote {file}, the report of {record.name}"]
        if record.job:
            document["of_job"] = record.job
            lines.append(
                f"it is a run of step {to_plain_line(record.label)}: 'hyperplane report "
                f"{record.job[:8]}' writes the report of its job"
            )
    if as_json:
        write_json(document)
    else:
        typer.echo("\n".join(lines))


def _describe(job: Job) -> str:
    return to_plain_line(f"{job.run_name} ({job.id})")


def _choose(name: str) -> tuple[Job | None, RunRecord | None]:
    """Return the job that a name means, or the run; both if it is also a name of another run.

    Raises
    ------
    RequestError
        If there is neither.
    """
    job = _find_job(name)
    try:
        record = read_named(name)
    except RequestError as error:
        if job is None:
            allowed = "a job, or the name of a record, a cluster or a block"
            advice = "'hyperplane job list' and 'hyperplane history list' show them"
            near = [fault.advice for fault in error.faults if fault.advice]
            check([Fault("name", repr(name)[:80], allowed, "; ".join([*near, advice]))])
        return job, None
    if job is None or record.job == job.id:
        # The steps of a job are recorded after it began, and are runs of that job.
        return (None, record) if job is None or _is_exact(name, record) else (job, None)
    if name == LATEST:
        newer = max(job.requested, job.started) >= record.started
        newest = job if newer else _find_job(record.job) if record.job else None
        return (newest, None) if newest is not None else (None, record)
    if _is_exact(name, record):
        return None, record
    # The record of an earlier run of the same pipeline is no other meaning of its name.
    return job, None if record.job else record


def _is_exact(name: str, record: RunRecord) -> bool:
    """Whether a text is the name of one record or its time, and no name of several runs."""
    return name in (record.name, split_run_name(record.name)[0], name_start(record))


def _find_job(name: str) -> Job | None:
    """Return the job that a text names; None if it names none, or several."""
    if not is_installed("sqlalchemy") or not has_store():
        return None
    try:
        return find_job(open_store(), name)
    except JobError:
        return None
