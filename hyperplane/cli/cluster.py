"""``hyperplane cluster``: start a cluster in the foreground; list and stop clusters."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hyperplane
from hyperplane.cli.options import with_request_options
from hyperplane.cli.output import JsonOption, write_json, write_rows
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.cluster_stop import read_records, stop_cluster
from hyperplane.clusters import cluster_listing, records, registry
from hyperplane.clusters.cluster_listing import ClusterListing
from hyperplane.clusters.framework import CLOSED
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.core.errors import EngineError, Fault, RequestError
from hyperplane.core.public_calls import stating_outcome
from hyperplane.core.units import format_bytes, gb_to_bytes, plural

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
    record = records.ClusterRecord.from_plan(plan)
    running = {
        "name": plan.name,
        "engine": plan.engine,
        "scheduler": addresses.scheduler,
        "dashboard": addresses.dashboard,
        "workers": record.workers,
        "threads": record.threads,
        "ram_gb": record.ram_gb,
        "min_workers": record.min_workers,
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
    if running.get("min_workers"):
        workers = f"{running['min_workers']} to {workers}"
        threads = f"at most {threads}"
    return [
        ("cluster", running["name"]),
        ("engine", running["engine"]),
        ("scheduler", running["scheduler"]),
        ("dashboard", running["dashboard"]),
        ("workers", f"{workers}, {threads}, {ram}"),
    ]


@app.command("list")
def list_clusters(as_json: JsonOption = False) -> None:
    """Show the running clusters of this user.

    Those of this machine come first, oldest first; then those that other machines have started, or
    whose program has ended, on the platforms of all configured engines. A platform that does not
    answer within some seconds is a line of warning.
    """
    running = read_records()
    listing = _list_others(running)
    if as_json:
        others = [asdict(cluster) for cluster in listing.clusters]
        write_json([*(_without_key_pair(record) for record in running), *others])
        return
    if not running:
        typer.echo("no cluster is running on this machine")
    for number, record in enumerate(running):
        if number:
            typer.echo()
        write_rows([*_rows(asdict(record)), ("process", str(record.pid))])
    for cluster in listing.clusters:
        typer.echo()
        write_rows(_rows_of_listed(cluster))


def _list_others(running: list[records.ClusterRecord]) -> ClusterListing:
    """Return the clusters without a record here; print a line for each platform without answer."""
    listing = cluster_listing.list_clusters(running)
    for warning in listing.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return listing


def _rows_of_listed(cluster: ListedCluster) -> list[tuple[str, str]]:
    rows = [
        ("cluster", cluster.name),
        ("engine", cluster.engine),
        ("where", cluster.where),
        ("status", cluster.status),
        ("started", cluster.started),
    ]
    return [(label, text) for label, text in rows if text]


def _without_key_pair(record: records.ClusterRecord) -> dict[str, Any]:
    """Return a record without its key pair."""
    return {name: value for name, value in asdict(record).items() if name != "security"}


@app.command()
def stop(
    name: Annotated[str | None, typer.Argument(help="Name of the cluster.")] = None,
    all_clusters: Annotated[
        bool,
        typer.Option("--all", help="Stop all clusters of hyperplane cluster list that are yours."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Do not ask. Without a terminal, --all does not ask either."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Close a cluster that any process of this user started, and wait until it has ended.

    The clusters of this machine are closed first. The others are ended by their platform. --all
    leaves those that may belong to another user of the same name, and fails if a platform does not
    answer.
    """
    running = read_records()
    with stating_outcome("nothing was stopped"):
        if (name is None) != all_clusters:
            value = "nothing" if name is None else f"{name!r} and --all"
            raise RequestError([Fault("name", value, "either the name of a cluster or --all")])
        chosen, unanswered = _choose(name, running)
    if all_clusters and chosen and not yes and is_terminal():
        for cluster in chosen:
            typer.echo(f"{cluster.name}, engine {cluster.engine}", err=True)
        typer.confirm(f"Stop {plural(len(chosen), 'cluster')}?", abort=True, err=True)
    still_running = []
    for cluster in chosen:
        reason = stop_cluster(cluster)
        if reason:
            still_running.append(f"{_describe(cluster)}: {reason}")
        elif not as_json:
            typer.echo(f"{cluster.name} is closed")
    still_running += [f"clusters may still be running: {warning}" for warning in unanswered]
    if still_running:
        engine = chosen[0].engine if chosen else unanswered[0].partition(": ")[0]
        raise EngineError(engine, "; ".join(still_running))
    if as_json:
        write_json({"stopped": [cluster.name for cluster in chosen]})
    elif not chosen:
        typer.echo("no cluster of yours is running")


def is_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty()


def _choose(
    name: str | None, running: list[records.ClusterRecord]
) -> tuple[Sequence[records.ClusterRecord | ListedCluster], Sequence[str]]:
    """Return the clusters to stop, and which platforms did not answer, if all are to be stopped.

    Platforms are asked only for what this machine does not know.
    """
    if name is not None and (own := [record for record in running if name in record.names]):
        return own[:1], ()
    others, warnings = _list_others(running)
    if name is None:
        return [*running, *_without_shared(others)], warnings
    if found := [cluster for cluster in others if cluster.name == name]:
        return found[:1], ()
    names = [record.name for record in running] + [cluster.name for cluster in others]
    raise _unknown_name(name, names)


def _without_shared(clusters: Sequence[ListedCluster]) -> list[ListedCluster]:
    """Return the clusters of this user only; print a line for each other one."""
    for cluster in clusters:
        if owner := cluster.shared_owner:
            typer.echo(
                f"{cluster.name} is not stopped, {cluster.where}: other users may have the name "
                f"{owner!r}, too; if it is yours, run hyperplane cluster stop {cluster.name}",
                err=True,
            )
    return [cluster for cluster in clusters if not cluster.shared_owner]


def _describe(cluster: records.ClusterRecord | ListedCluster) -> str:
    if isinstance(cluster, ListedCluster):
        return f"{cluster.name} may still be running, {cluster.where}"
    return f"{cluster.name} is still running, in process {cluster.pid}"


def _unknown_name(name: str, names: list[str]) -> RequestError:
    near = difflib.get_close_matches(name, names, n=2)
    allowed = f"the name of a running cluster: {', '.join(names)}".removesuffix(": ")
    advice = f"did you mean {' or '.join(near)}?" if near else ""
    if not names:
        advice = "no cluster is running on this machine"
    return RequestError([Fault("name", repr(name), allowed, advice)])
