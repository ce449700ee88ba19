"""A hundred bad requests for Ray clusters are refused before anything starts.

No test here may start a process (``tests/conftest.py``). Ray need not be installed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import dask.config
import pytest

import hyperplane
from hyperplane import ray_common as rc
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.clusters.ray.ssh.engine import SshRayEngine
from hyperplane.errors import RequestError, UnknownPool
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.job_control import new_job

COUNTS = (-1, 1.5, "two", None, True, [2], float("nan"), b"2", 10**9)
SIZES = (0, -1, "x", None, True, float("nan"), float("inf"), [1], "2XB")
#: Arguments of ``initialize_ray_cluster`` and their invalid values.
DOCUMENTED = {
    "num_workers": COUNTS,
    "cpu_core_per_worker": (0, *COUNTS),
    "ram_gb_per_worker": SIZES,
    "n_gpus": (1, *COUNTS),
    "use_existing": ("no", 1, None, []),
}
#: Arguments of ``initialize_cluster`` with ``framework="ray"``, and their invalid values.
SHARED: dict[str, tuple[Any, ...]] = {
    "num_workers": (0, "x"),
    "nprocs": (0, 1.5),
    "nthreads": (0, None),
    "ram_gb_per_proc": (-1, "much"),
    "ngpus": (1,),
    "engine": ("gateway", "ray:gateway", "kubernetes", "lokal", 7),
    "engine_options": ({"dashbord": True}, {"dashboard": "maybe"}, {"reserve_fraction": 2}, "x"),
    "pool": ("16_17", 7),
    "timeout": ("soon", 0),
    "idle_timeout": (0, "later"),
    "dashboard_port": ("http", 70_000),
    "name": ("A b", "-a", ""),
    "local_fit": ("loose",),
    "tuning": (7,),
    "frame_work": ("ray",),
}


def _cases() -> Iterator[tuple[Any, dict[str, Any]]]:
    for name, values in DOCUMENTED.items():
        yield from ((rc.initialize_ray_cluster, {name: value}) for value in values)
    for name, values in SHARED.items():
        for value in values:
            yield hyperplane.initialize_cluster, {"framework": "ray", name: value}
    for value in ("rayy", "", 7, ["ray"]):
        yield hyperplane.initialize_cluster, {"framework": value}
    yield from ((rc.quickstart_ray, {"num_workers": each, "size": "8_8"}) for each in (0, *COUNTS))
    for size in ("hyperplane-huge", "", 7, None, b"8_8"):
        yield rc.quickstart_ray, {"num_workers": 1, "size": size}
    yield from ((rc.get_ray_cluster, {"extra_workers": each}) for each in COUNTS)
    yield from ((rc.stop_ray_cluster, {"ray_cluster": each}) for each in (None, "x", 7))


CASES = list(_cases())


@pytest.fixture(autouse=True)
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ray seem installed, and a start be an error."""

    def start(self: LocalRayEngine, *arguments: Any) -> Any:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr(LocalRayEngine, "start", start)
    monkeypatch.setattr(LocalRayEngine, "start_with_lines", start)
    monkeypatch.setattr(LocalRayEngine, "available", lambda self: Availability(True, "a test"))


def test_worker_nodes_are_on_hosts_if_the_configuration_prefers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def start(self: SshRayEngine, plan: Any, announce: Any) -> Any:
        seen.append(plan)
        raise hyperplane.EngineError("test", "nothing is started here")

    monkeypatch.setattr(SshRayEngine, "available", lambda self: Availability(True, "a test"))
    monkeypatch.setattr(SshRayEngine, "start_with_lines", start)
    settings = {"auto": ["ssh", "local"], "ssh.hosts": ["one", "two"]}
    with (
        dask.config.set({f"hyperplane.engines.{key}": value for key, value in settings.items()}),
        pytest.raises(hyperplane.EngineError, match="nothing is started"),
    ):
        rc.initialize_ray_cluster(2, 15, 12)
    [plan] = seen
    assert (plan.engine, plan.nodes, plan.worker.nthreads) == ("ray:ssh", 2, 15)
    assert plan.settings.hosts == ("one", "two")


def test_there_are_a_hundred_bad_requests() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_a_bad_request_is_refused_by_the_name_of_its_argument(
    function: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as caught:
        function(**arguments)
    name = next(name for name in arguments if name != "framework" or len(arguments) == 1)
    if function is rc.quickstart_ray and arguments["size"] != "8_8":
        name = "size"
    places = {fault.where.partition(".")[0] for fault in caught.value.faults}
    assert name in places, caught.value
    for fault in caught.value.faults:
        assert fault.allowed


@pytest.mark.parametrize("names", list(itertools.combinations(sorted(DOCUMENTED), 2)), ids="-".join)
def test_all_faults_of_a_request_are_reported_together(names: tuple[str, str]) -> None:
    arguments = {name: DOCUMENTED[name][0] for name in names}
    with pytest.raises(RequestError, match="nothing was started") as caught:
        rc.initialize_ray_cluster(**arguments)
    assert {fault.where for fault in caught.value.faults} == set(names)


def test_all_faults_of_a_quick_start_are_reported_together() -> None:
    with pytest.raises(UnknownPool, match="nothing was started") as caught:
        rc.quickstart_ray(0, "hyperplane-mad")
    assert [fault.where for fault in caught.value.faults] == ["num_workers", "size"]
    assert "did you mean hyperplane-med" in str(caught.value)


def _step(**cluster: Any) -> Pipeline:
    step = Step(name="fit", kind="command", argv=("true",), cluster={"framework": "ray", **cluster})
    return Pipeline.from_steps("test", [step])


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        ({"framework": "rayy"}, "step 'fit': cluster.framework"),
        ({"engine": "gateway"}, "step 'fit': cluster.engine"),
        ({"ngpus": 1}, "step 'fit': cluster.ngpus"),
        ({"pool": "16_17"}, "step 'fit': cluster.pool"),
        ({"engine_options": {"dashbord": True}}, "step 'fit': cluster.engine_options.dashbord"),
    ],
)
def test_a_bad_cluster_of_a_step_is_refused_at_submission(
    cluster: dict[str, Any], where: str
) -> None:
    with pytest.raises(RequestError) as caught:
        submit(_step(**cluster))
    assert [fault.where for fault in caught.value.faults] == [where]


def test_a_step_is_refused_at_submission_if_ray_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = 'Ray is not installed: pip install "hyperplane[ray]"'
    monkeypatch.setattr(LocalRayEngine, "available", lambda self: Availability(False, reason))
    for cluster in ({}, {"engine": "ray:local"}):
        with pytest.raises(RequestError, match=r"hyperplane\[ray\]") as caught:
            submit(_step(**cluster))
        assert [each.where for each in caught.value.faults] == ["step 'fit': cluster.framework"]


@pytest.mark.parametrize("runner", ["slurm", "kubernetes"])
def test_runners_and_exporters_that_cannot_start_a_cluster_refuse_the_step(runner: str) -> None:
    expected = "cannot start a cluster before the program of the step; use the local runner"
    with pytest.raises(RequestError) as caught:
        submit(_step(), runner=runner)
    [fault] = [each for each in caught.value.faults if "cluster" in each.where]
    assert fault.where == "step 'fit': cluster.framework"
    assert str(fault).endswith(f"dask, because the runner {runner} {expected}")
    options = {"image": "example/image:1"} if runner == "kubernetes" else {}
    with pytest.raises(RequestError) as caught:
        render(runner, new_job(_step()), **options)
    [fault] = caught.value.faults
    assert fault.where == "steps[0].cluster.framework"
    assert str(fault).endswith(f"dask, because {runner} {expected}")


def test_a_state_machine_has_no_step_with_a_ray_cluster() -> None:
    with pytest.raises(RequestError, match=r"steps\[0\].cluster.framework = 'ray': expected dask"):
        _step().to_asl()
