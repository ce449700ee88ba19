"""``hyperplane history``: what runs of clusters took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hyperplane import config
from hyperplane.cli.output import JsonOption, fit_texts, new_table, show, write_json, write_rows
from hyperplane.core.errors import RequestError
from hyperplane.core.units import format_bytes, format_local_time, format_number, plural
from hyperplane.guard.run_summary import advises_size, describe_plan, describe_size
from hyperplane.guard.usage_texts import describe_grown, describe_memory, round_gb
from hyperplane.history import ComputationUsage, RunRecord, TaskUsage, list_runs, read_run
from hyperplane.history.code_digest import SHOWN
from hyperplane.history.comparison import compare_records
from hyperplane.history.run_record import name_start, split_run_name
from hyperplane.history.run_texts import describe_cost
from hyperplane.history.selection import RunSelection
from hyperplane.history.store import LATEST, iterate_runs
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.step_runs import read_step_runs

app = typer.Typer(help="Show and compare what runs took.")

#: Runs that are listed without --limit.
_LISTED = 20
#: Least widths of the columns of texts: the run, often its time, the label, and the reason.
_FLOORS = (22, 7, 6)
#: Operations that are shown; a document has all of them.
_SHOWN = 12


NameArgument = Annotated[
    str,
    typer.Argument(help="A run of the list, a cluster or a block for its newest, or latest."),
]


@app.callback(invoke_without_command=True)
def history(context: typer.Context) -> None:
    """Show and compare what runs took; without a command, list the newest."""
    if context.invoked_subcommand is None:
        list_records()


@app.command("list")
def list_records(
    name: Annotated[
        str | None,
        typer.Option(help="Only runs of this cluster, block, program, pipeline or pipeline/step."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Only runs with this text in a name, the pool or the exit reason."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs since a date, or a duration such as 7d."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs until such a time.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Maximum number of runs; by default 20, and all with --json."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show runs of this user's clusters, of blocks of code and of steps of jobs, newest first."""
    selection = RunSelection.parse(name, text, since, until, limit)
    known = [*iterate_runs(_report_damaged), *read_step_runs()]
    found = [record for record in known if selection.contains(record)]
    if limit is None and not as_json:
        limit = _LISTED
    records = sorted(found, key=lambda record: record.started, reverse=True)[:limit]
    if as_json:
        write_json([record.model_dump() for record in records])
    elif not records:
        is_filtered = any(value is not None for value in (name, text, since, until))
        typer.echo(
            "no such run is recorded" if is_filtered else "no run is recorded on this machine"
        )
    else:
        table = _table(records, known)
        show(table, min_width=fit_texts(table, _FLOORS))
        if len(found) > len(records):
            more = plural(len(found) - len(records), "run")
            typer.echo(f"\nand {more} more; --limit {len(found)} shows all")


def _report_damaged(file: Path) -> None:
    typer.echo(f"{file} is no record of a run and is left out; delete the file", err=True)


def read_named(name: str) -> RunRecord:
    """Read the record of a cluster, or else that of a step."""
    of_steps = sorted(read_step_runs(), key=lambda record: record.started, reverse=True)
    if name == LATEST:
        newest = [*list_runs(limit=1), *of_steps[:1]]
        return max(newest, key=lambda record: record.started) if newest else read_run(name)
    try:
        return read_run(name)
    except RequestError:
        wanted = RunSelection.parse(name, None, None, None, None)
        for record in of_steps:
            if wanted.contains(record) or name in (
                split_run_name(record.name)[0],
                name_start(record),
            ):
                return record
        raise


def _short_names(records: list[RunRecord], known: list[RunRecord]) -> list[str]:
    """Return what identifies each record among others: its time, or all of its name."""
    seconds = Counter(split_run_name(record.name)[0] for record in known)
    starts = Counter(map(name_start, known))
    return [_short_name(record, seconds, starts) for record in records]


def _short_name(record: RunRecord, seconds: Counter[str], starts: Counter[str]) -> str:
    time, start = split_run_name(record.name)[0], name_start(record)
    if not time or seconds[time] == 1:
        return time or record.name
    return start if starts[start] == 1 else record.name


def _table(records: list[RunRecord], known: list[RunRecord]) -> Table:
    """Return the table of the list, without columns of which all figures are zero."""
    columns = {
        "paused": [
            _duration(each.paused_seconds) if each.paused_seconds else "" for each in records
        ],
        "on disk": [format_bytes(each.spilled) if each.spilled else "" for each in records],
        "restarts": [str(each.restarts) if each.restarts else "" for each in records],
    }
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    table = new_table(["run", "of", "ended"], ["time", "peak", *shown])
    names = _short_names(records, known)
    for name, record, *cells in zip(names, records, *shown.values(), strict=True):
        table.add_row(
            name,
            to_plain_line(record.label),
            to_plain_line(record.exit_reason),
            _duration(record.seconds),
            _describe_peak(record),
            *cells,
        )
    return table


def _describe_peak(record: RunRecord) -> str:
    if (nearest := record.peak) is not None:
        return describe_memory(nearest.peak, nearest.limit)
    largest = max((worker.peak for worker in record.workers), default=0)
    return f"{round_gb(largest)} GB" if largest else ""


@app.command("show")
def show_record(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show what one run took: memory, pauses, spilled data, restarts and operations."""
    record = read_named(name)
    if as_json:
        write_json(record.model_dump())
        return
    write_rows([(label, to_plain_line(text)) for label, text in _rows(record)])
    if record.computations:
        typer.echo()
        longest = sorted(record.computations, key=lambda each: -each.seconds)
        _show_named(_computations(longest[:_SHOWN]))
    if record.tasks:
        typer.echo()
        _show_named(_operations(record.tasks[:_SHOWN]))
    if len(record.tasks) > _SHOWN:
        typer.echo(f"\nand {plural(len(record.tasks) - _SHOWN, 'operation')} more; --json has all")


def _show_named(table: Table) -> None:
    """Print a table of figures whose first column has names, of which none is cut."""
    show(table, min_width=fit_texts(table, _FLOORS[1:2]))


@app.command("compare")
def compare(
    first: NameArgument,
    second: NameArgument = LATEST,
    as_json: JsonOption = False,
) -> None:
    """Show two runs beside each other: layout, time, memory, data and operations."""
    found = compare_records(read_named(first), read_named(second))
    if as_json:
        write_json(found.to_dict())
        return
    both = [found.first, found.second]
    table = new_table(["", *_short_names(both, both)], [""])
    for value in found.values:
        if value.name != "run":
            table.add_row(value.name, *value.texts())
    show(table)


def _rows(record: RunRecord) -> Iterator[tuple[str, str]]:
    plan = record.plan
    started = format_local_time(record.started)
    yield "run", record.name
    if record.label != record.cluster:
        yield "of", record.label
    if record.cluster:
        engine = f", engine {plan.engine}" if plan.engine else ""
        yield "cluster", f"{record.cluster}{engine}"
    else:
        yield "runner", plan.engine
    yield "started", f"{started}, {_duration(record.seconds)}"
    yield "ended", record.exit_reason
    if record.job:
        yield "job", f"{record.run} ({record.job})" if record.run else record.job
    for name, value in record.parameters.items():
        yield "parameter", f"{name} = {value}"
    if record.code:
        yield "code", record.code[:SHOWN]
    if plan.nprocs:
        yield "plan", describe_plan(plan)
    elif plan.pool:
        yield "pool", plan.pool
    if record.cpu_seconds:
        yield "CPU", _duration(record.cpu_seconds)
    if record.read or record.written:
        yield "data", f"{format_bytes(record.read)} read, {format_bytes(record.written)} written"
    if record.cost is not None:
        yield "cost", describe_cost(record)
    if record.versions:
        yield (
            "versions",
            ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        )
    for worker in record.workers:
        memory = describe_memory(worker.peak, worker.limit) if worker.peak else "unknown"
        facts = [f"peak {memory}"]
        if grown := describe_grown(worker.limit, worker.first_limit):
            facts.append(grown)
        if worker.paused_seconds:
            facts.append(f"paused {_duration(worker.paused_seconds)}")
        if worker.spilled:
            on_disk = _duration(worker.spilling_seconds)
            facts.append(f"up to {format_bytes(worker.spilled)} on disk, {on_disk}")
        if worker.restarts:
            causes = ", ".join(f"{count} {cause}" for cause, count in worker.causes.items())
            facts.append(f"{plural(worker.restarts, 'restart')} ({causes})")
        label = f"worker {worker.name}" if record.cluster else "memory"
        yield label, ", ".join(facts)
    if advises_size(record):
        pools, currency = list(config.pools().values()), config.sizing_rules().currency
        yield "advice", describe_size(record, pools, currency)


def _computations(computations: list[ComputationUsage]) -> Table:
    numbers = ("runs", "tasks", "input", "time", "CPU", "peak", "total", "on disk")
    table = new_table(["computation"], numbers)
    for each in computations:
        table.add_row(
            each.name,
            str(each.count),
            str(each.tasks),
            format_bytes(each.input),
            _duration(each.seconds),
            _duration(each.cpu_seconds),
            format_bytes(each.peak),
            format_bytes(each.total),
            format_bytes(each.spilled),
        )
    return table


def _operations(tasks: tuple[TaskUsage, ...]) -> Table:
    numbers = ("tasks", "failed", "time", "longest", "result", "largest", "input", "process")
    table = new_table(["operation"], numbers)
    table.caption = "\nProcess: largest memory of a process while such a task ran."
    table.caption_justify = "left"
    for task in tasks:
        table.add_row(
            task.name,
            str(task.count),
            str(task.failed),
            _duration(task.seconds),
            _duration(task.longest),
            format_bytes(task.output),
            format_bytes(task.largest_output),
            format_bytes(task.largest_input),
            format_bytes(task.memory),
        )
    return table


def _duration(seconds: float) -> str:
    """Return a duration with the unit that suits it."""
    if seconds < 60:
        return f"{format_number(round(seconds, 2))} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
