"""Rules for sorts and shuffles, which move every row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.collections.frames.explain.lazy_steps import LazySetIndex, LazySortValues
from hyperplane.collections.frames.explain.query_plan import QueryPlan, StepFinding, format_columns
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import Expr, ShuffleBase

_MOVES = "every row moves to the partition of its value"
_SAMPLING_STEP = "a first pass computes {column} of all rows to choose the partitions, then "


def find_sorts(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``set_index``, ``sort_values`` and ``shuffle`` that move rows."""
    for node in plan.simplified_steps:
        if isinstance(node, LazySetIndex) and _moves_rows(node):
            yield StepFinding(_make_set_index_finding(plan, node), node)
        elif isinstance(node, LazySortValues) and _moves_rows(node):
            yield StepFinding(_make_sort_finding(plan, node), node)
        elif isinstance(node, ShuffleBase) and node.frame.npartitions > 1:
            yield StepFinding(_make_shuffle_finding(plan, node), node)


def _moves_rows(node: Any) -> bool:
    """Return whether a sort moves rows: not with one input or one output partition."""
    return bool(node.frame.npartitions > 1 and node.operand("npartitions") != 1)


def _make_set_index_finding(plan: QueryPlan, node: Any) -> Finding:
    name = node._other._meta.name if isinstance(node._other, Expr) else node._other
    column = repr(name)
    has_divisions = node.user_divisions is not None
    why = _MOVES if has_divisions else _SAMPLING_STEP.format(column=column) + _MOVES
    instead = f"df = df.set_index({column}, sorted=True)  # if the rows are sorted by it already"
    if node.presorted:
        why = "a pass over the data checks whether the rows are sorted; they were, last time"
        instead = f"df = df.set_index({column}, sorted=True)"
    return Finding(
        "set_index",
        f"set_index({column})",
        plan.describe(node.frame),
        why,
        instead,
        f"df = df.set_index({column}).persist()  # once; use df from here on",
        plan.total_bytes(node.frame),
    )


def _make_sort_finding(plan: QueryPlan, node: Any) -> Finding:
    by = format_columns(node.by)
    order = "" if node.ascending is True else f", ascending={node.ascending!r}"
    return Finding(
        "sort_values",
        f"sort_values({by})",
        plan.describe(node.frame),
        _SAMPLING_STEP.format(column=repr(node.by[0])) + _MOVES,
        f"df.sort_values({by}{order}).head(n, compute=False)"
        "  # if the first rows are enough: no row moves",
        f"df = df.sort_values({by}{order}).persist()",
        plan.total_bytes(node.frame),
    )


def _make_shuffle_finding(plan: QueryPlan, node: Any) -> Finding:
    on = node.original_partitioning_index or node._partitioning_index
    by = "the index" if node.index_shuffle or isinstance(on, Expr) else format_columns(on)
    call = "shuffle(on_index=True)" if node.index_shuffle else f"shuffle({by})"
    return Finding(
        "shuffle",
        f"shuffle on {by}",
        plan.describe(node.frame),
        "every row moves to the partition of its hash",
        "df = df.repartition(npartitions=n)  # if only another number of partitions is wanted",
        f"df = df.{call}.persist()",
        plan.total_bytes(node.frame),
    )
