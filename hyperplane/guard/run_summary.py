"""One line about a run: how near to its limits it was, and the sizes that would do."""

from __future__ import annotations

from collections.abc import Sequence

from hyperplane.core.errors import DoesNotFit
from hyperplane.core.units import format_bytes, format_number, gb_to_bytes, plural
from hyperplane.guard.usage_texts import describe_memory, propose_ram, round_gb
from hyperplane.history.figures import OUT_OF_MEMORY
from hyperplane.history.run_record import PlanSummary, RunRecord
from hyperplane.sizing import fit
from hyperplane.spec.pool import PoolSpec

#: Seconds from which on a run that used less than half of its memory is worth a line.
LONG_RUN = 600.0
#: Seconds of pauses, and fraction of the memory on disk, from which on they are worth a line.
NOTABLE_PAUSE, NOTABLE_SPILL = 5.0, 0.1
#: Memory of a process, in multiples of what the plan gives it, above which its limit has grown.
GROWN = 1.05
#: Bytes on disk below which they are not worth a mention.
_LEAST_SPILL = 5_000_000
#: Fraction of its memory below which a long run used little.
LITTLE = 0.5


def summarize_run(
    record: RunRecord, pools: Sequence[PoolSpec], currency: str = "", fix: str = ""
) -> str:
    """Return one line about a run, or an empty text if there is nothing to say.

    There is something to say if workers ran out of memory, used more than they were given, were
    paused or spilled much, or if a run of ten minutes or more used less than half of its memory.
    ``fix`` is what the latest error for lack of memory proposes: the line has that, not a second
    figure.
    """
    peak, share = record.peak, record.peak_share
    if peak is None or share is None or not record.tasks:
        return ""
    killed = record.killed
    spilled = max(worker.spilled / worker.limit for worker in record.workers if worker.limit)
    grown = max(record.workers, key=lambda worker: worker.peak)
    is_grown = bool(plan_ram := record.plan.ram_per_proc) and grown.peak > GROWN * plan_ram
    if is_grown:
        peak = grown
    pressed = killed or is_grown or spilled >= NOTABLE_SPILL
    pressed = pressed or record.paused_seconds >= NOTABLE_PAUSE
    if not pressed and not (share < LITTLE and record.seconds >= LONG_RUN):
        return ""
    percent = "" if pressed else f", {share:.0%} of it".replace("%", " %")
    facts = [f"peak {describe_memory(peak.peak, peak.limit)} per process{percent}"]
    if is_grown:
        facts.append(f"with free memory of the machine beyond {format_bytes(plan_ram)}")
    if record.paused_seconds >= 1:
        facts.append(f"paused {record.paused_seconds:.0f} s in all")
    if record.spilled >= _LEAST_SPILL:
        spilling = max(worker.spilling_seconds for worker in record.workers)
        facts.append(f"up to {round_gb(record.spilled)} GB on disk, for {spilling:.0f} s")
    if killed:
        facts.append(f"{plural(killed, 'restart')} for lack of memory")
    if killed and fix:
        return f"{', '.join(facts)}: {fix}, as the error of a task proposes"
    return f"{', '.join(facts)}: {describe_size(record, pools, currency)}"


def describe_plan(plan: PlanSummary) -> str:
    """Return nodes, layout and pool; only processes and threads if the nodes are not known.

    Examples
    --------
    >>> describe_plan(PlanSummary(nodes=2, nprocs=4, nthreads=1, ram_per_proc=2 * 10**9))
    '2 nodes, each 4 x 1 threads x 2 GB'
    >>> describe_plan(PlanSummary(nprocs=4, nthreads=1, ram_per_proc=2 * 10**9))
    '4 processes of unknown nodes, each 1 thread x 2 GB'
    """
    pool = f", pool {plan.pool}" if plan.pool else ""
    if not plan.nodes:
        memory = f" x {format_bytes(plan.ram_per_proc)}" if plan.ram_per_proc else ""
        processes = plural(plan.nprocs, "process")
        return f"{processes} of unknown nodes, each {plural(plan.nthreads, 'thread')}{memory}{pool}"
    nodes = plural(plan.nodes, "node")
    if plan.max_nodes > plan.nodes:
        nodes = f"{plan.nodes} to {plural(plan.max_nodes, 'node')}"
    layout = f"{plan.nprocs} x {plan.nthreads} threads x {format_bytes(plan.ram_per_proc)}"
    return f"{nodes}, each {layout}{pool}"


def advises_size(record: RunRecord) -> bool:
    """Return whether a record tells what size would do.

    That of a block does only if its workers need more: the rest of the program may need it.
    """
    peak = record.peak
    if peak is None or not record.tasks:
        return False
    demand = max(worker.demand for worker in record.workers)
    is_short = record.killed or gb_to_bytes(propose_ram(demand)) > peak.limit
    return not record.block or bool(is_short)


def describe_size(record: RunRecord, pools: Sequence[PoolSpec], currency: str = "") -> str:
    """Return the memory of a process that would do for such a run, and the pool for it.

    For a smaller pool it has what the run would have saved: money if both pools have a price in
    ``currency``, otherwise core-hours.
    """
    demand = max(worker.demand for worker in record.workers)
    killed = any(worker.causes.get(OUT_OF_MEMORY) for worker in record.workers)
    if killed:
        # The process was ended before it had all the memory that it asked for.
        demand = max(demand, record.plan.ram_per_proc)
    proposed = propose_ram(demand)
    pool = _smallest_pool(record, proposed, pools, currency)
    in_pool = f" ({pool})" if pool else ""
    if killed:
        # Errors of tasks also count what the task would have allocated.
        size = f"at least ram_gb_per_proc={proposed:g}{in_pool}"
        return f"{size}, or what the error of a failed task proposes"
    return f"ram_gb_per_proc={proposed:g} would do{in_pool}"


def _smallest_pool(
    record: RunRecord, ram_gb: float, pools: Sequence[PoolSpec], currency: str
) -> str:
    """Return what pool a node with this memory per process needs; empty if that is the present."""
    plan = record.plan
    if not plan.pool or not plan.nprocs:
        return ""
    ram = plan.nprocs * gb_to_bytes(ram_gb)
    try:
        pool = fit.smallest_pool(pools, plan.nprocs * plan.nthreads, ram)
    except DoesNotFit:
        return "fewer processes on each node: no pool has so much memory"
    if pool.name == plan.pool:
        return ""
    present = next((each for each in pools if each.name == plan.pool), None)
    saving = "" if present is None else describe_saving(record, present, pool, currency)
    return f"pool {pool.name}{saving}"


def describe_saving(record: RunRecord, present: PoolSpec, other: PoolSpec, currency: str) -> str:
    """Return what a run would have saved in another pool; empty if it would not.

    The nodes of an adaptive cluster are those that it started with.
    """
    node_hours = record.plan.nodes * record.seconds / 3600
    if present.price_per_hour is not None and other.price_per_hour is not None and currency:
        amount = (present.price_per_hour - other.price_per_hour) * node_hours
        unit = currency
    else:
        amount = (present.cores - other.cores) * node_hours
        unit = "core-hours"
    least = "at least " if record.plan.max_nodes > record.plan.nodes else ""
    number = format_number(round(amount, 2 if amount < 10 else 0))
    return f", saves {least}{number} {unit}" if amount >= 0.01 else ""
