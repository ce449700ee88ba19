"""A hundred bad requests for Spark on a Ray cluster are refused before anything starts or ends.

No test here may start a process (``tests/conftest.py``). Neither Ray nor RayDP need be installed.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.clusters.ray.cluster import AttachedRayCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.errors import RequestError
from hyperplane.spark import init_spark

COUNTS = (0, -1, 1.5, "two", None, True, [2], {}, float("nan"), float("inf"), b"2", 10**9)
MEMORY = (
    *(0, -1, 1, 10**6, 2**70, 1.5, float("nan"), None, True, [1], {}, b"1g"),
    *("", "g", "1", "511m", "1.5g", "-1g", "1 gigabyte", "1gg", "4x", "2XB", "9" * 30 + "t"),
)
NAMES = ("", "   ", "a\nb", "a\tb", "\0", "\x1b[31m", None, 7, True, ["a"], {}, b"a", 1.5, ())
PROPERTIES = (
    *(7, "spark.x=1", [], (), {"spark.x"}, True, b"spark.x"),
    *({"x": 1}, {"spark.x": None}, {"spark.x": [1]}, {"spark.x": {}}, {7: 1}, {None: 1}),
    *({"": 1}, {"spark": 1}, {"spark.": 1}, {"spark.x ": 1}, {"spark.x": "a\nb"}),
    *({"spark.x": object()}, {"spark.x=y": 1}, {"spark.x": b"1"}),
)


def make_cluster(engine: str) -> AttachedRayCluster:
    client = {"spark_conf": "none"}
    record = ClusterRecord("x", engine, "127.0.0.1:1", "", 0, 0.0, 1, 1, 1, client=client)
    return AttachedRayCluster(record)


CLUSTERS = (
    *("ray", "auto", "", 7, True, False, [], {}, object(), AttachedRayCluster),
    *map(make_cluster, ("ray:ssh", "ray:slurm", "ray:other")),
)
#: Arguments and their invalid values.
INVALID: dict[str, tuple[Any, ...]] = {
    "app_name": NAMES,
    "num_executors": COUNTS,
    "executor_cores": COUNTS,
    "executor_memory": MEMORY,
    "configs": PROPERTIES,
    "ray_cluster": CLUSTERS,
}
#: Requests for which two nodes, with 2 cores and 3 GB each, have no room.
TOO_LARGE: tuple[dict[str, Any], ...] = (
    *({"num_executors": count} for count in (5, 6, 7, 100, 10**6)),
    *({"executor_cores": cores, "num_executors": 1} for cores in (3, 4, 64, 10_000)),
    *({"executor_memory": memory, "num_executors": 1} for memory in ("3g", "4096g", 3 * 10**9)),
    {"executor_cores": 2, "num_executors": 3},
    {"executor_memory": "2g", "num_executors": 3},
)
CASES = [(name, value) for name, values in INVALID.items() for value in values]


@pytest.fixture(autouse=True)
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RayDP seem installed and the cluster running; a start and an end are errors."""

    def change(*arguments: Any) -> Any:
        raise AssertionError("something was started or ended")

    node = {"Alive": True, "Resources": {"CPU": 2.0, "memory": 3_000_000_000.0}}
    ray = SimpleNamespace(nodes=lambda: [node, node, {"Alive": False, "Resources": {"CPU": 99}}])
    module = "hyperplane.clusters.spark.on_ray"
    monkeypatch.setattr(f"{module}.find_problem", lambda: "")
    monkeypatch.setattr(f"{module}._connect", lambda cluster: ray)
    monkeypatch.setattr(f"{module}.start_session", change)
    monkeypatch.setattr(f"{module}.end_session", change)


def test_there_are_a_hundred_bad_requests() -> None:
    assert len(CASES) + len(TOO_LARGE) >= 100


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_bad_request_is_refused_with_the_given_and_the_allowed(name: str, value: Any) -> None:
    arguments = {"ray_cluster": make_cluster("ray:local"), name: value}
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark(**arguments)
    [fault] = caught.value.faults
    assert fault.where.partition("[")[0] == name
    assert fault.asked
    assert fault.allowed
    assert f"{fault.where} = {fault.asked}: expected {fault.allowed}" in str(caught.value)


@pytest.mark.parametrize("size", TOO_LARGE, ids=str)
def test_executors_without_room_are_refused_with_the_resources_of_the_nodes(
    size: dict[str, Any],
) -> None:
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark(**size, ray_cluster=make_cluster("ray:local"))
    [fault] = caught.value.faults
    assert (fault.where, fault.asked) == ("num_executors", str(size["num_executors"]))
    assert fault.allowed.endswith("nodes of Ray: 2 cores and 3 GB, 2 cores and 3 GB")


@pytest.mark.parametrize("names", list(itertools.combinations(INVALID, 2)), ids="-".join)
def test_all_faults_of_a_request_are_reported_together(names: tuple[str, str]) -> None:
    arguments = {name: INVALID[name][0] for name in names}
    with pytest.raises(RequestError, match="nothing was started") as caught:
        init_spark(**{"ray_cluster": make_cluster("ray:local"), **arguments})
    assert [fault.where for fault in caught.value.faults] == list(names)
