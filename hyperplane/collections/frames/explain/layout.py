"""Too many, too large and needlessly cut partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.dataframe.dask_expr._concat import Concat
from dask.dataframe.dask_expr._repartition import Repartition
from dask.dataframe.dask_expr.io import IO, ReadParquet

from hyperplane.collections.frames.explain.lazy_steps import LazyRepartition
from hyperplane.collections.frames.explain.query_plan import QueryPlan, StepFinding, format_source
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.units import format_bytes

#: A source of more partitions than this is looked at for their being small.
MANY_PARTITIONS = 500
#: Bytes of a partition below which the handling of its task outweighs the work.
SMALL_PARTITION = 10_000_000
#: Bytes that a partition should have.
GOOD_PARTITION = 100_000_000
#: Bytes of a partition that are too many where no cluster tells its memory.
LARGE_PARTITION = 1_000_000_000
#: A task was measured to need about this many times the bytes of its partition.
TASK_MEMORY_FACTOR = 8
#: Pieces into which interleaving cuts frames before it is worth a word.
MANY_PIECES = 1_000


def find_unsuitable_partition_sizes(plan: QueryPlan) -> Iterator[StepFinding]:
    """Sources and repartitions whose partitions are known to be far too small or too large."""
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
        "each partition is a task for each step, and handling it costs more than its work",
        f"df = df.repartition(npartitions={max(1, round(total / GOOD_PARTITION))})",
    )


def _estimate_bytes(plan: QueryPlan, node: Any) -> int | None:
    """Bytes at a step; for Parquet all columns, since Dask joins partitions of few columns."""
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
    has = "" if memory is None else f" of the {format_bytes(memory)} that a thread has"
    return Finding(
        "large_partitions",
        format_source(node),
        f"{plan.describe(node)}, {format_bytes(size.total // node.npartitions)} each",
        f"a task needs about {TASK_MEMORY_FACTOR} times its partition{has}",
        f"df = df.repartition(npartitions={count})",
        moved=size.total,
    )


def find_measuring_repartitions(plan: QueryPlan) -> Iterator[StepFinding]:
    """``repartition(partition_size=...)``, which computes all that is before it to measure it."""
    for node in plan.simplified_steps:
        if type(node) is LazyRepartition and node.partition_size is not None:
            size = plan.estimate_size(node.frame)
            count = "n" if size is None else max(1, round(size.total / GOOD_PARTITION))
            yield StepFinding(
                Finding(
                    "repartition_size",
                    f"repartition(partition_size={node.partition_size!r})",
                    plan.describe(node.frame),
                    "everything up to here is computed once to measure it, and then again",
                    f"df = df.repartition(npartitions={count})",
                    "df = df.persist()  # before it: then it is measured in memory",
                    plan.total_bytes(node.frame),
                ),
                node,
            )


def find_interleaved_concats(plan: QueryPlan) -> Iterator[StepFinding]:
    """``concat(..., interleave_partitions=True)`` of frames that are all cut differently."""
    for node in plan.simplified_steps:
        if not isinstance(node, Concat) or node.axis != 0 or not node.interleave_partitions:
            continue
        if node._monotonic_divisions or not node._all_known_divisions:
            continue
        frames, count = node._frames, node.npartitions
        pieces, before = len(frames) * count, sum(frame.npartitions for frame in frames)
        if pieces > MANY_PIECES and pieces > 4 * before:
            yield StepFinding(
                Finding(
                    "interleave",
                    f"concat of {len(frames)} frames with interleave_partitions=True",
                    f"{before} partitions become {count}",
                    f"each frame is cut at the divisions of all others, into {pieces} pieces",
                    "dd.concat(frames)  # stacks them; the order of the index is not kept",
                ),
                node,
            )
