"""Group-bys of joined rows whose left side is grouped before the join.

A group-by of joined rows needs only partial states of the left rows of each join key. These are
often much fewer than the rows, so that one task joins those of several partitions, and builds the
hash table of the right side once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from dask.delayed import Delayed

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.aggregates import PartialState
from hyperplane.collections.frames.grouping import Grouping
from hyperplane.collections.frames.joined_partition import JoinedPartition
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.partial_states import merge_states
from hyperplane.collections.frames.source_collection import CollectionSource
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.value_types import check_value_types
from hyperplane.core.active_cluster import get_memory_per_thread
from hyperplane.formats.pandas_frames.column_names import unescape

#: States that are merged in any order of the rows, and that have a constant size.
_MERGED_STATES = frozenset({"sum", "total", "count", "size", "min", "max", "mean", "m2"})
#: Rows of a partition from which the number of its groups is estimated.
_SAMPLE_ROWS = 50_000
#: Maximum number of groups, per row, for which the rows are grouped before the join.
_MAX_GROUPS_PER_ROW = 0.5
#: Maximum bytes of a table of states that is joined in a later task.
_MAX_STATES_BYTES = 32 * 10**6

#: A table of states of joined rows, and one of left rows; the other is None.
States = tuple[pl.DataFrame | None, pl.DataFrame | None]


@dataclass(frozen=True)
class GroupBeforeJoin:
    """A group-by of joined rows, and its grouping of the left rows."""

    grouping: Grouping
    #: Keys of the join, then those keys of the group-by that are columns of the left side.
    left_keys: tuple[str, ...]
    #: Filters of the left rows, and of joined groups; None if there are none.
    left_where: pl.Expr | None
    joined_where: pl.Expr | None
    #: Maximum bytes of a table that is joined in a later task.
    max_bytes: int

    @property
    def columns(self) -> list[str]:
        """Columns of the left side that are needed."""
        return list(dict.fromkeys([*self.left_keys, *self.grouping.aggregation.columns]))

    def group_joined(self, partition: JoinedPartition, table: pl.DataFrame) -> pl.DataFrame:
        """Join states of left rows, and merge those of each group."""
        states = self.grouping.aggregation.states
        rows = partition.join_right(table.lazy())
        rows = rows if self.joined_where is None else rows.filter(self.joined_where)
        rows = kernel.drop_missing(rows, self.grouping.keys)
        merged = [merge_states(state, states, table.schema[state.name]) for state in states]
        return rows.group_by(self.grouping.keys).agg(merged).collect(engine="streaming")


def plan_group_before_join(source: CollectionSource, grouping: Grouping) -> GroupBeforeJoin | None:
    """Return how to group the left rows before the join; None if that gives another result."""
    first: Any = source.partitions[0]
    if not isinstance(first, JoinedPartition) or grouping.windows is not None:
        return None
    left = {name for _, name in first.left_names}
    states = grouping.aggregation.states
    has_own_names = all(unescape(name) == name for name in grouping.like.columns)
    if (
        not has_own_names
        or not left.issuperset(grouping.aggregation.columns)
        or any(state.kind not in _MERGED_STATES or state.order for state in states)
        or any(_is_rounded(state, grouping) for state in states)
    ):
        return None
    left_keys = tuple(dict.fromkeys([*first.on, *(key for key in grouping.by if key in left)]))
    filtered = set() if source.where is None else set(source.where.meta.root_names())
    right = {*left_keys, *(name for _, name in first.right_names)}
    is_left, is_joined = filtered <= left, filtered <= right
    if not (is_left or is_joined):
        return None
    share = get_memory_per_thread()
    return GroupBeforeJoin(
        grouping,
        left_keys,
        source.where if is_left else None,
        None if is_left else source.where,
        _MAX_STATES_BYTES
        if share is None
        else min(_MAX_STATES_BYTES, share // (4 * task_graph.FAN_IN)),
    )


def _is_rounded(state: PartialState, grouping: Grouping) -> bool:
    """Return whether a state is rounded to less than 64 bits, once for each group of left rows."""
    dtype: Any = grouping.like[state.column].dtype
    numbers = getattr(dtype, "numpy_dtype", dtype)
    is_float = getattr(numbers, "kind", "") == "f"
    return state.kind == "sum" and is_float and int(numbers.itemsize) < 8


def make_join_tasks(
    name: str, token: str, source: CollectionSource, plan: GroupBeforeJoin
) -> list[Delayed]:
    """Return the tasks whose results are tables of the states of joined rows."""
    tables = task_graph.make_tasks(
        f"{name}-left",
        token,
        group_left_rows,
        [[partition, number, plan] for number, partition in enumerate(source.partitions)],
    )
    size = task_graph.FAN_IN
    groups = [tables[first : first + size] for first in range(0, len(tables), size)]
    join = partial(_join_states, partition=source.partitions[0], plan=plan)
    return task_graph.make_tasks(f"{name}-partial", token, join, [[group] for group in groups])


@name_partition_in_errors
def group_left_rows(partition: JoinedPartition, number: int, plan: GroupBeforeJoin) -> States:
    """Return the states of the rows of a partition, joined now if that needs less memory."""
    rows = partition.scan_left()
    check_value_types(rows, plan.grouping.aggregation)
    rows = rows if plan.left_where is None else rows.filter(plan.left_where)
    needed = rows.select(plan.columns).collect(engine="streaming")
    states = plan.grouping.aggregation.states
    if not _has_few_groups(needed, plan.left_keys):
        joined = partition.join_right(needed.lazy())
        joined = joined if plan.joined_where is None else joined.filter(plan.joined_where)
        return kernel.aggregate_rows(joined, plan.grouping.keys, states), None
    required = [key for key in plan.left_keys if key in plan.grouping.keys]
    table = kernel.aggregate_rows(needed.lazy(), plan.left_keys, states, required)
    del needed
    if table.estimated_size() > plan.max_bytes:
        return plan.group_joined(partition, table), None
    return None, table


def _has_few_groups(rows: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Return whether the rows have few groups, estimated from the first rows.

    The groups are assumed to be of the same size. If some are larger, there are fewer of them in
    the sample, and a large part of the rows is in these.
    """
    sample = rows.select(keys).head(_SAMPLE_ROWS)
    if not sample.height:
        return True
    found = sample.n_unique()
    groups = float(found)
    # Of n groups of the same size, k rows are expected to have n * (1 - (1 - 1 / n) ** k).
    low, high = float(found), float(rows.height) + found
    for _ in range(40):
        groups = (low + high) / 2
        if _expect_groups(groups, sample.height) < found:
            low = groups
        else:
            high = groups
    return _expect_groups(groups, rows.height) <= _MAX_GROUPS_PER_ROW * rows.height


def _expect_groups(groups: float, rows: int) -> float:
    """Return the expected number of groups that some rows have, of groups of the same size."""
    return groups if groups <= 1 else groups * (1 - (1 - 1 / groups) ** rows)


def _join_states(
    tables: list[States], partition: JoinedPartition, plan: GroupBeforeJoin
) -> pl.DataFrame:
    """Join the tables of left rows, and merge all tables to one of the states of joined rows."""
    joined = [table for table, _ in tables if table is not None]
    left = [table for _, table in tables if table is not None]
    if left:
        joined.append(plan.group_joined(partition, concat_tables(left)))
    states = plan.grouping.aggregation.states
    return kernel.merge_partials(joined, plan.grouping.keys, states)
