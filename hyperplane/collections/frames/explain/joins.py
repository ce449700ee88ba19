"""Joins that shuffle one side or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.dataframe.dask_expr._expr import MaybeAlignPartitions, OpAlignPartitions
from dask.dataframe.dask_expr._merge import Merge
from dask.dataframe.dask_expr._merge_asof import MergeAsof

from hyperplane.collections.frames.explain.query_plan import Facts, Found, shown
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.units import plural

#: A side of a join of at most this many bytes is better copied to the partitions of the other.
SMALL_SIDE = 100_000_000

_COPIES_RIGHT = ("inner", "left", "leftsemi")
_COPIES_LEFT = ("inner", "right")


def joining(facts: Facts) -> Iterator[Found]:
    """``merge`` and ``join`` where rows have to meet, and arithmetic of unaligned frames."""
    for node in facts.nodes:
        if isinstance(node, Merge) and not isinstance(node, MergeAsof):
            moving = shuffled_sides(node)
            if moving:
                yield Found(_join(facts, node, moving), node)
        elif isinstance(node, MaybeAlignPartitions) and _aligns_by_shuffle(node):
            yield Found(_align(facts, node), node)


def shuffled_sides(node: Any) -> list[str]:
    """Which sides of a join Dask will shuffle: it decides as here, from the same properties."""
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


def _join(facts: Facts, node: Any, moving: list[str]) -> Finding:
    sides = [getattr(node, name) for name in moving]
    who = "both sides" if len(moving) == 2 else f"the {moving[0]} side"
    on_index = node.left_index and node.right_index
    why = f"every row of {who} moves to the partition of its key"
    if on_index:
        unknown = [name for name in moving if not getattr(node, name).known_divisions]
        why += f", because the divisions of {' and '.join(unknown)} are not known"
    call = f"left.merge(right, {_arguments(node)})"
    return Finding(
        "join",
        f"{node.how} join on {'the index' if on_index else _keys(node)}",
        facts.about(node.left, node.right),
        why,
        _instead(facts, node),
        f"joined = {call}.persist()",
        facts.moved(*sides),
    )


def _keys(node: Any) -> str:
    left = "the index" if node.left_index else shown(node.left_on)
    right = "the index" if node.right_index else shown(node.right_on)
    return left if left == right else f"{left} = {right}"


def _arguments(node: Any, indexed: bool = False) -> str:
    """The arguments of the merge, as code; or of the same merge on the index of both sides."""
    keys = {name: node.operand(name) for name in ("left_on", "right_on")}
    flags = {name: node.operand(name) for name in ("left_index", "right_index")}
    if indexed:
        keys, flags = {}, dict.fromkeys(flags, True)
    given = [f"{name}={shown(value)}" for name, value in keys.items() if value is not None]
    if len(given) == 2 and shown(keys["left_on"]) == shown(keys["right_on"]):
        given = [f"on={shown(keys['left_on'])}"]
    given += [f"{name}=True" for name, value in flags.items() if value]
    if node.how != "inner":
        given.append(f"how={node.how!r}")
    if tuple(node.suffixes) != ("_x", "_y"):
        given.append(f"suffixes={tuple(node.suffixes)!r}")
    return ", ".join(given)


def _instead(facts: Facts, node: Any) -> str:
    """The cheapest form that what is known of the sides allows."""
    left, right = facts.size(node.left), facts.size(node.right)
    arguments = _arguments(node)
    if right and right.total <= SMALL_SIDE and node.how in _COPIES_RIGHT:
        return (
            f"left.merge(right.repartition(npartitions=1), {arguments})  # the right side is small"
        )
    if left and left.total <= SMALL_SIDE and node.how in _COPIES_LEFT:
        return (
            f"left.repartition(npartitions=1).merge(right, {arguments})  # the left side is small"
        )
    same = not node.left_index and _keys(node) == shown(node.left_on)
    moves = [
        f"{name} = {name}.{call}.persist()"
        for name, call in (
            ("left", _to_index(node.left, node.left_on, node.left_index, same)),
            ("right", _to_index(node.right, node.right_on, node.right_index, same)),
        )
        if call
    ]
    if not moves or any("set_index([" in line for line in moves):
        return "# one join of two large sides has to move them: filter and select columns before it"
    join = f"left.merge(right, {_arguments(node, indexed=True)})"
    lines = ["# for several joins on this key: move the rows once", *moves]
    return "\n".join([*lines, f"{join}.reset_index()" if same else join])


def _to_index(side: Any, on: Any, index: bool, same: bool) -> str:
    """How a side gets its key as a sorted index; its column stays where the other has no such."""
    if not index:
        return f"set_index({shown(on)}{'' if same else ', drop=False'})"
    if side.known_divisions:
        return ""
    name = side._meta.index.name
    column = "index" if name is None else name
    return f"reset_index().set_index({column!r})"


def _aligns_by_shuffle(node: Any) -> bool:
    """Whether Dask has to bring frames together by their index without knowing where it is."""
    frames = node.args
    if isinstance(node, OpAlignPartitions) or len(frames) < 2 or node.divisions[0] is not None:
        return False
    return any(frame.npartitions > 1 for frame in frames)


def _align(facts: Facts, node: Any) -> Finding:
    unknown = [frame for frame in node.args if not frame.known_divisions]
    return Finding(
        "align",
        f"{type(node).__name__.removesuffix('Align').removesuffix('Partitions').lower()} of "
        f"{plural(len(node.args), 'frame')} by their index",
        facts.about(*node.args),
        f"every row of all of them moves, because the divisions of {len(unknown)} are not known",
        "df = df.reset_index().set_index('index', sorted=True)  # if its index is sorted",
        "df = df.reset_index().set_index('index').persist()  # each of the frames, once",
        facts.moved(*node.args),
    )
