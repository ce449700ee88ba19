"""Checks of the size of partitions against the memory of a worker process."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane.core.units import format_bytes, plural
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.spec.plan import ClusterPlan

#: Copies of a partition that a task holds at the same time: its input, its output, and one more.
COPIES = 3


def check_partition(size: int | None, how: str, plan: ClusterPlan) -> Iterator[PreflightFinding]:
    """Yield a finding on the largest partition.

    Parameters
    ----------
    size : int or None
        Bytes in memory of the largest partition; None if it is unknown.
    how : str
        What the size is that of, or why it is unknown.
    plan : ClusterPlan
        The plan, with the memory of a worker process.
    """
    if size is None:
        yield PreflightFinding("partitions", "unchecked", how)
        return
    limit, threads = plan.worker.ram_per_proc, plan.worker.nthreads
    memory = f"a worker process has {format_bytes(limit)} for {plural(threads, 'thread')}"
    text = f"the largest partition has {format_bytes(size)} in memory ({how}), and {memory}"
    needed = COPIES * size * threads / 1e9
    advice = (
        f"make partitions smaller (partition_size, repartition, rechunk), or pass "
        f"ram_gb_per_proc={needed:.1f}"
    )
    if size > limit:
        yield PreflightFinding("partitions", "fault", text, advice)
    elif COPIES * size * threads > limit:
        text += f"; a task may hold {COPIES} copies of its partition"
        yield PreflightFinding("partitions", "warning", text, advice)
    else:
        yield PreflightFinding("partitions", "ok", text)
