"""``hyperplane history``: what runs of clusters took."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

import hyperplane
from hyperplane.cli.output import JsonOption, new_table, show, write_json, write_rows
from hyperplane.core.units import format_bytes, format_number, plural
from hyperplane.guard.run_summary import describe_size
from hyperplane.guard.usage_texts import describe_memory
from hyperplane.history import RunRecord, TaskUsage, list_runs, read_run
from hyperplane.history.run_record import TIME_LENGTH

app = typer.Typer(no_args_is_help=True, help="Show what runs of clusters took.")

#: Operations that are shown; a document has all of them.
_SHOWN = 12


@app.command("list")
def list_records(as_json: JsonOption = False) -> None:
    """Show the runs of this user's clusters on this machine, newest first."""
    records = list_runs()
    if as_json:
        write_json([record.model_dump() for record in records])
    elif not records:
        typer.echo("no run is recorded on this machine")
    else:
        show(_table(records))


def _table(records: list[RunRecord]) -> Table:
    table = new_table(
        ["run", "cluster", "ended"], ["time", "peak", "paused", "on disk", "restarts"]
    )
    table.columns[0].no_wrap = True  # it is an argument of hyperplane history show
    for record in records:
        peak = record.peak
        table.add_row(
            record.name[:TIME_LENGTH],
            record.cluster,
            record.exit_reason,
            _duration(record.seconds),
            "" if peak is None else describe_memory(peak.peak, peak.limit),
            _duration(record.paused_seconds),
            format_bytes(record.spilled),
            str(record.restarts),
        )
    return table


@app.command("show")
def show_record(
    name: Annotated[str, typer.Argument(help="A run of the list, or a cluster for its newest.")],
    as_json: JsonOption = False,
) -> None:
    """Show what one run took: memory, pauses, spilled data, restarts and operations."""
    record = read_run(name)
    if as_json:
        write_json(record.model_dump())
        return
    write_rows(_rows(record))
    if record.tasks:
        typer.echo()
        show(_operations(record.tasks[:_SHOWN]))
    if len(record.tasks) > _SHOWN:
        typer.echo(f"\nand {plural(len(record.tasks) - _SHOWN, 'operation')} more; --json has all")


def _rows(record: RunRecord) -> Iterator[tuple[str, str]]:
    plan = record.plan
    started = dt.datetime.fromtimestamp(record.started).astimezone()
    yield "run", record.name
    yield "cluster", f"{record.cluster}, engine {plan.engine}"
    yield "started", f"{started:%Y-%m-%d %H:%M:%S}, {_duration(record.seconds)}"
    yield "ended", record.exit_reason
    if record.job:
        yield "job", record.job
    pool = f", pool {plan.pool}" if plan.pool else ""
    nodes = plural(plan.nodes, "node")
    if plan.max_nodes > plan.nodes:
        nodes = f"{plan.nodes} to {plural(plan.max_nodes, 'node')}"
    layout = f"{plan.nprocs} x {plan.nthreads} threads x {format_bytes(plan.ram_per_proc)}"
    yield "plan", f"{nodes}, each {layout}{pool}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())
    for worker in record.workers:
        facts = [f"peak {describe_memory(worker.peak, worker.limit)}"]
        if worker.paused_seconds:
            facts.append(f"paused {_duration(worker.paused_seconds)}")
        if worker.spilled:
            on_disk = _duration(worker.spilling_seconds)
            facts.append(f"up to {format_bytes(worker.spilled)} on disk, {on_disk}")
        if worker.restarts:
            causes = ", ".join(f"{count} {cause}" for cause, count in worker.causes.items())
            facts.append(f"{plural(worker.restarts, 'restart')} ({causes})")
        yield f"worker {worker.name}", ", ".join(facts)
    if record.peak is not None and record.tasks:
        yield "memory", describe_size(record, list(hyperplane.pools().values()))


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
