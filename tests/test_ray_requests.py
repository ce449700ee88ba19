"""A hundred bad requests for Ray clusters are refused before anything starts.

No test here may start a process (``tests/conftest.py``). Ray need not be installed.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from typing import Any

import dask.config
import pytest
import yaml

import hyperplane
from hyperplane import ray_common as rc
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.clusters.ray.ssh.engine import SshRayEngine
from hyperplane.errors import RequestError, UnknownPool
from hyperplane.jobs import Pipeline, Step, submit
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.job_control import new_job
from hyperplane.platforms.local import gpus as local_gpus

COUNTS = (-1, 1.5, "two", None, True, [2], float("nan"), b"2", 10**9)
SIZES = (0, -1, "x", None, True, float("nan"), float("inf"), [1], "2XB")
#: Arguments of ``initialize_ray_cluster`` and their invalid values.
DOCUMENTED = {
    "num_workers": COUNTS,
    "cpu_core_per_worker": (0, *COUNTS),
    "ram_gb_per_worker": SIZES,
    "n_gpus": (1, *COUNTS),
    "use_existing": ("no", 1, None, []),
    "timeout": (0, -1, "soon", None, True, float("nan"), [1]),
}
#: Arguments of ``initialize_cluster`` with ``framework="ray"``, and their invalid values.
SHARED: dict[str, tuple[Any, ...]] = {
    "num_workers": (0, "x"),
    "nprocs": (0, 1.5),
    "nthreads": (0, None),
    "ram_gb_per_proc": (-1, "much"),
    "ngpus": (1,),
    "engine": ("gateway", "ray:gateway", "cuda", "lokal", 7),
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
    """Let Ray seem installed, this machine have no GPU, and a start be an error."""

    def start(self: LocalRayEngine, *arguments: Any) -> Any:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr(LocalRayEngine, "start", start)
    monkeypatch.setattr(LocalRayEngine, "start_with_lines", start)
    monkeypatch.setattr(LocalRayEngine, "available", lambda self: Availability(True, "a test"))
    monkeypatch.setattr(local_gpus, "detect_gpus", lambda: local_gpus.Gpus(0, (), None))


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


@pytest.mark.parametrize("section", ["ssh", "ray_ssh"])
def test_a_fault_of_hosts_names_the_section_that_has_them(section: str) -> None:
    where = f"hyperplane.engines.{section}.hosts"
    settings = {"hyperplane.engines.auto": ["ssh"], where: ["one"]}
    with dask.config.set(settings), pytest.raises(RequestError, match="nothing was") as caught:
        rc.initialize_ray_cluster(3)
    [fault] = caught.value.faults
    assert (fault.where, fault.asked) == ("num_workers", "3")
    assert fault.allowed == f"at most 1, the number of {where}"
    settings = {"hyperplane.engines.auto": ["ssh"], where: []}
    with dask.config.set(settings), pytest.raises(RequestError) as caught:
        rc.initialize_ray_cluster(3)
    assert [fault.where for fault in caught.value.faults] == [where]


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


def _step(gang: int | None = None, **cluster: Any) -> Pipeline:
    cluster = {"framework": "ray", **cluster}
    step = Step(name="fit", kind="command", argv=("true",), cluster=cluster, gang=gang)
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
def test_a_gang_on_several_machines_has_no_ray_cluster(runner: str) -> None:
    options = {"image": "example/image:1"} if runner == "kubernetes" else {}
    with pytest.raises(RequestError) as caught:
        submit(_step(gang=2), runner=runner, runner_options=options)
    [fault] = [each for each in caught.value.faults if "cluster" in each.where]
    assert fault.where == "step 'fit': cluster.framework"
    expected = (
        "dask in a step with a gang: the runner {} may start its processes on several machines"
    )
    assert fault.allowed == expected.format(runner)
    with pytest.raises(RequestError) as caught:
        render(runner, new_job(_step(gang=2)), **options)
    assert "steps[0].cluster.framework" in [each.where for each in caught.value.faults]


@pytest.mark.parametrize(
    ("cluster", "where"),
    [
        (
            {"engine": "local", "engine_options": {"dashbord": True}},
            "cluster.engine_options.dashbord",
        ),
        ({"engine": "gateway"}, "cluster.engine"),
        ({"framework": "rayy"}, "cluster.framework"),
        ({"framework": "spark", "engine": "kubernetes"}, "cluster.engine"),
        ({"framework": "spark", "ngpus": 1}, "cluster.ngpus"),
        ({"ngpus": 3, "nprocs": 2}, "cluster.ngpus"),
    ],
)
def test_a_batch_job_with_a_faulty_cluster_is_not_submitted(
    cluster: dict[str, Any], where: str
) -> None:
    with pytest.raises(RequestError) as caught:
        submit(_step(**cluster), runner="slurm")
    assert f"step 'fit': {where}" in [each.where for each in caught.value.faults]
    job = new_job(_step(**cluster), runner="slurm", check_machine=False)
    with pytest.raises(RequestError) as caught:
        render("slurm", job)
    assert f"steps[0].{where}" in [each.where for each in caught.value.faults]


def test_rendered_jobs_start_the_cluster_before_the_program() -> None:
    [script] = [each for each in render("slurm", new_job(_step())) if each.kind == "step"]
    words = script.text.split()
    program = next(word for word in words if word.endswith("execution/cluster_program.py"))
    at = words.index(program)
    assert [word for word in words[:at] if word != "\\"][-1] == "-P"
    assert words[-1] == "true"
    [manifest] = render("kubernetes", new_job(_step()), image="example/image:1")
    pod = yaml.safe_load(manifest.text)["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    module = "hyperplane.jobs.execution.cluster_program"
    assert command[:4] == ["python", "-P", "-m", module]
    assert importlib.util.find_spec(module) is not None


def test_a_state_machine_has_no_step_with_a_ray_cluster() -> None:
    with pytest.raises(RequestError, match=r"steps\[0\].cluster.framework = 'ray': expected dask"):
        _step().to_asl()
