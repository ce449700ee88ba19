"""Rules for partitions that are too many, too large or needlessly divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.collections.frames.explain.lazy_steps import LazyRepartition
from hyperplane.collections.frames.explain.query_plan import QueryPlan, StepFinding, format_source
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import IO, Concat, ReadParquet, Repartition
from hyperplane.core.units import format_bytes

#: Minimum partitions for which small partitions are reported.
MANY_PARTITIONS = 500
#: Bytes of a partition below which the overhead of a task exceeds its work.
SMALL_PARTITION = 10_000_000
#: Recommended bytes of a partition.
GOOD_PARTITION = 100_000_000
#: Maximum bytes of a partition if the memory per thread is unknown.
LARGE_PARTITION = 1_000_000_000
#: Memory of a task relative to the bytes of its partition, as measured.
TASK_MEMORY_FACTOR = 8
#: Minimum pieces of an interleaved concat for which it is reported.
MANY_PIECES = 1_000


def find_unsuitable_partition_sizes(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield sources and repartitions with partitions that are far too small or too large."""
    for node in plan.simplified_steps:
        if isinstance(node, IO | Repartition) and node.npartitions:
            finding = _make_small_partitions_finding(plan, node) or _make_large_partitions_finding(
                plan, node
            )
            if finding:
                yield StepFinding(finding, node)


def _make_small_partitions_finding(plan: QueryPlan, node: Any) -> Finding | None:
    total = _estimate_bytes(plan, node)
    count = node.npartitions
    if total is None or count <= MANY_PARTITIONS or total / count >= SMALL_PARTITION:
        return None
    return Finding(
        "many_small_partitions",
        format_source(node),
        f"{count} partitions of {format_bytes(total // count)} on average",
        "each partition is one task per step, and the overhead of a task exceeds its work",
        f"df = df.repartition(npartitions={max(1, round(total / GOOD_PARTITION))})",
    )


def _estimate_bytes(plan: QueryPlan, node: Any) -> int | None:
    """Return the bytes of a step, or None if unknown.

    For Parquet these are the bytes of all columns: if few columns are read, Dask itself reads
    several small partitions in one task.
    """
    if isinstance(node, ReadParquet):
        footers = plan.sizes.footers(node)
        return None if footers is None or node._filtered else sum(footers.columns.values())
    return plan.total_bytes(node)


def _make_large_partitions_finding(plan: QueryPlan, node: Any) -> Finding | None:
    size = plan.estimate_size(node)
    memory = plan.memory_per_thread
    limit = LARGE_PARTITION if memory is None else memory // TASK_MEMORY_FACTOR
    if size is None or size.at_most or size.total / node.npartitions <= limit:
        return None
    count = max(node.npartitions + 1, -(-size.total // min(limit, GOOD_PARTITION)))
    memory_text = "" if memory is None else f"; a thread has {format_bytes(memory)}"
    return Finding(
        "large_partitions",
        format_source(node),
        f"{plan.describe(node)}, {format_bytes(size.total // node.npartitions)} each",
        f"a task needs about {TASK_MEMORY_FACTOR} times its partition{memory_text}",
        f"df = df.repartition(npartitions={count})",
        moved=size.total,
    )


def find_measuring_repartitions(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``repartition(partition_size=...)``, which computes its input to measure it."""
    for node in plan.simplified_steps:
        if type(node) is LazyRepartition and node.partition_size is not None:
            size = plan.estimate_size(node.frame)
            count = "n" if size is None else max(1, round(size.total / GOOD_PARTITION))
            yield StepFinding(
                Finding(
                    "repartition_size",
                    f"repartition(partition_size={node.partition_size!r})",
                    plan.describe(node.frame),
                    "everything up to here is computed twice: to measure it, and for the result",
                    f"df = df.repartition(npartitions={count})",
                    "df = df.persist()  # before the repartition, which then measures memory",
                    plan.total_bytes(node.frame),
                ),
                node,
            )


def find_interleaved_concats(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``concat(..., interleave_partitions=True)`` of frames with different divisions."""
    for node in plan.simplified_steps:
        if not isinstance(node, Concat) or node.axis != 0 or not node.interleave_partitions:
            continue
        if node._monotonic_divisions or not node._all_known_divisions:
            continue
        frames, count = node._frames, node.npartitions
        pieces, input_count = len(frames) * count, sum(frame.npartitions for frame in frames)
        if pieces > MANY_PIECES and pieces > 4 * input_count:
            yield StepFinding(
                Finding(
                    "interleave",
                    f"concat of {len(frames)} frames with interleave_partitions=True",
                    f"{input_count} partitions become {count}",
                    f"each frame is cut at the divisions of all others, into {pieces} pieces",
                    "dd.concat(frames)  # stacks them; the order of the index is not kept",
                ),
                node,
            )
