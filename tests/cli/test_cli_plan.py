"""``hyperplane plan``, and the options of every request."""

from __future__ import annotations

from typing import Any, ClassVar

import dask.config
import pytest
from terminal import Run

import hyperplane
from hyperplane.cli.options import OPTIONS
from hyperplane.clusters import registry
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.clusters.engine import Availability
from hyperplane.platforms.local import machine
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest

#: Other options on the command line, or unused by every built-in engine.
NOT_OFFERED = {
    *("local_mode", "logging", "memory", "scheduler_deploy_mode"),
    *("node_selector", "scheduler_cpu", "scheduler_ram", "worker_spec_yaml"),
}


class AbsentEngine(LocalEngine):
    """An engine that cannot be used."""

    name: ClassVar[str] = "absent"

    def available(self) -> Availability:
        return Availability(False, "log in first")


class PaperEngine(LocalEngine):
    """An engine that starts clusters from a script."""

    name: ClassVar[str] = "paper"

    def render(self, plan: ClusterPlan) -> str:
        return f"#!/bin/sh\nstart [{plan.dask_workers}] workers of {plan.name}\n"


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENGINES.built_in, "paper", f"{__name__}:PaperEngine")


@pytest.fixture(autouse=True)
def _steady_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory changes between calls, and the plan with it."""
    monkeypatch.setattr(machine, "free_ram", lambda: 16 * 10**9)


def test_option_names_are_those_of_the_arguments() -> None:
    offered = {name for name in OPTIONS if not name.startswith("memory_")}
    assert offered == set(ClusterRequest.model_fields) - NOT_OFFERED
    thresholds = {name.removeprefix("memory_") for name in OPTIONS if name.startswith("memory_")}
    assert thresholds == set(hyperplane.MemoryPolicy().to_dict())


def test_the_checks_themselves_have_no_option_to_skip_them(run: Run) -> None:
    answer = run("preflight", "--no-preflight")
    assert answer.code == 2
    assert "No such option" in answer.err
    assert run("plan", "--no-preflight").code == 0


def test_without_options_the_default_plan_is_shown(run: Run) -> None:
    ours, theirs = run("plan", "--json").json, hyperplane.plan_cluster().to_dict()
    assert ours.pop("name") != theirs.pop("name")
    assert ours == theirs


def test_options_are_passed_as_arguments_of_the_plan(run: Run) -> None:
    answer = run(
        *("plan", "--engine", "local", "--num-workers", "3", "--nprocs", "5", "--nthreads", "3"),
        *("--ram-gb-per-proc", "2.4", "--cores-per-worker", "15", "--local-fit", "exact"),
        *("--name", "three", "--json"),
    )
    assert answer.code == 0
    plan = hyperplane.plan_cluster(
        num_workers=3,
        nprocs=5,
        nthreads=3,
        ram_gb_per_proc=2.4,
        cores_per_worker=15,
        engine="local",
        local_fit="exact",
        name="three",
    )
    assert answer.json == plan.to_dict()
    assert answer.json["dask_workers"] == 15
    assert answer.json["pool"]["name"] == "16_16"


def test_an_engine_that_cannot_be_used_is_planned_with_the_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ENGINES.built_in, "absent", f"{__name__}:AbsentEngine")
    reason = "engine absent cannot be used here: log in first"
    answer = run("plan", "--engine", "absent")
    assert (answer.code, answer.err) == (0, f"{reason}\n")
    document = run("plan", "--engine", "absent", "--json")
    assert (document.json["unavailable"], document.err) == (reason, "")
    assert "unavailable" not in run("plan", "--engine", "local", "--json").json


def test_memory_and_durations_may_have_units(run: Run) -> None:
    answer = run(
        *("plan", "--nprocs=1", "--ram-gb-per-proc=2400MB", "--local-fit=exact"),
        *("--timeout=2 minutes", "--idle-timeout=1h", "--json"),
    )
    assert answer.code == 0
    assert answer.json["worker"]["ram_gb_per_proc"] == 2.4


def test_a_pool_without_sizes_determines_the_layout(run: Run) -> None:
    answer = run("plan", "--pool", "hyperplane-med", "--local-fit", "exact", "--json")
    assert answer.json["worker"] == hyperplane.fit_workers("16_16").to_dict()


def test_omitted_thresholds_are_the_configured_ones(run: Run) -> None:
    with dask.config.set({"hyperplane.memory.target": 0.3}):
        answer = run("plan", "--memory-pause=0.85", "--memory-terminate=never", "--json")
    expected = {"target": 0.3, "spill": 0.7, "pause": 0.85, "terminate": False}
    assert answer.json["memory"] == expected


@pytest.mark.parametrize("value", ["2", "-0.1", "often", "nan"])
def test_an_invalid_threshold_is_reported_with_the_other_faults(value: str, run: Run) -> None:
    answer = run("plan", f"--memory-spill={value}", "--nprocs=0")
    assert answer.code == 2
    assert "2 faults" in answer.err
    assert "memory.spill" in answer.err
    assert "a fraction in (0, 1]" in answer.err
    assert "nprocs = 0" in answer.err


def test_the_library_refuses_all_zeros_together(run: Run) -> None:
    zeros = ("num-workers", "nprocs", "nthreads", "ram-gb-per-proc", "cores-per-worker", "timeout")
    answer = run("plan", *(f"--{name}=0" for name in zeros), "--name=No Name", "--json")
    assert answer.code == 2
    assert {fault["where"] for fault in answer.json["faults"]} == {
        *(name.replace("-", "_") for name in zeros),
        "name",
    }


def test_the_table_shows_every_row_and_the_whole_name(run: Run) -> None:
    answer = run("plan", "--num-workers=3", "--nprocs=5", "--nthreads=3", "--ram-gb-per-proc=2.4")
    assert answer.code == 0
    lines = answer.out.splitlines()
    label, name = lines[0].split()
    assert label == "cluster"
    assert name.startswith("dask-cluster-")
    assert len(name) == len("dask-cluster-") + 36
    assert "asked 3 nodes, each 5 processes x 3 threads x 2.4 GB" in answer.text
    assert "memory policy target 60%, spill 70%, pause 80%, terminate 95%" in answer.text
    assert max(map(len, lines)) <= 80


def test_the_local_engine_has_nothing_to_render(run: Run) -> None:
    answer = run("plan", "--engine=local", "--render")
    assert answer.code == 2
    assert answer.out == ""
    assert "engine local has nothing to render" in answer.err


@pytest.mark.usefixtures("paper")
def test_render_prints_only_the_script_of_the_engine(run: Run) -> None:
    arguments = ("--engine=paper", "--nprocs=1", "--name=mine", "--local-fit=exact", "--render")
    answer = run("plan", *arguments)
    assert answer.code == 0
    assert answer.out == "#!/bin/sh\nstart [2] workers of mine\n"


@pytest.mark.usefixtures("paper")
def test_render_with_json_adds_the_script_to_the_plan(run: Run) -> None:
    arguments = ("--engine=paper", "--nprocs=1", "--name=mine", "--local-fit=exact", "--render")
    document: dict[str, Any] = run("plan", *arguments, "--json").json
    assert document["rendered"] == "#!/bin/sh\nstart [2] workers of mine\n"
    assert document["dask_workers"] == 2


def test_engine_options_are_parsed_as_yaml(run: Run) -> None:
    answer = run("plan", "--engine-options", "single_process_cores=2", "--engine-options", "fit=up")
    assert answer.code == 2
    assert "engine_options.fit = 'up': expected one of 'fit' or 'exact'" in answer.err
    assert "single_process_cores" not in answer.err
    for text in ("fits=fit", "fit"):
        assert run("plan", "--engine-options", text).code == 2
    wrong = ("--engine-options", "fit", "--engine-options", "a b", "--timeout", "soon")
    assert "3 faults in the request, nothing was started" in run("plan", *wrong).err
    assert run("plan", "--engine-options", "fit=exact").code == 0
