"""Values that the caller passes are used; omitted ones are chosen for the machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hyperplane
from hyperplane.cluster import initialize_cluster
from hyperplane.clusters import call_arguments
from hyperplane.clusters.dask.local.engine import LocalEngine
from hyperplane.core.units import gb_to_bytes
from hyperplane.errors import DoesNotFit, RequestError, UnknownArgument
from hyperplane.sizing.machine_fit import MIN_RAM, fit_machine
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import OMITTED, ClusterArguments, ClusterRequest
from hyperplane.spec.worker import WorkerSpec


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the cores and the free GB of this machine."""

    def set_(cores: int, free_gb: float) -> None:
        capacity = MachineCapacity(cores, gb_to_bytes(free_gb))
        monkeypatch.setattr(LocalEngine, "capacity", lambda self, settings: capacity)

    set_(2, 22.5)
    return set_


class NotStarted(Exception):
    """Raised when a call would start its plan."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[ClusterPlan]:
    """The plans that initialize_cluster would start."""
    plans: list[ClusterPlan] = []

    def keep(plan: ClusterPlan, *others: object) -> None:
        plans.append(plan)
        raise NotStarted

    monkeypatch.setattr("hyperplane.clusters.start_lines.print_start_lines", keep)
    monkeypatch.setattr("hyperplane.cluster.start", keep)
    return plans


def _initialize(planned: list[ClusterPlan], *args: Any, **arguments: Any) -> ClusterPlan:
    with pytest.raises(NotStarted):
        initialize_cluster(*args, **arguments)
    return planned.pop()


def _shape(plan: ClusterPlan) -> tuple[int, int, float]:
    return plan.dask_workers, plan.worker.nthreads, plan.worker.ram_gb_per_proc


ALL_15 = {"num_workers": 2, "nprocs": 15, "nthreads": 1, "ram_gb_per_proc": 0.7}


class TestOnTwoCores:
    @pytest.mark.usefixtures("machine")
    @pytest.mark.parametrize(
        ("arguments", "shape"),
        [
            ({}, (1, 2, 21)),
            ({"num_workers": 3}, (1, 2, 22.5)),
            ({"nthreads": 1}, (2, 1, 10.5)),
            ({"nprocs": 15}, (2, 1, 10.5)),
            ({"nprocs": 3, "nthreads": 1}, (2, 1, 2.1)),
            ({"nprocs": 3}, (2, 1, 2.1)),
            ({"num_workers": 1, "nprocs": 3, "nthreads": 1, "ram_gb_per_proc": 1}, (2, 1, 1)),
            ({"num_workers": 3, "nprocs": 5, "nthreads": 3, "ram_gb_per_proc": 2.4}, (1, 2, 2.4)),
            ({"num_workers": 1, "nprocs": 1, "nthreads": 2}, (1, 2, 0.7)),
            ({"num_workers": 2, "nprocs": 1, "nthreads": 1}, (2, 1, 0.7)),
            # Each process keeps the given memory, unless one process exceeds the machine.
            ({"num_workers": 1, "nprocs": 2, "ram_gb_per_proc": 16}, (1, 1, 16)),
            ({"num_workers": 1, "nprocs": 2, "nthreads": 1, "ram_gb_per_proc": 10}, (2, 1, 10)),
            ({"num_workers": 1, "nprocs": 2, "ram_gb_per_proc": 90}, (1, 1, 22.5)),
            ({"ram_gb_per_proc": 12}, (1, 2, 12)),
            ({"ram_gb_per_proc": 2.4}, (2, 1, 2.4)),
            ({"cores_per_worker": 16}, (1, 2, 21)),
            ({"cores_per_worker": 16, "nthreads": 1}, (2, 1, 10.5)),
            (ALL_15, (2, 1, 0.7)),
        ],
    )
    def test_given_values_are_reduced_only_to_the_machine(self, planned, arguments, shape):
        assert _shape(hyperplane.plan_cluster(**arguments)) == shape
        assert _shape(_initialize(planned, **arguments)) == shape

    def test_the_note_mentions_memory_that_ram_gb_per_proc_leaves_unused(self, machine):
        machine(2, 22.5)
        left = "; without ram_gb_per_proc each process would have more memory"
        note = hyperplane.plan_cluster(nprocs=3, ram_gb_per_proc=2.4).fit_note
        assert note.endswith(left)
        assert left not in hyperplane.plan_cluster(nprocs=3).fit_note

    def test_an_argument_equal_to_its_default_counts_as_given(self, machine, planned):
        assert _shape(_initialize(planned, 2, False, None, 1200, 1)) == (2, 1, 10.5)


def test_a_given_default_takes_precedence_over_pool_and_advice(machine, planned):
    machine(64, 500)
    assert _initialize(planned, 1, pool="16_16", nthreads=1).worker.nthreads == 1
    advice = hyperplane.size_cluster("10GB", "groupby")
    assert advice.worker.nthreads == 3
    plan = _initialize(planned, advice, nthreads=1)
    assert (plan.worker.nprocs, plan.worker.nthreads) == (15, 1)


def test_a_given_default_takes_precedence_over_the_pipeline(machine, planned, monkeypatch):
    step = {"num_workers": 5, "nprocs": 2, "nthreads": 2, "logging": "verbose"}
    monkeypatch.setenv("HYPERPLANE_CLUSTER", json.dumps(step))
    plan = _initialize(planned, num_workers=2, nthreads=1, logging="quiet")
    assert plan.request.num_workers == 2
    assert (plan.request.nprocs, plan.request.nthreads) == (2, 1)
    assert plan.request.logging == "quiet"
    assert _initialize(planned).request.num_workers == 5


def test_advice_takes_precedence_over_the_pipeline(machine, planned, monkeypatch):
    monkeypatch.setenv("HYPERPLANE_CLUSTER", '{"num_workers": 5, "nprocs": 2, "timeout": 7}')
    advice = hyperplane.size_cluster("100GB", "groupby")
    request = _initialize(planned, advice).request
    assert (request.num_workers, request.nprocs, request.timeout) == (8, 5, 7)


@pytest.mark.parametrize("call", ["initialize_cluster", "plan_cluster", "start"])
def test_num_workers_overrides_that_of_advice(machine, planned, call):
    machine(64, 5000)
    advice = hyperplane.size_cluster("100GB", "groupby")
    if call == "plan_cluster":
        plan = hyperplane.plan_cluster(advice, num_workers=2)
    elif call == "start":
        with pytest.raises(NotStarted):
            advice.start(num_workers=2)
        plan = planned.pop()
    else:
        plan = _initialize(planned, advice, num_workers=2)
    assert (plan.nodes, plan.pool.name, plan.worker) == (2, "16_128", advice.worker)


@pytest.mark.parametrize(
    ("arguments", "worker"),
    [
        ({"nprocs": 15}, (15, 1, 7.333)),
        ({"nthreads": 5}, (3, 5, 36.666)),
        ({"ram_gb_per_proc": 50}, (2, 7, 50)),
        ({"cores_per_worker": 4}, (2, 2, 55)),
        ({"nprocs": 2, "nthreads": 2, "ram_gb_per_proc": 1}, (2, 2, 1)),
    ],
)
def test_the_pool_of_advice_completes_a_given_layout(machine, arguments, worker):
    machine(512, 9000)
    plan = hyperplane.plan_cluster(hyperplane.size_cluster("100GB", "groupby"), **arguments)
    nprocs, nthreads, ram = worker
    assert (plan.nodes, plan.pool.name) == (8, "16_128")
    assert (plan.worker.nprocs, plan.worker.nthreads) == (nprocs, nthreads)
    assert plan.worker.ram_gb_per_proc == pytest.approx(ram)


def test_the_layout_of_advice_is_reduced_to_the_machine(machine):
    """The layout 5 x 3 comes from the pool, not from the caller."""
    machine(8, 20)
    plan = hyperplane.plan_cluster(hyperplane.size_cluster("100GB", "groupby"))
    assert (plan.dask_workers, plan.worker.nthreads) == (4, 2)


def test_arguments_beside_a_plan_are_refused_unless_they_are_defaults(machine, planned):
    plan = hyperplane.plan_cluster(num_workers=1)
    assert _initialize(planned, plan, logging="quiet", nthreads=1) is plan
    for arguments in ({"num_workers": 2}, {"nthreads": 2}, {"ram_gb_proc": 2}):
        with pytest.raises(RequestError, match="no arguments besides the plan"):
            initialize_cluster(plan, **arguments)
    with pytest.raises(UnknownArgument, match=r"nthreds=2: .*did you mean nthreads\?"):
        initialize_cluster(plan, nthreds=2)


def test_invalid_arguments_with_replace_close_no_cluster(machine, planned, monkeypatch):
    closed: list[Any] = []
    target = "hyperplane.clusters.replacement.close_previous_clusters"
    monkeypatch.setattr(target, lambda *names: closed.append(1) or [])
    plan = hyperplane.plan_cluster(num_workers=1)
    for invalid in ({"nproc": 1}, {"pool": "16_17"}, {"num_workers": 0}, {"nprocs": "x"}):
        with pytest.raises(RequestError, match="nothing was started"):
            initialize_cluster(replace=True, **invalid)
    with pytest.raises(RequestError, match="no arguments besides the plan"):
        initialize_cluster(plan, replace=True, nthreads=2)
    assert closed == []
    _initialize(planned, plan, replace=True)
    _initialize(planned, replace=True, pool="16_16")
    assert closed == [1, 1]


def test_the_signature_shows_the_documented_defaults():
    import inspect

    parameters = inspect.signature(initialize_cluster).parameters
    assert parameters["nthreads"].default == 1
    assert parameters["nprocs"].default == 15
    assert list(parameters)[:6] == [
        *("num_workers", "local_mode", "worker_spec_yaml", "timeout", "nthreads", "nprocs")
    ]


@pytest.mark.parametrize("name", ["pool", "memory", "name", "scheduler_ram", "worker_spec_yaml"])
def test_none_counts_as_omitted(machine, planned, name):
    plan = _initialize(planned, **{name: None})
    assert name not in plan.request.model_fields_set


def test_omitted_thresholds_are_the_configured_ones(machine):
    import dask.config

    with dask.config.set({"hyperplane.memory.target": 0.5}):
        policy = hyperplane.plan_cluster(memory={"pause": 0.85}).options.memory
    assert policy == hyperplane.MemoryPolicy(target=0.5, pause=0.85)


NAMES = ("num_workers", "nprocs", "nthreads", "ram_gb_per_proc", "cores_per_worker")


@given(
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 60_000),
    st.sets(st.sampled_from(NAMES)),
    st.builds(MachineCapacity, st.integers(1, 128), st.integers(10**6, 10**12)),
)
@example(1, 8, 9, 225, set(), MachineCapacity(66, 1_800_000_000))
def test_of_what_is_given_only_the_machine_takes_away(nodes, nprocs, nthreads, mb, names, machine):
    asked = WorkerSpec(nprocs, nthreads, mb * 10**6, nprocs * nthreads)
    try:
        found = fit_machine(asked, nodes, machine, explicit=names)
    except DoesNotFit:
        assert machine.ram < min(MIN_RAM, asked.ram_per_proc)
        return
    worker, processes = found.worker, found.nodes * found.worker.nprocs
    ram = processes * worker.ram_per_proc
    assert processes * worker.nthreads <= min(machine.cores, nodes * asked.total_threads)
    assert ram <= min(machine.ram, nodes * asked.total_ram)
    assert processes <= nodes * nprocs
    if "nthreads" in names:
        assert worker.nthreads == min(nthreads, machine.cores)
    if "nprocs" in names and "nthreads" not in names and "ram_gb_per_proc" not in names:
        memory = min(machine.ram, nodes * asked.total_ram)
        room = memory // min(MIN_RAM, asked.ram_per_proc)
        assert processes == min(
            nodes * nprocs,
            machine.cores
            // (worker.nthreads if nodes * asked.total_threads <= machine.cores else 1),
            room,
        )
    if "ram_gb_per_proc" in names:
        assert worker.ram_per_proc == min(asked.ram_per_proc, machine.ram)
        if not {"nprocs", "nthreads"} & names:
            assert processes >= min(nodes * nprocs, machine.cores, ram // asked.ram_per_proc)


def test_omitted_arguments_are_marked():
    @call_arguments.mark_omitted
    def function(num_workers: int = 2, flag: bool = False, pool: str | None = None, **others: Any):
        return num_workers, flag, pool, others

    assert function() == (OMITTED, OMITTED, OMITTED, {})
    assert function(2, flag=False, pool=None, more=1) == (2, False, OMITTED, {"more": 1})
    with pytest.raises(TypeError):
        function(1, False, None, 3)
    with pytest.raises(TypeError):
        function(1, num_workers=2)


@pytest.mark.parametrize("function", [hyperplane.plan_cluster, initialize_cluster])
def test_every_parameter_reaches_the_request(monkeypatch, function):
    received: list[ClusterArguments] = []

    def keep(arguments: ClusterArguments, *others: object) -> None:
        received.append(arguments)
        raise NotStarted

    monkeypatch.setattr("hyperplane.clusters.planning.read_request", keep)
    names = [*ClusterRequest.model_fields, "ram_gb_proc"]
    passed = {name: object() for name in names}
    with pytest.raises(NotStarted):
        function(**passed)
    assert received[0].given == passed
    assert received[0].unknown == {}
