"""Memory that a step of a job needs for a collection: in a worker process, and on its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask

from hyperplane.cluster import plan_cluster
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import bytes_to_gb
from hyperplane.forecasts.evaluate import (
    SEEDS,
    SampledJob,
    evaluate_timelines,
    find_baseline,
    simulate_layout,
)
from hyperplane.forecasts.forecast import forecast_program
from hyperplane.forecasts.layout import (
    SHUFFLE_METHOD,
    Layout,
    LayoutTemplate,
    find_layout,
    find_shuffle_method,
)
from hyperplane.forecasts.layout_search import LayoutCandidate, MeasuredOption
from hyperplane.forecasts.layout_simulator import LayoutSimulator
from hyperplane.forecasts.program import load_collection
from hyperplane.forecasts.reasons import find_unequal
from hyperplane.forecasts.result import Forecast
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

#: Pool of a cluster for which the memory is asked.
AUTO = "auto"
#: Memory of a process that no simulation reaches, in bytes: how much it needs is asked.
_UNLIMITED = 10**13
#: Units of all simulations of a process, besides the first: those of a large graph differ less.
_UNITS = 5_000
#: Arguments of a cluster that matter only when it starts and runs.
_OF_RUNNING = (
    "budget", "dashboard_port", "idle_timeout", "local_fit", "logging", "name", "oom", "pool",
    "preflight", "stall_timeout", "timeout",
)  # fmt: skip


@dataclass(frozen=True)
class StepMemory:
    """Memory that a step needs.

    Parameters
    ----------
    high : int
        Bytes that a worker process needs at most.
    ram_per_proc : int
        Bytes of a worker process with which it does not spill; 0 for a step without a cluster.
    node : mapping of int to int
        Bytes of all processes of the step on its node by the number of its threads: each that was
        asked without a cluster, those of all processes with one. Empty if it was not asked, or if
        the cluster is on other machines.
    cores : int
        Cores that the step can use; 0 without a cluster: it can use all.
    runs : int
        Number of earlier runs that the figures are from; 0 if a sample has run.
    cost : float
        CPU seconds of the sample.
    """

    high: int
    ram_per_proc: int = 0
    node: Mapping[int, int] = field(default_factory=dict)
    cores: int = 0
    runs: int = 0
    cost: float = 0.0


def forecast_step(
    target: str, cluster: Mapping[str, Any] | None, threads: Sequence[int]
) -> StepMemory:
    """Forecast the memory of a step that computes a collection.

    Parameters
    ----------
    target : str
        The collection, ``program.py:totals``.
    cluster : mapping or None
        Arguments of the step's cluster; None if its own process computes.
    threads : sequence of int
        Numbers of threads that the step's process may have on its node, if it has no cluster; empty
        if the memory of the node is not needed.

    Raises
    ------
    RequestError
        If the program or the cluster has a fault, or the forecast is refused.
    """
    plan = _plan(cluster, threads)
    layout = find_layout(plan)
    # Some operations choose a method of shuffles when they are called.
    method = {SHUFFLE_METHOD: find_shuffle_method(layout)} if cluster is not None else {}
    with dask.config.set(method):
        collection = load_collection(target)
        program = Path(target.rpartition(":")[0]).name
        found = forecast_program(
            collection, plan, program, budget=0.05, confidence=0.9, history=True
        )
        is_whole = bool(threads) and (cluster is None or layout.is_local)
        if found.runs and found.resample is not None and is_whole:
            found = found.resample()  # records have the memory of one layout, and none of the node
    if found.job is None:
        return _use_runs(found, plan, layout)
    if found.job.refusals:
        raise _refusal(found.job.refusals)
    if cluster is None:
        return _measure_process(found.job, threads, found.cost)
    # The memory of processes whose pool is chosen is what is asked; others have a limit.
    limit = _UNLIMITED if cluster.get("pool") == AUTO else plan.worker.ram_per_proc
    return _measure_cluster(found.job, plan, limit if is_whole else 0, found.cost)


def _plan(cluster: Mapping[str, Any] | None, threads: Sequence[int]) -> ClusterPlan:
    """Return a plan with the processes and threads of a step, whatever this machine has."""
    if cluster is None:
        most = max(threads)
        return plan_cluster(
            1, nprocs=1, nthreads=most, cores_per_worker=most, engine="local", local_fit="exact"
        )
    arguments = {name: value for name, value in cluster.items() if name not in _OF_RUNNING}
    return plan_cluster(**arguments, local_fit="exact")


def _use_runs(found: Forecast, plan: ClusterPlan, layout: Layout) -> StepMemory:
    """Return the memory of a worker process as earlier runs had it."""
    if not found.runs:
        raise _refusal(found.reasons)
    usable = LayoutTemplate(plan, layout).usable
    return StepMemory(found.high, round(found.high / usable), runs=len(found.runs))


def _refusal(reasons: Sequence[str]) -> RequestError:
    return RequestError([Fault("forecast", "refused", "a job that can be forecast", reasons[0])])


def _measure_process(job: SampledJob, threads: Sequence[int], cost: float) -> StepMemory:
    """Return the memory of a step whose own process computes with so many threads.

    Unlike a worker process, it does not return freed memory to the system.
    """
    seeds = range(max(1, min(SEEDS, _UNITS // len(job.model.units))))
    node = {}
    for count in sorted(set(threads)):
        layout = Layout(1, count)
        found = evaluate_timelines(job, simulate_layout(job.model, layout, seeds), layout)
        unequal = find_unequal(job.kinds, job.model, found.typical)
        if unequal:
            raise _refusal(unequal)
        node[count] = round(found.interval.high)
    return StepMemory(max(node.values()), node=node, cost=cost)


def _measure_cluster(job: SampledJob, plan: ClusterPlan, limit: int, cost: float) -> StepMemory:
    """Return the memory of a step's cluster, and that of its node.

    ``limit`` is the memory that each process may have; 0 if that of the node is not asked.
    """
    simulator = LayoutSimulator(job, is_priced=False, is_local=True)
    worker, nodes = plan.worker, plan.nodes
    option = _simulate(simulator, nodes, worker.nprocs, worker.nthreads)
    processes = nodes * worker.nprocs
    threads = processes * worker.nthreads
    node = {}
    if limit:
        # All processes may be as much above their typical memory as the largest one.
        most = option.total + processes * (option.high - option.peak)
        workers = min(most, processes * option.high, processes * limit)
        node = {threads: round(workers + _measure_client(job))}
    cores = min(threads, simulator.bounds.width)
    return StepMemory(option.high, option.worker.ram_per_proc, node, cores, cost=cost)


def _measure_client(job: SampledJob) -> float:
    """Return the bytes of the process that starts a cluster, with the results that it gets."""
    baseline = find_baseline(job.model, Layout(1, 1))
    results = sum(job.model.units[number].output for number in job.model.targets)
    return baseline.empty + baseline.retained + results


def _simulate(simulator: LayoutSimulator, nodes: int, nprocs: int, nthreads: int) -> MeasuredOption:
    """Return the least memory of a layout with which the job does not spill."""
    cores = nprocs * nthreads
    ram_gb = bytes_to_gb(nprocs * _UNLIMITED)
    pool = PoolSpec(
        name="unlimited", cores=cores, ram_gb=ram_gb, allocatable_cores=cores,
        allocatable_ram_gb=ram_gb,
    )  # fmt: skip
    worker = WorkerSpec(nprocs, nthreads, _UNLIMITED, cores)
    option = simulator.simulate(LayoutCandidate(pool, nodes, worker, 0.0, 0.0, 0.0))
    if isinstance(option, str):
        raise _refusal([option])
    return option
