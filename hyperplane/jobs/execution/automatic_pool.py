"""The pool of a step that says ``pool: auto``: from the records of its earlier runs.

``resources.pool: auto`` is the smallest pool with room for the largest memory that the step's
processes had, and with the cores that they used. ``cluster.pool: auto`` sizes the memory of the
worker processes of the step's cluster in the same way, and is the smallest pool for them. A size in
which an earlier attempt ran out of memory is not used again.
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
from hyperplane.spec.request import ClusterArguments, read_request

#: The name that is replaced by that of a pool.
AUTO = "auto"
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
_DEFAULT = "no run of this step is recorded: hyperplane.jobs.default_pool"


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


def size_step(
    step: Step, records: Sequence[RunRecord], pools: Mapping[str, Resources], default: str
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
        Name of the pool of a step without records.
    """
    if AUTO in pools:  # a pool of the site has this name
        return SizedStep(step)
    records = [record for record in records if record.workers]  # others have no figures
    reasons = []
    if step.resources.pool == AUTO:
        of_steps = [record for record in records if not record.cluster][:NEWEST_RUNS]
        name, reason = _choose_pool(of_steps, pools, default, step.resources.gpus)
        reasons.append(f"resources.pool: auto is {name}: {reason}")
        resources = step.resources.model_copy(update={"pool": name})
        step = step.model_copy(update={"resources": resources})
    if (step.cluster or {}).get("pool") == AUTO:
        of_clusters = [record for record in records if record.cluster][:NEWEST_RUNS]
        cluster, reason = _size_cluster(dict(step.cluster or {}), of_clusters, pools, default)
        size = f"{cluster['pool']}, ram_gb_per_proc {cluster['ram_gb_per_proc']:g}"
        reasons.append(f"cluster.pool: auto is {size}: {reason}")
        step = step.model_copy(update={"cluster": cluster})
    return SizedStep(step, tuple(reasons))


def _choose_pool(
    records: Sequence[RunRecord], pools: Mapping[str, Resources], default: str, gpus: int
) -> tuple[str, str]:
    """Return the name of a pool for a step, and why."""
    if not records:
        return default, _DEFAULT
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
    if name:
        return name, reason
    largest = max(pools, key=lambda each: (pools[each].gpus >= gpus, pools[each].ram_gb or 0.0))
    return largest, f"{reason}; no pool has more"


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
    cluster: dict[str, Any],
    records: Sequence[RunRecord],
    pools: Mapping[str, Resources],
    default: str,
) -> tuple[dict[str, Any], str]:
    """Return the arguments of a cluster with memory and pool, and why."""
    given = {name: value for name, value in cluster.items() if name != "pool"}
    request, _ = read_request(ClusterArguments.from_mapping(given))
    nprocs = request.nprocs
    cores = float(nprocs * request.nthreads)
    if "cores_per_worker" in given:
        cores = max(cores, request.cores_per_worker)
    is_given = bool({"ram_gb_per_proc", "ram_gb_proc"} & given.keys())
    if records:
        ram_gb, reason = _find_ram(records)
    elif is_given:
        ram_gb, reason = request.ram_gb_per_proc, "no run of its clusters is recorded"
    else:
        ram_gb, reason = _share_ram(pools[default], nprocs), _DEFAULT
    name = _find_smallest(pools, cores, nprocs * ram_gb * 10**9 * (1 - 1e-9), 0, request.ngpus)
    if not name:
        name = max(pools, key=lambda each: pools[each].ram_gb or 0.0)
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
