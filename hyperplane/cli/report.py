"""``hyperplane report``: one HTML file about a run or a job, to send to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyperplane.cli.history import read_named
from hyperplane.cli.output import JsonOption, write_json
from hyperplane.core.errors import JobError, RequestError
from hyperplane.core.optional import is_installed
from hyperplane.history.store import LATEST
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import save_job_report, save_report


def report(
    name: Annotated[
        str,
        typer.Argument(
            help="A run of the list, a cluster or a block for its newest, latest, or a job: its id "
            "or nightly#12."
        ),
    ] = LATEST,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The file; one that exists is replaced."),
    ] = Path("run.html"),
    as_json: JsonOption = False,
) -> None:
    """Write what a run or a job took as one HTML file: pictures over the time, tables, advice."""
    try:
        record = read_named(name)
    except RequestError as error:
        job_id = _find_job(name)
        if job_id is None:
            raise error from None
        subject, file = f"job {job_id}", save_job_report(job_id, out)
        document = {"job": job_id, "file": str(file)}
    else:
        subject, file = record.name, save_report(record, out)
        document = {"run": record.name, "file": str(file)}
    if as_json:
        write_json(document)
    else:
        typer.echo(f"wrote {file}, the report of {subject}")


def _find_job(name: str) -> str | None:
    """Return the id of the job that a text names; None if it names none, or several."""
    if not is_installed("sqlalchemy"):
        return None
    try:
        return find_job(open_store(), name).id
    except JobError:
        return None
