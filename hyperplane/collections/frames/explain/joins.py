"""Rules for joins that shuffle one side or both, and for frames aligned by a shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.collections.frames.explain.query_plan import QueryPlan, StepFinding, format_columns
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import (
    MaybeAlignPartitions,
    Merge,
    MergeAsof,
    OpAlignPartitions,
)
from hyperplane.core.units import plural

#: Maximum bytes of a side for which a broadcast join is suggested.
SMALL_SIDE = 100_000_000

#: Joins for which each partition of the other side can be joined to a copy of one side.
_COPIES_RIGHT = ("inner", "left", "leftsemi")
_COPIES_LEFT = ("inner", "right")


def find_joins(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``merge`` and ``join`` with a shuffle, and arithmetic of unaligned frames."""
    for node in plan.simplified_steps:
        if isinstance(node, Merge) and not isinstance(node, MergeAsof):
            moving = list_shuffled_sides(node)
            if moving:
                yield StepFinding(_make_join_finding(plan, node, moving), node)
        elif isinstance(node, MaybeAlignPartitions) and _is_aligned_by_shuffle(node):
            yield StepFinding(_make_alignment_finding(plan, node), node)


def list_shuffled_sides(node: Any) -> list[str]:
    """Return the sides of a join that Dask will shuffle, by the same conditions as Dask."""
    indexed = node.merge_indexed_left and node.merge_indexed_right
    if node._is_single_partition_broadcast or indexed or node.is_broadcast_join:
        return []
    count = node.operand("_npartitions") or max(node.left.npartitions, node.right.npartitions)
    return [
        name
        for name, side, on in (
            ("left", node.left, node.left_on),
            ("right", node.right, node.right_on),
        )
        if not (node._on_condition_already_partitioned(side, on) and side.npartitions == count)
    ]


def _make_join_finding(plan: QueryPlan, node: Any, moving: list[str]) -> Finding:
    sides = [getattr(node, name) for name in moving]
    shuffled = "both sides" if len(moving) == 2 else f"the {moving[0]} side"
    on_index = node.left_index and node.right_index
    why = f"every row of {shuffled} moves to the partition of its key"
    if on_index:
        unknown = [name for name in moving if not getattr(node, name).known_divisions]
        why += f", because the divisions of {' and '.join(unknown)} are not known"
    call = f"left.merge(right, {_format_arguments(node)})"
    return Finding(
        "join",
        f"{node.how} join on {'the index' if on_index else _format_keys(node)}",
        plan.describe(node.left, node.right),
        why,
        _suggest_join(plan, node),
        f"joined = {call}.persist()",
        plan.total_bytes(*sides),
    )


def _format_keys(node: Any) -> str:
    left = "the index" if node.left_index else format_columns(node.left_on)
    right = "the index" if node.right_index else format_columns(node.right_on)
    return left if left == right else f"{left} = {right}"


def _format_arguments(node: Any, indexed: bool = False) -> str:
    """Return the arguments of a merge, or of the same merge on both indexes, as code."""
    keys = {name: node.operand(name) for name in ("left_on", "right_on")}
    flags = {name: node.operand(name) for name in ("left_index", "right_index")}
    if indexed:
        keys, flags = {}, dict.fromkeys(flags, True)
    arguments = [
        f"{name}={format_columns(value)}" for name, value in keys.items() if value is not None
    ]
    if len(arguments) == 2 and format_columns(keys["left_on"]) == format_columns(keys["right_on"]):
        arguments = [f"on={format_columns(keys['left_on'])}"]
    arguments += [f"{name}=True" for name, value in flags.items() if value]
    if node.how != "inner":
        arguments.append(f"how={node.how!r}")
    if tuple(node.suffixes) != ("_x", "_y"):
        arguments.append(f"suffixes={tuple(node.suffixes)!r}")
    return ", ".join(arguments)


def _suggest_join(plan: QueryPlan, node: Any) -> str:
    """Return the cheapest equivalent join as code."""
    left, right = plan.estimate_size(node.left), plan.estimate_size(node.right)
    arguments = _format_arguments(node)
    if right and right.total <= SMALL_SIDE and node.how in _COPIES_RIGHT:
        return (
            f"left.merge(right.repartition(npartitions=1), {arguments})  # the right side is small"
        )
    if left and left.total <= SMALL_SIDE and node.how in _COPIES_LEFT:
        return (
            f"left.repartition(npartitions=1).merge(right, {arguments})  # the left side is small"
        )
    has_same_key = not node.left_index and _format_keys(node) == format_columns(node.left_on)
    move_lines = [
        f"{name} = {name}.{call}.persist()"
        for name, call in (
            ("left", _format_index_move(node.left, node.left_on, node.left_index, has_same_key)),
            (
                "right",
                _format_index_move(node.right, node.right_on, node.right_index, has_same_key),
            ),
        )
        if call
    ]
    if not move_lines or any("set_index([" in line for line in move_lines):
        return "# one join of two large sides has to move them: filter and select columns before it"
    join = f"left.merge(right, {_format_arguments(node, indexed=True)})"
    lines = ["# for several joins on this key: move the rows once", *move_lines]
    return "\n".join([*lines, f"{join}.reset_index()" if has_same_key else join])


def _format_index_move(side: Any, on: Any, on_index: bool, has_same_key: bool) -> str:
    """Return the code that makes the key of a side its sorted index; empty if it is already."""
    if not on_index:
        return f"set_index({format_columns(on)}{'' if has_same_key else ', drop=False'})"
    if side.known_divisions:
        return ""
    name = side._meta.index.name
    column = "index" if name is None else name
    return f"reset_index().set_index({column!r})"


def _is_aligned_by_shuffle(node: Any) -> bool:
    """Return whether Dask aligns frames by a shuffle, because divisions are unknown."""
    frames = node.args
    if isinstance(node, OpAlignPartitions) or len(frames) < 2 or node.divisions[0] is not None:
        return False
    return any(frame.npartitions > 1 for frame in frames)


def _make_alignment_finding(plan: QueryPlan, node: Any) -> Finding:
    unknown = [frame for frame in node.args if not frame.known_divisions]
    return Finding(
        "align",
        f"{type(node).__name__.removesuffix('Align').removesuffix('Partitions').lower()} of "
        f"{plural(len(node.args), 'frame')} by their index",
        plan.describe(*node.args),
        f"every row of all of them moves, because the divisions of {len(unknown)} are not known",
        "df = df.reset_index().set_index('index', sorted=True)  # if its index is sorted",
        "df = df.reset_index().set_index('index').persist()  # each of the frames, once",
        plan.total_bytes(*node.args),
    )
