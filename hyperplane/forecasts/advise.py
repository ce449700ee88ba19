"""Advice on the size of a cluster from a forecast: all layouts simulated from one sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hyperplane import config
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.registry import ENGINES
from hyperplane.core.errors import DoesNotFit, Fault, RequestError
from hyperplane.core.units import bytes_to_gb, round_bytes
from hyperplane.forecasts.evaluate import SampledJob
from hyperplane.forecasts.layout_search import (
    LayoutCandidate,
    LayoutSearch,
    choose_option,
    list_node_counts,
    list_workers,
)
from hyperplane.forecasts.layout_simulator import LayoutSimulator
from hyperplane.forecasts.measured_advice import MeasuredAdvice
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.settings import LocalSettings

#: Ratio of the threads of a cluster to the units of a job that can run together, above which
#: layouts are not tried.
_IDLE = 2
#: Name of this machine among pools.
_THIS_MACHINE = "this_machine"


def advise_layout(
    job: SampledJob | None,
    reasons: Sequence[str],
    pool: str | PoolSpec | None = None,
    local: bool | None = None,
) -> MeasuredAdvice:
    """Return the cheapest layout on which a job fits, and its alternatives.

    ``reasons`` says why no sample has run, if there is no job.

    Raises
    ------
    RequestError
        If the forecast is refused for a reason that all layouts share.
    DoesNotFit
        If the job fits on no layout.
    """
    job = _check(job, reasons, pool, local)
    if local is None:
        local = pool is None and job.layout.is_local
    left_out: dict[str, str] = {}
    pools = [_describe_machine()] if local else list(_find_pools(pool, left_out))
    is_priced = bool(pools) and all(each.price_per_hour is not None for each in pools)
    simulator = LayoutSimulator(job, is_priced, local)
    usable = simulator.template.usable
    search = LayoutSearch(simulator, usable)
    candidates = list(_list_candidates(simulator, pools, left_out))
    search.search(candidates)
    names = {option.pool.name for option in search.found}
    for each in pools:
        if each.name not in names:
            of_pool = [other for other in candidates if other.pool.name == each.name]
            left_out[each.name] = search.refused.get(each.name) or _explain(of_pool, usable)
    if not search.found:
        raise _make_error(pools, left_out, local)
    return MeasuredAdvice(
        job,
        choose_option(search.found),
        tuple(search.found),
        tuple(left_out.items()),
        config.sizing_rules().currency if is_priced else "core-hours",
        usable,
        len(candidates),
        search.simulated,
    )


def _check(
    job: SampledJob | None, reasons: Sequence[str], pool: object, local: object
) -> SampledJob:
    faults = []
    refusals = reasons if job is None else job.refusals
    if job is None or refusals:
        advice = "hyperplane.size_cluster(data, operation, rules='classic') has the published rules"
        allowed = f"a forecast that is not refused ({'; '.join(refusals)})"
        faults.append(Fault("forecast", "a refused one", allowed, advice))
    if local is not None and not isinstance(local, bool):
        faults.append(Fault("local", repr(local)[:80], "True, False or None"))
    if pool is not None:
        if local is True:
            faults.append(Fault("pool", repr(pool)[:80], "None with local=True"))
        try:
            config.get_pool(pool)  # type: ignore[arg-type]
        except RequestError as error:
            faults += error.faults
    if faults or job is None:
        raise RequestError(faults)
    return job


def _describe_machine() -> PoolSpec:
    """Return this machine, with its usable cores and free memory, as a type of node."""
    settings = config.engine_settings("local", LocalSettings)
    machine = read_capacity(settings.reserve_fraction)
    ram = bytes_to_gb(machine.ram)
    return PoolSpec(
        name=_THIS_MACHINE, cores=machine.cores, ram_gb=ram, allocatable_cores=machine.cores,
        allocatable_ram_gb=ram,
    )  # fmt: skip


def _find_pools(pool: str | PoolSpec | None, left_out: dict[str, str]) -> Iterator[PoolSpec]:
    config.check_sections(ENGINES)
    for each in config.pools().values() if pool is None else [config.get_pool(pool)]:
        if each.gpus:
            left_out[each.name] = "it has GPUs, and a forecast does not know what tasks need there"
        else:
            yield each


def _list_candidates(
    simulator: LayoutSimulator, pools: Sequence[PoolSpec], left_out: dict[str, str]
) -> Iterator[LayoutCandidate]:
    """Yield all layouts that the job can use, with their bounds."""
    bounds = simulator.bounds
    most = 1 if simulator.is_local else len(simulator.job.model.units)
    for pool in pools:
        for worker in list_workers(pool):
            memory = simulator.find_memory(worker)
            for nodes in list_node_counts(most):
                processes = nodes * worker.nprocs
                threads = processes * worker.nthreads
                if nodes > 1 and threads > _IDLE * bounds.width:
                    break
                if not simulator.has_same_graph(processes):
                    few = "a single process" if processes == 1 else "several processes"
                    left_out[few] = (
                        "Dask shuffles with another method there, and so with another graph; pass "
                        "a plan with such a layout to hyperplane.forecast"
                    )
                    continue
                peak = bounds.find_peak(processes, worker.nthreads, memory)
                seconds = bounds.find_seconds(threads)
                high = simulator.job.find_demand(peak)
                cost = simulator.find_cost(pool, nodes, seconds)
                yield LayoutCandidate(pool, nodes, worker, high, seconds, cost)


def _explain(candidates: Sequence[LayoutCandidate], usable: float) -> str:
    """Return why no candidate of a pool was simulated."""
    if not candidates:
        return "no layout has the graph of the sample"
    spare = {each.high - usable * each.worker.ram_per_proc: each for each in candidates}
    best = spare[min(spare)]
    limit = usable * best.worker.ram_per_proc
    return (
        f"with {best.worker} on each node at least {round_bytes(round(best.high))} are needed "
        f"in a process, of which {round_bytes(round(limit))} are usable"
    )


def _make_error(pools: Sequence[PoolSpec], left_out: dict[str, str], local: bool) -> DoesNotFit:
    largest = max(pools, key=lambda each: each.allocatable_ram, default=None)
    name = next(iter(left_out)) if largest is None else largest.name
    return DoesNotFit(
        name, "the job", f"a job that fits on a layout of {name} ({left_out[name]})",
        "make the partitions smaller, or write large results instead of returning them"
        + ("; advise(local=False) considers the nodes of pools" if local else ""),
    )  # fmt: skip
