"""Sorting and repartitioning by value: every row goes to another partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.dataframe.dask_expr._expr import Expr
from dask.dataframe.dask_expr._shuffle import ShuffleBase

from hyperplane.collections.frames.explain.lazy_steps import PlannedSetIndex, PlannedSortValues
from hyperplane.collections.frames.explain.query_plan import Facts, Found, shown
from hyperplane.collections.frames.explain.report import Finding

_MOVES = "every row moves to the partition of its value"
_FIRST = "a first pass computes {column} of all rows to choose the partitions, then "


def sorting(facts: Facts) -> Iterator[Found]:
    """``set_index``, ``sort_values`` and ``shuffle``."""
    for node in facts.nodes:
        if isinstance(node, PlannedSetIndex) and _moves(node):
            yield Found(_set_index(facts, node), node)
        elif isinstance(node, PlannedSortValues) and _moves(node):
            yield Found(_sort_values(facts, node), node)
        elif isinstance(node, ShuffleBase) and node.frame.npartitions > 1:
            yield Found(_shuffle(facts, node), node)


def _moves(node: Any) -> bool:
    """One partition is sorted where it is; asking for one partition joins all, in order."""
    return bool(node.frame.npartitions > 1 and node.operand("npartitions") != 1)


def _set_index(facts: Facts, node: Any) -> Finding:
    name = node._other._meta.name if isinstance(node._other, Expr) else node._other
    column = repr(name)
    given = node.user_divisions is not None
    why = _MOVES if given else _FIRST.format(column=column) + _MOVES
    instead = f"df = df.set_index({column}, sorted=True)  # if the rows are sorted by it already"
    if node.presorted:
        why = "a pass over the data looks whether the rows are sorted; they were, last time"
        instead = f"df = df.set_index({column}, sorted=True)"
    return Finding(
        "set_index",
        f"set_index({column})",
        facts.about(node.frame),
        why,
        instead,
        f"df = df.set_index({column}).persist()  # once; use df from here on",
        facts.moved(node.frame),
    )


def _sort_values(facts: Facts, node: Any) -> Finding:
    by = shown(node.by)
    order = "" if node.ascending is True else f", ascending={node.ascending!r}"
    return Finding(
        "sort_values",
        f"sort_values({by})",
        facts.about(node.frame),
        _FIRST.format(column=repr(node.by[0])) + _MOVES,
        f"df.sort_values({by}{order}).head(n, compute=False)"
        "  # if the first rows are enough: no row moves",
        f"df = df.sort_values({by}{order}).persist()",
        facts.moved(node.frame),
    )


def _shuffle(facts: Facts, node: Any) -> Finding:
    on = node.original_partitioning_index or node._partitioning_index
    by = "the index" if node.index_shuffle or isinstance(on, Expr) else shown(on)
    call = "shuffle(on_index=True)" if node.index_shuffle else f"shuffle({by})"
    return Finding(
        "shuffle",
        f"shuffle on {by}",
        facts.about(node.frame),
        "every row moves to the partition that its hash names",
        "df = df.repartition(npartitions=n)  # if only another number of partitions is wanted",
        f"df = df.{call}.persist()",
        facts.moved(node.frame),
    )
