"""The documented functions for Ray clusters: arguments, printed lines and results."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
from fake_gpus import read_devices, two_gpus
from services import is_empty, temporary_directory, until

import hyperplane
from hyperplane import ray_common as rc
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.core.optional import is_installed
from hyperplane.errors import RequestError, UnknownPool

WORKER = r"ray-worker-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SELECTING = "👉 Hyperplane: selecting worker node pool"


def test_signatures_are_the_documented_ones() -> None:
    assert [
        (name, parameter.default)
        for name, parameter in inspect.signature(rc.initialize_ray_cluster).parameters.items()
    ] == [
        ("num_workers", 2),
        ("cpu_core_per_worker", 15),
        ("ram_gb_per_worker", 12),
        ("n_gpus", 0),
        ("use_existing", False),
        ("timeout", 1200),  # not a documented argument, so that it is the last one
    ]
    assert list(inspect.signature(rc.quickstart_ray).parameters) == ["num_workers", "size"]
    assert list(inspect.signature(rc.stop_ray_cluster).parameters) == ["ray_cluster"]


def test_all_faults_are_reported_with_the_names_of_the_arguments() -> None:
    with pytest.raises(RequestError, match="nothing was started") as caught:
        rc.initialize_ray_cluster(-1, "x", 0, 1, "no")  # type: ignore[arg-type]
    assert [fault.where for fault in caught.value.faults] == [
        "num_workers",
        "use_existing",
        "cpu_core_per_worker",
        "ram_gb_per_worker",
        "n_gpus",
    ]
    # No engine of another framework is proposed.
    assert "cuda" not in str(caught.value)


def test_no_workers_only_connect() -> None:
    with pytest.raises(RequestError, match="use_existing=True connects only"):
        rc.initialize_ray_cluster(0)


def test_a_request_larger_than_every_pool_needs_no_pool() -> None:
    # The engine has no pools: the request is reduced to this machine.
    request = {"num_workers": 2, "nprocs": 1, "nthreads": 500, "cores_per_worker": 500}
    plan = hyperplane.plan_cluster(engine="ray:local", **request)
    assert plan.total_threads <= max(2, os.cpu_count() or 2)


@pytest.mark.parametrize("size", ["hyperplane-huge", 7, None])
def test_an_unknown_size_names_the_known_ones(size: Any) -> None:
    with pytest.raises(RequestError) as caught:
        rc.quickstart_ray(1, size)
    if isinstance(size, str):
        assert isinstance(caught.value, UnknownPool)


@pytest.mark.parametrize("extra", [-1, 1.5, True, "2"])
def test_extra_workers_is_checked(extra: Any) -> None:
    with pytest.raises(RequestError, match="extra_workers"):
        rc.get_ray_cluster(extra)


def test_without_a_cluster() -> None:
    with temporary_directory():
        assert rc.find_ray_workers() == []
        with pytest.raises(hyperplane.EngineError, match="no Ray cluster is running"):
            rc.get_ray_cluster()


@pytest.mark.parametrize("value", [None, "x", object()])
def test_only_clusters_can_be_stopped(value: Any) -> None:
    with pytest.raises(RequestError, match="nothing was stopped"):
        rc.stop_ray_cluster(value)


@pytest.mark.skipif(is_installed("ray"), reason="Ray is installed")
def test_without_ray_the_extra_is_named() -> None:
    usable, reason = LocalRayEngine().available()
    assert not usable
    assert 'pip install "hyperplane[ray]"' in reason
    with pytest.raises(hyperplane.EngineUnavailable, match=r"hyperplane\[ray\]"):
        rc.initialize_ray_cluster(1, 1, 0.5)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The lines that the shared cluster has printed."""
    return []


@pytest.fixture(scope="module")
def cluster(lines: list[str]) -> Iterator[Any]:
    """A cluster of one worker node, with a dashboard, for the tests below in their order."""
    printed = io.StringIO()
    with temporary_directory():
        with contextlib.redirect_stdout(printed):
            started = rc.initialize_ray_cluster(1, 1, 0.5)
        lines += printed.getvalue().splitlines()
        try:
            yield started
        finally:
            rc.stop_ray_cluster(started)
            assert is_empty(Path(os.environ["TMPDIR"]))


@pytest.mark.ray
@pytest.mark.cluster
def test_a_start_prints_the_documented_lines(cluster: Any, lines: list[str]) -> None:
    patterns = [
        re.escape(SELECTING),
        r"ray dashboard available at http://127\.0\.0\.1:\d+/#/",
        rf"Waiting for worker {WORKER}\.\.\.",
    ]
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line
    assert os.environ["RAY_ADDRESS"] == cluster.address


@pytest.mark.ray
@pytest.mark.cluster
def test_the_dashboard_answers_and_needs_the_token(cluster: Any) -> None:
    with urllib.request.urlopen(cluster.dashboard, timeout=200) as page:
        assert page.status == 200
    nodes = urllib.request.Request(f"{cluster.dashboard}/nodes?view=summary")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(nodes, timeout=200)
    assert caught.value.code == 401
    caught.value.close()
    nodes.add_header("Authorization", f"Bearer {cluster.record.security['token']}")
    with urllib.request.urlopen(nodes, timeout=200) as answer:
        assert answer.status == 200


@pytest.mark.ray
@pytest.mark.cluster
def test_workers_are_found_and_added(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert rc.get_ray_cluster() is cluster
    assert rc.initialize_ray_cluster(0, 1, 0.5, 0, True) is cluster
    assert rc.get_ray_cluster(1) is cluster
    assert re.fullmatch(rf"Waiting for worker {WORKER}\.\.\.\n", capsys.readouterr().out)
    workers = rc.find_ray_workers()
    assert [worker.name for worker in workers] == cluster.workers
    assert len(workers) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{name}\tRunning\t127.0.0.1" for name in cluster.workers
    ]
    assert [(record.name, record.workers) for record in records.read_all()] == [(cluster.name, 2)]
    with pytest.raises(RequestError, match="this machine has room"):
        rc.get_ray_cluster(1000)


@pytest.mark.ray
@pytest.mark.cluster
@pytest.mark.slow
def test_plain_functions_of_ray_use_the_cluster(cluster: Any) -> None:
    import ray

    ray.init(logging_level="ERROR")
    assert ray.get_runtime_context().gcs_address == cluster.address
    square = ray.remote(lambda number: number**2)
    assert ray.get([square.remote(number) for number in range(5)]) == [0, 1, 4, 9, 16]
    assert ray.cluster_resources()["CPU"] == 2
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.cluster
def test_initializing_again_ends_the_old_workers(
    cluster: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import ray

    old = list(cluster.workers)
    with two_gpus(tmp_path):
        with dask.config.set({"hyperplane.engines.ray_local.dashboard": False}):
            second = rc.initialize_ray_cluster(1, 1, 0.5, 1)
        ray.init(logging_level="ERROR", log_to_driver=False)
        until(lambda: ray.cluster_resources().get("GPU") == 1)
        assert read_devices(1) == [("0", ["0"])]
        ray.shutdown()
    out = capsys.readouterr().out.splitlines()
    assert out[: len(old) + 1] == [*(f"deleting pod {name}" for name in old), SELECTING]
    assert (cluster.status, second.status) == (CLOSED, RUNNING)
    names = list(second.workers)
    rc.stop_ray_cluster(second)
    rc.stop_ray_cluster(second)
    assert capsys.readouterr().out.splitlines() == [f"Deleting {names[0]}"]
    assert second.status == CLOSED
    assert "RAY_ADDRESS" not in os.environ
