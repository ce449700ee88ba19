"""Clusters: those of this machine and of all platforms, and one with what it takes now."""

from __future__ import annotations

from hyperplane import cluster_stop
from hyperplane.cluster_stop import read_records
from hyperplane.clusters import cluster_listing
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError
from hyperplane.core.html_output import Markup, make_bar, make_link
from hyperplane.core.units import format_bytes, format_number, gb_to_bytes, plural, round_bytes
from hyperplane.reports.run_report import show_figures
from hyperplane.spec.engine_names import DASK, framework_of
from hyperplane.ui.elements import (
    make_action,
    make_alert,
    make_facts,
    make_note,
    make_page_link,
    make_path,
    make_section,
    make_table,
    make_time,
)
from hyperplane.ui.live_cluster import LiveCluster, read_live
from hyperplane.ui.view import PageNotFound, PageRequest, View

#: Seconds between updates of a list, and of one cluster.
_LIST_SECONDS, _SECONDS = 5.0, 3.0
_TITLES = ("cluster", "engine", "job", "dashboard", "processes", "threads", "memory")


def make_cluster_table() -> Markup:
    """Return the running clusters of this machine as a table."""
    return make_table(
        "Clusters that programs of this machine have started",
        _TITLES,
        ([*_describe(record)] for record in read_records()),
        numbers=3,
    )


def _describe(record: ClusterRecord) -> list[str]:
    least = f"{record.min_workers} to " if record.min_workers else ""
    return [
        make_page_link(make_path("clusters", record.engine, record.name), record.name),
        record.engine,
        make_page_link(make_path("jobs", record.job), record.job[:8]) if record.job else "",
        make_link(record.dashboard, "dashboard") if record.dashboard else "",
        f"{least}{record.workers:,}",
        f"{record.threads:,}",
        format_bytes(gb_to_bytes(record.ram_gb)),
    ]


def list_clusters(request: PageRequest) -> View:
    """Return the running clusters of this machine."""
    closed = request.query.get("closed", "")
    return View(
        "Clusters",
        (
            make_section("clusters", "On this machine", make_cluster_table()),
            make_section(
                "others",
                "Elsewhere",
                make_page_link("/other-clusters", "Ask all platforms for clusters"),
                make_note(
                    "Those that other machines have started, or whose program has ended. "
                    "It takes some seconds."
                ),
            ),
            make_section(
                "ended",
                "Ended",
                make_page_link("/records", "Records of clusters that have ended"),
            ),
        ),
        _LIST_SECONDS,
        outcome=f"{closed} is closed" if closed else "",
    )


def list_other_clusters(request: PageRequest) -> View:
    """Return the clusters that the platforms list and this machine has not started."""
    closed = request.query.get("closed", "")
    listing = cluster_listing.list_clusters(read_records())
    rows = [
        (
            make_page_link(make_path("other-clusters", each.engine, each.name), each.name),
            each.engine,
            each.where,
            each.status,
            each.started,
        )
        for each in listing.clusters
    ]
    table = make_table(
        "Clusters without a record on this machine",
        ("cluster", "engine", "where", "status", "started"),
        rows,
    )
    advice = "hyperplane cluster stop NAME stops one."
    return View(
        "Clusters elsewhere",
        (*(make_alert(warning) for warning in listing.warnings), table, make_note(advice)),
        outcome=f"{closed} is closed" if closed else "",
    )


def _find_other(request: PageRequest) -> ListedCluster:
    engine, name = request.names["engine"], request.names["name"]
    listing = cluster_listing.list_clusters(read_records())
    for cluster in listing.clusters:
        if (cluster.engine, cluster.name) == (engine, name):
            return cluster
    reasons = "".join(f"; {warning}" for warning in listing.warnings)
    raise PageNotFound(f"no platform lists a cluster {name!r} of {engine}{reasons}")


def show_other_cluster(request: PageRequest) -> View:
    """Return a cluster that this machine has not started, with what its platform knows."""
    cluster = _find_other(request)
    facts = [
        ("cluster", cluster.name),
        ("engine", cluster.engine),
        ("where", cluster.where),
        ("status", cluster.status),
        ("started", cluster.started),
        ("jobs", ", ".join(cluster.jobs)),
    ]
    notes = [make_page_link("/other-clusters", "All clusters elsewhere")]
    if cluster.shared_owner:
        text = f"It may be another user's: others may have the name {cluster.shared_owner!r}, too."
        notes.append(make_note(text))
    action = ""
    if request.allow_actions:
        path = make_path("other-clusters", cluster.engine, cluster.name, "stop")
        text = f"This ends {cluster.name} on its platform for all programs; results are lost."
        action = make_action(path, "Stop this cluster", text)
    return View(f"Cluster {cluster.name}", (*notes, make_facts(facts), action))


def stop_other_cluster(request: PageRequest) -> str:
    """Make the platform end a cluster; return the path of the list."""
    cluster = _find_other(request)
    reason = cluster_stop.stop_cluster(cluster)
    if reason:
        raise EngineError(cluster.engine, f"{cluster.name} may still be running: {reason}")
    return make_path("other-clusters", closed=cluster.name)


def _find(request: PageRequest) -> ClusterRecord:
    engine, name = request.names["engine"], request.names["name"]
    for record in read_records():
        if (record.engine, record.name) == (engine, name):
            return record
    raise PageNotFound(f"no cluster {name!r} runs on this machine; it may have ended")


def show_cluster(request: PageRequest) -> View:
    """Return a running cluster: its plan, workers, memory and cost so far."""
    record = _find(request)
    if framework_of(record.engine) != DASK:
        missing = make_note("Its dashboard shows what it takes.")
        return describe_cluster(record, missing, request.allow_actions)
    try:
        return describe_cluster(record, read_live(record), request.allow_actions)
    except EngineError as error:
        return describe_cluster(record, make_alert(error.message), request.allow_actions)


def describe_cluster(
    record: ClusterRecord, figures: LiveCluster | Markup, allow_actions: bool
) -> View:
    """Return a cluster with its figures, or with a message why there are none."""
    facts, parts = _list_facts(record), list[str]()
    if isinstance(figures, LiveCluster):
        facts += _list_figures(figures)
        parts += map(Markup, show_figures(figures.record))
    else:
        parts.append(figures)
    action = ""
    if allow_actions:
        path = make_path("clusters", record.engine, record.name, "stop")
        text = f"This closes {record.name} for all programs; their tasks and results are lost."
        action = make_action(path, "Stop this cluster", text)
    content = (make_facts(facts), action, *parts)
    return View(f"Cluster {record.name}", content, _SECONDS, f"{record.name} runs")


def _list_facts(record: ClusterRecord) -> list[tuple[str, str]]:
    processes = plural(record.workers, "worker process")
    if record.min_workers:
        processes = f"{record.min_workers} to {processes}"
    memory = format_bytes(gb_to_bytes(record.ram_gb))
    job = make_page_link(make_path("jobs", record.job), record.job) if record.job else ""
    return [
        ("cluster", record.name),
        ("engine", record.engine),
        ("planned", f"{processes}, {plural(record.threads, 'thread')}, {memory}"),
        ("job", job),
        ("dashboard", make_link(record.dashboard) if record.dashboard else ""),
        ("scheduler", record.scheduler),
        ("process", str(record.pid)),
    ]


def _list_figures(live: LiveCluster) -> list[tuple[str, str]]:
    plan = live.record.plan
    pool = f" of pool {plan.pool}" if plan.pool else ""
    memory: str = round_bytes(live.memory)
    if live.limit:
        text = f"{memory} of {round_bytes(live.limit)}"
        memory = make_bar(live.memory / live.limit, text)
    cost = ""
    if live.cost is not None:
        cost = f"about {format_number(round(live.cost, 2))} {live.currency}".rstrip()
    return [
        ("started", make_time(live.record.started)),
        ("nodes", f"{plural(plan.nodes, 'node')}{pool}" if plan.nodes else ""),
        ("budget", plan.budget),
        ("workers", f"{live.processes:,} connected"),
        ("memory", memory),
        ("cost so far", cost),
        ("core-hours", f"about {format_number(round(live.core_hours, 2))}"),
    ]


def stop_cluster(request: PageRequest) -> str:
    """Close a cluster; return the path of the list."""
    record = _find(request)
    reason = cluster_stop.stop_cluster(record)
    if reason:
        raise EngineError(record.engine, f"{record.name} is still running: {reason}")
    return make_path("clusters", closed=record.name)
