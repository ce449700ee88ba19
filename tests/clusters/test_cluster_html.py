"""HTML of clusters: plan, workers, memory, cost and limits above Dask's own."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from html_pages import read_page

import hyperplane
from hyperplane.clusters.dask import cluster_html
from hyperplane.clusters.dask.cluster_html import ClusterHtml, read_state
from hyperplane.core.html_output import make_output, make_rows
from hyperplane.history.timeline import count_process_hours

GB = 10**9


def make_worker(memory: int, status: str = "running", disk: int = 0) -> dict[str, Any]:
    metrics = {"memory": memory, "spilled_bytes": {"memory": 0, "disk": disk}}
    return {"status": status, "nthreads": 2, "memory_limit": 4 * GB, "metrics": metrics}


class Theirs:
    """A cluster of Dask."""

    name = "flights"
    status = SimpleNamespace(name="running")
    dashboard_link = "http://127.0.0.1:8787/status"
    cluster_plan: Any = None

    def __init__(self, *workers: dict[str, Any]) -> None:
        self.scheduler_info = {"workers": dict(enumerate(workers))}

    def _repr_html_(self, cluster_status: str | None = None) -> str:
        return f"<i>Dask {cluster_status}</i>"


class Shown(ClusterHtml, Theirs):
    """A cluster with our HTML."""


@pytest.fixture
def plan() -> Any:
    return hyperplane.plan_cluster(
        num_workers=2, nprocs=2, nthreads=2, ram_gb_per_proc=4, cores_per_worker=4, pool="16_32",
        engine="slurm", budget="50", idle_timeout="30 min",
    )  # fmt: skip


def facts_of(cluster: Any) -> Any:
    return read_page(make_output(make_rows(cluster_html.list_facts(cluster))))


def test_facts_of_a_planned_cluster(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPLANE_JOB_ID", "1234")
    cluster = Shown(make_worker(GB), make_worker(3 * GB, "paused", 2 * GB))
    cluster.cluster_plan = plan
    page = facts_of(cluster)
    assert page.rows["cluster"] == "flights, running"
    assert page.rows["plan"] == "slurm: 2 nodes, each 2 x 2 threads x 4 GB, pool 16_32"
    assert page.rows["workers"] == "2 of 4 worker processes, 4 threads"
    assert page.rows["memory"] == "4 GB of 8 GB, 2 GB on disk, 1 worker paused"
    assert page.rows["budget"] == "50 core-hours"
    assert page.rows["idle"] == "closes after 30 min 0 s without use"
    assert page.rows["job"] == "1234"
    assert page.links == {"http://127.0.0.1:8787/status": "http://127.0.0.1:8787/status"}
    assert {"hp-bad", "hp-warn"} <= {name for each in page.classes for name in each.split()}
    assert "so far" not in page.rows
    line, *printed = str(cluster).splitlines()
    assert line == repr(cluster)
    assert [each.split(maxsplit=1) for each in printed] == [list(row) for row in page.rows.items()]


def test_the_limits_of_workers_that_have_grown(plan: Any) -> None:
    cluster = Shown(make_worker(GB), {**make_worker(5 * GB), "memory_limit": 6 * GB})
    cluster.cluster_plan = plan
    assert facts_of(cluster).rows["memory"] == "6 GB of 10 GB, limit grown from 8 GB"


def test_figures_of_a_scheduler_elsewhere_replace_those_of_the_start(plan: Any) -> None:
    cluster: Any = Shown(make_worker(0), make_worker(0))
    cluster.cluster_plan = plan
    timeline = {
        "started": time.time() - 3600, "part_seconds": 1800.0, "total": [GB, 5 * GB],
        "spilled": [0, GB], "processes": [4, 2],
    }  # fmt: skip
    cluster._copy = SimpleNamespace(usage={"timeline": timeline})
    prices = {
        "hyperplane.pools.pool_16_32.price_per_hour": 2.0,
        "hyperplane.sizing.currency": "EUR",
    }
    page = facts_of(cluster)
    assert page.rows["memory"] == "5 GB of 8 GB, 1 GB on disk"
    assert page.rows["so far"] == "about 6 core-hours"
    with dask.config.set(prices):
        assert facts_of(cluster).rows["so far"] == "about 3 EUR, about 6 core-hours"
    cluster._copy.usage = None
    assert read_state(cluster).memory == 0


def test_a_cluster_of_another_process_and_its_own_html() -> None:
    cluster = Shown(make_worker(GB))
    text = cluster._repr_html_(cluster_status="open")
    assert "1 worker process, 2 threads" in text
    assert "<details><summary>Dask's view</summary><i>Dask open</i></details>" in text
    assert "hp-bar" in text


def test_names_are_escaped_and_a_failure_leaves_dasks_html() -> None:
    cluster: Any = Shown(make_worker(GB))
    cluster.name = "<script>"
    assert facts_of(cluster).rows["cluster"] == "<script>, running"
    assert "<script>, running" in str(cluster)
    del cluster.scheduler_info
    assert str(cluster) == repr(cluster)
    assert cluster._repr_html_() == "<i>Dask None</i>"


def test_process_hours() -> None:
    assert count_process_hours([], 1.0, 10.0) == 0
    assert count_process_hours([2, 4], 1800.0, 3600.0) == 3
    assert count_process_hours([2], 1800.0, 900.0) == 0.5
