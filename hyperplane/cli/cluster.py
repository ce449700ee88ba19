"""``hyperplane cluster``: start a cluster in the foreground; list and stop clusters."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.clusters import records, registry
from hyperplane.clusters.framework import CLOSED
from hyperplane.core.errors import EngineError, Fault, RequestError
from hyperplane.core.public_calls import stating_outcome
from hyperplane.core.units import bytes_to_gb, format_bytes, gb_to_bytes, plural

if TYPE_CHECKING:
    from hyperplane.clusters.framework import ClusterAddresses
    from hyperplane.spec.plan import ClusterPlan

app = typer.Typer(no_args_is_help=True, help="Start, list and stop clusters.")


@app.command()
@with_request_options
def start(request: dict[str, Any], as_json: JsonOption = False) -> None:
    """Start a cluster and keep it running in the foreground.

    It is closed by Ctrl-C, SIGTERM, its idle timeout or hyperplane cluster stop.
    """
    plan = hyperplane.plan_cluster(**request)
    reason = ""
    with StopSignals() as signals:
        try:
            reason = _run_until_stopped(plan, signals, as_json)
        except EngineError:
            # A SIGTERM to the process group also ends the workers, so that the start fails.
            if not signals.stop_requested.is_set():
                raise
    if not as_json:
        typer.echo(f"{plan.name} is closed" + (f": {reason}" if reason else ""))


def _run_until_stopped(plan: ClusterPlan, signals: StopSignals, as_json: bool) -> str:
    """Run the cluster until a signal, or its end; return the reason of its end, if known."""
    framework = registry.load_framework(plan.engine)
    started = hyperplane.start(plan)
    try:
        addresses = framework.addresses(started)
        started.client.close()  # other programs connect their own clients
        if not signals.stop_requested.is_set():
            _announce(plan, addresses, as_json)
        signals.wait(lambda: framework.status(started.cluster) == CLOSED)
    finally:
        started.cluster.close()
    return str(getattr(started.cluster, "end_reason", ""))


def _announce(plan: ClusterPlan, addresses: ClusterAddresses, as_json: bool) -> None:
    running = {
        "name": plan.name,
        "engine": plan.engine,
        "scheduler": addresses.scheduler,
        "dashboard": addresses.dashboard,
        "workers": plan.dask_workers,
        "threads": plan.total_threads,
        "ram_gb": bytes_to_gb(plan.total_ram),
    }
    if as_json:
        write_json({**running, "notes": list(plan.notes)})
        return
    write_rows([*_rows(running), *(("note", note) for note in plan.notes)])
    typer.echo("\nThe cluster runs until you press Ctrl-C, or run in another terminal:")
    typer.echo(f"hyperplane cluster stop {plan.name}")


def _rows(running: dict[str, Any]) -> list[tuple[str, str]]:
    workers = plural(running["workers"], "worker process")
    threads = plural(running["threads"], "thread")
    ram = format_bytes(gb_to_bytes(running["ram_gb"]))
    return [
        ("cluster", running["name"]),
        ("engine", running["engine"]),
        ("scheduler", running["scheduler"]),
        ("dashboard", running["dashboard"]),
        ("workers", f"{workers}, {threads}, {ram}"),
    ]


@app.command("list")
def list_clusters(as_json: JsonOption = False) -> None:
    """Show the running clusters of this machine, oldest first."""
    running = _read_records()
    if as_json:
        write_json([_without_key_pair(record) for record in running])
        return
    if not running:
        typer.echo("no cluster is running on this machine")
    for number, record in enumerate(running):
        if number:
            typer.echo()
        write_rows([*_rows(asdict(record)), ("process", str(record.pid))])


def _without_key_pair(record: records.ClusterRecord) -> dict[str, Any]:
    """Return a record without its key pair."""
    return {name: value for name, value in asdict(record).items() if name != "security"}


@app.command()
def stop(
    name: Annotated[str | None, typer.Argument(help="Name of the cluster.")] = None,
    all_clusters: Annotated[bool, typer.Option("--all", help="Stop all running clusters.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Close a cluster that any process of this user started, and wait until it has ended."""
    running = _read_records()
    with stating_outcome("nothing was stopped"):
        if (name is None) != all_clusters:
            value = "nothing" if name is None else f"{name!r} and --all"
            raise RequestError([Fault("name", value, "either the name of a cluster or --all")])
        chosen = running if name is None else [_find_record(name, running)]
    still_running = []
    for record in chosen:
        reason = _stop(record)
        if reason:
            still_running.append(
                f"{record.name} is still running, in process {record.pid}: {reason}"
            )
        elif not as_json:
            typer.echo(f"{record.name} is closed")
    if still_running:
        raise EngineError(chosen[0].engine, "; ".join(still_running))
    if as_json:
        write_json({"stopped": [record.name for record in chosen]})
    elif not chosen:
        typer.echo("no cluster is running on this machine")


def _read_records() -> list[records.ClusterRecord]:
    try:
        return records.read_all()
    except OSError as error:
        raise EngineError("local", f"the list of clusters cannot be read: {error}") from error


def _find_record(name: str, running: list[records.ClusterRecord]) -> records.ClusterRecord:
    names = [record.name for record in running]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=2)
        allowed = f"the name of a running cluster: {', '.join(names)}".removesuffix(": ")
        advice = f"did you mean {' or '.join(near)}?" if near else ""
        if not names:
            advice = "no cluster is running on this machine"
        raise RequestError([Fault("name", repr(name), allowed, advice)])
    return running[names.index(name)]


def _stop(record: records.ClusterRecord) -> str:
    """Close a cluster; return the reason if it is still running, otherwise an empty text."""
    reason = "it did not end in time"
    try:
        client, cluster = hyperplane.get_cluster(record.name, record.engine)
        client.close()
        cluster.close()
    except (TimeoutError, OSError, EngineError) as error:
        reason = str(error) or type(error).__name__
    # Checked after an error, too: the cluster may have ended by itself in the meantime.
    return reason if record in _read_records() else ""
