"""``hyperplane job show`` and ``hyperplane job compare``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hyperplane.cli.job_options import IdArgument
from hyperplane.cli.job_screen import job_document
from hyperplane.cli.output import JsonOption, fit_texts, new_table, show, write_json, write_rows
from hyperplane.core.units import format_duration, format_local_time
from hyperplane.jobs.artifacts import read_artifacts
from hyperplane.jobs.job_comparison import compare_jobs, compare_steps
from hyperplane.jobs.job_control import ensure_supervisor
from hyperplane.jobs.job_names import find_job
from hyperplane.jobs.job_progress import describe_duration, step_progress, to_plain_line
from hyperplane.jobs.step_records import (
    USAGE_TITLES,
    describe_code,
    describe_total_cost,
    describe_usage,
    list_figures,
    read_step_records,
    show_parameters,
)
from hyperplane.jobs.store.jobs_home import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hyperplane.history import RunRecord
    from hyperplane.jobs.store.job_records import Job

_OtherArgument = Annotated[str, typer.Argument(metavar="OTHER", help="The other job, likewise.")]
#: Statuses and times of a table of a narrow terminal are not cut: it is at least this wide.
_MIN_WIDTH = 60
#: Least widths of the columns of texts of a step.
_FLOORS = (16, 11, 10)


def show_job(id_: IdArgument, as_json: JsonOption = False) -> None:
    """Show a job: its state, times, parameters, files and steps."""
    store = open_store()
    ensure_supervisor(store)
    job = find_job(store, id_)
    if as_json:
        write_json(job_document(job, store))
        return
    records = read_step_records(store, job)
    rows = _describe(job, records)
    if count := len(read_artifacts(store, job)):
        rows.append(("artifacts", f"{count:,}, shown by hyperplane job artifacts {job.id[:8]}"))
    write_rows(rows)
    usages = {step: describe_usage(record) for step, record in records.items()}
    # Only the columns of what is known of a step: some programs in pods are not measured.
    known = [
        column for column in range(len(USAGE_TITLES)) if any(u[column] for u in usages.values())
    ]
    titles = ["took", *(USAGE_TITLES[column] for column in known)]
    table = new_table(["step", "status", "detail"], titles)
    for state in step_progress(job, store.attempts(job.id), time.time()):
        took = format_duration(state.seconds) if state.attempts else ""
        usage = usages.get(state.name, describe_usage(None))
        cells = (to_plain_line(state.name), state.status, state.detail, took)
        table.add_row(*cells, *(usage[column] for column in known))
    typer.echo()
    show(table, min_width=max(_MIN_WIDTH, fit_texts(table, _FLOORS)))


def _describe(job: Job, records: Mapping[str, RunRecord]) -> list[tuple[str, str]]:
    rows = {
        "run": job.run_name, "id": job.id, "name": job.name, "pipeline": job.pipeline_name,
        "status": job.status, "reason": job.reason, "submitted": _format_time(job.submitted),
        "resumed": _format_time(job.resumed), "started": _format_time(job.started),
        "ended": _format_time(job.ended), "took": describe_duration(job, time.time()),
        "machine": job.machine, "runner": job.runner, "schedule": job.schedule,
        "dashboard": job.dashboard, "output": job.output or "", "folder": job.folder,
    }  # fmt: skip
    described = [(label, to_plain_line(text)) for label, text in rows.items() if text]
    described += [
        ("parameter", to_plain_line(f"{key} = {value}"))
        for key, value in show_parameters(job, records).items()
    ]
    described += [("code", to_plain_line(text)) for text in describe_code(records)]
    if cost := describe_total_cost(records.values()):
        described.append(("cost", cost))
    return described


def _format_time(at: float) -> str:
    return format_local_time(at) if at else ""


def compare(id_: IdArgument, other: _OtherArgument, as_json: JsonOption = False) -> None:
    """Show what differs between two jobs, and what their steps took.

    Parameters come first, then the code of the steps by its digest, the outcome, and settings of
    the pipeline and its steps. What scripts and notebooks import is not compared.
    """
    store = open_store()
    first, second = find_job(store, id_), find_job(store, other)
    records = [read_step_records(store, job) for job in (first, second)]
    differences = compare_jobs(first, second, *records)
    steps = compare_steps(first, store.attempts(first.id), second, store.attempts(second.id))
    if as_json:
        write_json({
            "first": {**first.as_dict(), "parameters": show_parameters(first, records[0])},
            "second": {**second.as_dict(), "parameters": show_parameters(second, records[1])},
            "differences": [asdict(each) for each in differences],
            "steps": [
                {
                    **asdict(each),
                    "first_usage": list_figures(records[0].get(each.step)),
                    "second_usage": list_figures(records[1].get(each.step)),
                }
                for each in steps
            ],
        })  # fmt: skip
        return
    titles = [to_plain_line(f"{job.run_name} ({job.id[:8]})") for job in (first, second)]
    if differences:
        table = new_table(["", *titles], [])
        for each in differences:
            values = (each.field, each.first or "", each.second or "")
            table.add_row(*map(to_plain_line, values))
        show(table, min_width=_MIN_WIDTH)
    else:
        typer.echo("parameters, settings and outcome are the same")
    table = new_table(["step", *titles], ["difference"])
    for step in steps:
        table.add_row(
            to_plain_line(step.step),
            _describe_step(step.first_status, step.first_seconds),
            _describe_step(step.second_status, step.second_seconds),
            _describe_change(step.first_seconds, step.second_seconds),
        )
    typer.echo()
    show(table, min_width=_MIN_WIDTH)
    table = new_table(["step", ""], titles)
    for step in steps:
        usages = [describe_usage(each.get(step.step)) for each in records]
        for title, *texts in zip(USAGE_TITLES, *usages, strict=True):
            if any(texts):
                table.add_row(to_plain_line(step.step), title, *texts)
    if table.row_count:
        typer.echo()
        show(table, min_width=_MIN_WIDTH)


def _describe_step(status: str, seconds: float | None) -> str:
    return f"{status}, {format_duration(seconds)}" if seconds else status


def _describe_change(first: float | None, second: float | None) -> str:
    if not first or not second:
        return ""
    return f"{'+' if second >= first else '-'}{format_duration(abs(second - first))}"
