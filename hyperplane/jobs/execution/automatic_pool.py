"""The pool of a step that says ``pool: auto``: from the records of its earlier runs, or a forecast.

``resources.pool: auto`` is the smallest pool with room for the largest memory that the step's
processes had, and with the cores that they used. ``cluster.pool: auto`` sizes the memory of the
worker processes of the step's cluster in the same way, and is the smallest pool for them. A size in
which an earlier attempt ran out of memory is not used again. Without a record the forecast of the
collection that the step names in ``forecast`` takes their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperplane.core.units import format_bytes, gb_to_bytes, plural
from hyperplane.guard.usage_texts import propose_ram
from hyperplane.history.figures import OUT_OF_MEMORY
from hyperplane.history.run_record import RunRecord
from hyperplane.jobs.definition.step import Resources, Step
from hyperplane.jobs.definition.step_rules import AUTO
from hyperplane.jobs.execution.step_forecast import StepForecast
from hyperplane.jobs.store.job_records import DONE
from hyperplane.spec.request import ClusterArguments, read_request

#: Newest runs that decide.
NEWEST_RUNS = 5
#: Largest share of a pool's memory that the measured peak of a step may take.
_COMFORT = 0.8
#: Share of the cores that a step used that its pool must have: they are measured each second.
_CORES = 0.95
#: Least memory of a worker process in GB; sizes are multiples of it.
_LEAST_RAM = 0.1
#: Least growth of the memory per worker process after a lack of memory.
_GROWTH = 1.5
_NO_RUN = "no run of this step is recorded"
_DEFAULT = "hyperplane.jobs.default_pool"


@dataclass(frozen=True)
class SizedStep:
    """A step with names of pools in place of ``auto``.

    Parameters
    ----------
    step : Step
        The step.
    reasons : tuple of str
        What was chosen, and why, for each ``auto``.
    """

    step: Step
    reasons: tuple[str, ...] = ()


def uses_auto(step: Step) -> bool:
    """Return whether a step asks for a pool that is chosen by its earlier runs."""
    return AUTO in (step.resources.pool, (step.cluster or {}).get("pool"))


def needs_forecast(step: Step, records: Sequence[RunRecord]) -> bool:
    """Return whether a step has a pool that no record of an earlier run can choose."""
    if step.forecast is None:
        return False
    of_clusters = {bool(record.cluster) for record in _find_complete(step, records)}
    is_step = step.resources.pool == AUTO and False not in of_clusters
    return is_step or ((step.cluster or {}).get("pool") == AUTO and True not in of_clusters)


def size_step(
    step: Step,
    records: Sequence[RunRecord],
    pools: Mapping[str, Resources],
    default: str,
    forecast: StepForecast | None = None,
) -> SizedStep:
    """Choose the pools of a step.

    Parameters
    ----------
    step : Step
        The step; one without ``auto`` is returned unchanged.
    records : sequence of RunRecord
        Records of its runs and of their clusters, the newest first.
    pools : mapping of str to Resources
        Cores and memory that a step can use on a node of each pool.
    default : str
        Name of the pool of a step without records and forecast.
    forecast : StepForecast, optional
        Forecast of the step; None if none was made yet.
    """
    if AUTO in pools:  # a pool of the site has this name
        return SizedStep(step)
    records = _find_complete(step, records)
    reasons = []
    if step.resources.pool == AUTO:
        of_steps = [record for record in records if not record.cluster][:NEWEST_RUNS]
        if of_steps:
            name, reason = _choose_pool(of_steps, pools, step.resources.gpus)
        else:
            name, reason = _choose_by_forecast(step, forecast, pools, default)
        reasons.append(f"resources.pool: auto is {name}: {reason}")
        resources = step.resources.model_copy(update={"pool": name})
        step = step.model_copy(update={"resources": resources})
    if (step.cluster or {}).get("pool") == AUTO:
        of_clusters = [record for record in records if record.cluster][:NEWEST_RUNS]
        cluster, reason = _size_cluster(step, of_clusters, pools, default, forecast)
        size = f"{cluster['pool']}, ram_gb_per_proc {cluster['ram_gb_per_proc']:g}"
        reasons.append(f"cluster.pool: auto is {size}: {reason}")
        step = step.model_copy(update={"cluster": cluster})
    if reasons:  # the chosen step is a valid one: nothing is left to forecast
        step = step.model_copy(update={"forecast": None})
    return SizedStep(step, tuple(reasons))


def _find_complete(step: Step, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records that have figures, and with a forecast only those of complete runs.

    A run that failed for another reason than memory may have ended before it needed much.
    """
    complete: dict[str, bool] = {}
    for record in records:
        if not record.cluster:  # those of clusters do not tell how the step ended
            is_end = record.exit_reason in (DONE, OUT_OF_MEMORY) or record.killed > 0
            complete[record.job] = is_end or complete.get(record.job, False)
    return [
        record
        for record in records
        if record.workers
        and (step.forecast is None or record.killed or complete.get(record.job, True))
    ]


def _choose_pool(
    records: Sequence[RunRecord], pools: Mapping[str, Resources], gpus: int
) -> tuple[str, str]:
    """Return the name of a pool for a step that has run, and why."""
    usages = [worker for record in records for worker in record.workers]
    peak = max(worker.peak for worker in usages)
    died = _find_died(records)
    cores = max(_find_cores(worker.busy_cores, pools.get(worker.name)) for worker in usages)
    needed = peak / _COMFORT
    if peak:
        reason = f"{format_bytes(peak)} at most in {plural(len(records), 'earlier run')}"
    else:  # a runner whose system does not tell the memory of a step
        needed = float(min((each.limit for each in usages if _is_enough(each)), default=0))
        reason = f"a size that was enough in {plural(len(records), 'earlier run')}"
    if died:
        text = f"out of memory with {format_bytes(died)}"
        reason = text if needed <= died else f"{reason}, {text}"
    name = _find_smallest(pools, cores, needed, died, gpus)
    return (name, reason) if name else (_find_largest(pools, gpus), f"{reason}; no pool has more")


def _choose_by_forecast(
    step: Step, forecast: StepForecast | None, pools: Mapping[str, Resources], default: str
) -> tuple[str, str]:
    """Return the name of a pool for a step that has not run, and why."""
    if forecast is None or not forecast.node:
        elsewhere = "is of its cluster, whose processes are on other machines"
        return default, _explain_default(step, forecast, _NO_RUN, _DEFAULT, elsewhere)
    needed = {name: forecast.find_node(pool.cores or 1.0) for name, pool in pools.items()}
    fitting = {
        name: pool
        for name, pool in pools.items()
        if gb_to_bytes(pool.ram_gb or 0.0) >= needed[name] / _COMFORT
    }
    gpus = step.resources.gpus
    cores = _CORES * min(forecast.cores, max(pool.cores or 0.0 for pool in pools.values()))
    name, more = _find_smallest(fitting, cores, 0.0, 0, gpus), ""
    if not name:
        name, more = _find_largest(fitting or pools, gpus), "; no pool has more"
    return name, f"{forecast.describe(needed[name], 'in all processes')}{more}"


def _explain_default(
    step: Step, forecast: StepForecast | None, no_run: str, chosen: str, elsewhere: str = ""
) -> str:
    """Return why a size is chosen neither by a run nor by a forecast."""
    if step.forecast is None:
        return f"{no_run}: {chosen}" if chosen else no_run
    no_run = f"{no_run} as complete"
    if forecast is None:
        until = f"until {step.forecast} is forecast, when the step starts"
        return f"{no_run}: {chosen or 'as given'} {until}"
    what = f"failed ({forecast.failure})" if forecast.failure else elsewhere
    text = f"{no_run}, and the forecast of {step.forecast} {what}"
    return f"{text}: {chosen}" if chosen else text


def _is_enough(worker: Any) -> bool:
    return not worker.causes.get(OUT_OF_MEMORY)


def _find_cores(busy: float, pool: Resources | None) -> float:
    """Return the cores that a step needs: those that it used, of those that it was given."""
    limit = busy if pool is None or pool.cores is None else pool.cores
    return _CORES * min(busy, limit)


def _find_died(records: Sequence[RunRecord]) -> int:
    """Return the largest size in which a run was out of memory, and no newer one had enough."""
    died, enough = 0, float("inf")
    for record in records:  # the newest first; the last attempt of a run is the last worker
        for worker in reversed(record.workers):
            if not _is_enough(worker):
                died = max(died, worker.limit if worker.limit < enough else 0)
            elif worker.limit:
                enough = min(enough, worker.limit)
    return died


def _find_largest(pools: Mapping[str, Resources], gpus: int = 0) -> str:
    """Return the pool with the most memory, of those with the GPUs if there are any."""
    return max(pools, key=lambda each: (pools[each].gpus >= gpus, pools[each].ram_gb or 0.0))


def _find_smallest(
    pools: Mapping[str, Resources], cores: float, ram: float, more_than: int, gpus: int = 0
) -> str:
    """Return the smallest pool in the order of prices; empty if none is large enough."""
    fitting = [
        (not gpus and pool.gpus, pool.cores or 0.0, pool.ram_gb or 0.0, name)
        for name, pool in pools.items()
        if (pool.cores or 0.0) >= cores - 1e-9
        and gb_to_bytes(pool.ram_gb or 0.0) >= max(ram, more_than + 1)
        and pool.gpus >= gpus
    ]
    return min(fitting)[-1] if fitting else ""


def _size_cluster(
    step: Step,
    records: Sequence[RunRecord],
    pools: Mapping[str, Resources],
    default: str,
    forecast: StepForecast | None,
) -> tuple[dict[str, Any], str]:
    """Return the arguments of a step's cluster with memory and pool, and why."""
    given = {name: value for name, value in (step.cluster or {}).items() if name != "pool"}
    request, _ = read_request(ClusterArguments.from_mapping(given))
    nprocs = request.nprocs
    cores = float(nprocs * request.nthreads)
    if "cores_per_worker" in given:
        cores = max(cores, request.cores_per_worker)
    is_given = bool({"ram_gb_per_proc", "ram_gb_proc"} & given.keys())
    if records:
        ram_gb, reason = _find_ram(records)
    elif forecast is not None and forecast.ram_per_proc:
        ram_gb = propose_ram(forecast.ram_per_proc, 1.0)
        reason = forecast.describe(forecast.high, "in a process")
    elif is_given:
        ram_gb = request.ram_gb_per_proc
        reason = _explain_default(step, forecast, "no run of its clusters is recorded", "")
    else:
        ram_gb = _share_ram(pools[default], nprocs)
        reason = _explain_default(step, forecast, _NO_RUN, _DEFAULT)
    name = _find_smallest(pools, cores, nprocs * ram_gb * 10**9 * (1 - 1e-9), 0, request.ngpus)
    if not name:
        name = _find_largest(pools)
        ram_gb = min(ram_gb, _share_ram(pools[name], nprocs))
        reason = f"{reason}; no pool has more for {plural(nprocs, 'process')}"
    given.pop("ram_gb_proc", None)
    return {**given, "pool": name, "ram_gb_per_proc": ram_gb}, reason


def _share_ram(pool: Resources, nprocs: int) -> float:
    """Return an equal share of a pool's memory in GB, and never less than a process can have."""
    return max(_LEAST_RAM, int((pool.ram_gb or 0.0) * 10 / nprocs) / 10)


def _find_ram(records: Sequence[RunRecord]) -> tuple[float, str]:
    """Return the memory in GB of a worker process by the runs of clusters, and why."""
    demand = max((worker.demand for record in records for worker in record.workers), default=0)
    ram_gb = propose_ram(demand)
    reason = f"{format_bytes(demand)} at most in {plural(len(records), 'earlier run')}"
    died, enough = 0, float("inf")
    for record in records:
        if record.killed:
            died = max(died, record.plan.ram_per_proc if record.plan.ram_per_proc < enough else 0)
        elif record.workers:
            enough = min(enough, record.plan.ram_per_proc or enough)
    if died:
        reason = f"{reason}, out of memory with {format_bytes(died)}"
        ram_gb = max(ram_gb, propose_growth(died))
    return ram_gb, reason


def propose_growth(died: int) -> float:
    """Return the least memory in GB after a lack of memory with so many bytes.

    Examples
    --------
    >>> propose_growth(1_000_000_000)
    1.5
    """
    return round(died * _GROWTH / 1e9 + 0.049, 1)
