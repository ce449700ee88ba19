"""Group-bys that move every row, and those whose result ends up in one partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.dataframe.dask_expr import _groupby, _reductions
from dask.dataframe.dask_expr._expr import Expr

from hyperplane.collections.frames.explain.cardinality import many_values
from hyperplane.collections.frames.explain.query_plan import Facts, Found, function_name, shown
from hyperplane.collections.frames.explain.report import Finding

_METHODS = {
    _groupby.GroupByApply: "apply",
    _groupby.GroupByTransform: "transform",
    _groupby.GroupByBFill: "bfill",
    _groupby.GroupByFFill: "ffill",
    _groupby.GroupByShift: "shift",
    _groupby.Median: "median",
}
_ORDERED = ("bfill", "ffill", "shift")
_REDUCTIONS = (
    _groupby.GroupByApplyConcatApply,
    _groupby.GroupByReduction,
    _reductions.Unique,
    _reductions.ValueCounts,
)


def whole_groups(facts: Facts) -> Iterator[Found]:
    """``groupby(...).apply`` and others that need all rows of a group in one place."""
    for node in facts.nodes:
        if isinstance(node, _groupby.GroupByApply) and brings_groups_together(node):
            yield Found(_whole_groups(facts, node), node)
        elif isinstance(node, _groupby.GroupbyAggregation) and _holistic(node):
            yield Found(_median(facts, node), node)
        elif isinstance(node, _groupby.NUnique) and node.frame.npartitions > 1:
            yield Found(_nunique(facts, node), node)


def brings_groups_together(node: Any) -> bool:
    """Whether Dask shuffles for this group-by: it does not on an index with known divisions."""
    return bool(node.frame.npartitions > 1 and node.need_to_shuffle)


def _holistic(node: Any) -> bool:
    return bool(
        node.frame.npartitions > 1 and not node._is_decomposable and node._lower().need_to_shuffle
    )


def _by(node: Any) -> list[Any]:
    return [key.columns[0] if isinstance(key, Expr) else key for key in node.by]


def _key_columns(node: Any) -> tuple[list[Any], str]:
    """The keys as columns, and the line that makes columns of those that are computed."""
    computed = [place for place, key in enumerate(node.by) if isinstance(key, Expr)]
    names = [f"key{place}" if place in computed else key for place, key in enumerate(node.by)]
    made = ", ".join(f"{names[place]}=..." for place in computed)
    return names, f"df = df.assign({made})  # the computed key, as a column\n" if made else ""


def _sliced(node: Any) -> str:
    """The selection of columns after the group-by, as code."""
    chosen = node._slice
    return "" if chosen is None else f"[{chosen!r}]"


def _grouped(node: Any, by: list[Any]) -> str:
    given = [
        f", {name}=False"
        for name in ("dropna", "group_keys")
        if name in node._parameters and node.operand(name) is False
    ]
    return f"groupby({shown(by)}{''.join(given)}){_sliced(node)}"


def _in_place(node: Any, call: str, meta: str = "", ordered: bool = False) -> str:
    """The same on groups that are whole already."""
    by, made = _key_columns(node)
    # Other methods keep what arrives in the order of its arrival.
    method, why = (", shuffle_method='tasks'", ": keeps the order of rows") if ordered else ("", "")
    return (
        f"{made}df = df.shuffle({shown(by)}{method}).persist()"
        f"  # once, for all that needs whole groups{why}\n"
        f"df.map_partitions(lambda part: part.{_grouped(node, by)}.{call}{meta})"
    )


def _whole_groups(facts: Facts, node: Any) -> Finding:
    method = _METHODS.get(type(node), type(node).__name__.removeprefix("GroupBy").lower())
    arguments = _arguments(node)
    meta = "" if method in {"bfill", "ffill", "median"} else ", meta=meta"
    usual = ", ".join(filter(None, [arguments, meta.removeprefix(", ")]))
    by, ordered = _by(node), method in _ORDERED
    why = "every row moves, so that each group is whole in one partition"
    if method in {"bfill", "ffill"}:  # for a shift Dask sorts them by the index afterwards
        why += "; rows of a group may change their order on the way"
    return Finding(
        f"groupby_{method}",
        f"groupby({shown(by)}){_sliced(node)}.{method}",
        facts.about(node.frame),
        why,
        _in_place(node, f"{method}({arguments})", meta, ordered),
        f"result = df.{_grouped(node, by)}.{method}({usual}).persist()",
        facts.moved(node.frame),
    )


def _arguments(node: Any) -> str:
    """The function and its arguments, as code."""
    if type(node) in (_groupby.GroupByApply, _groupby.GroupByTransform):
        function = node.operand("func")
        name = repr(function) if isinstance(function, str) else function_name(function)
        more = (", *args" * bool(node.operand("args")), ", **kwargs" * bool(node.operand("kwargs")))
        return name + "".join(more)
    given = node.operand("kwargs") or {}
    return ", ".join(
        f"{name}={value!r}" for name, value in given.items() if value not in (None, False)
    )


def _median(facts: Facts, node: Any) -> Finding:
    by, call = _by(node), f"agg({node.arg!r})"
    return Finding(
        "groupby_median",
        f"groupby({shown(by)}){_sliced(node)}.agg with a median",
        facts.about(node.frame),
        "a median needs all values of its group: every row moves",
        _in_place(node, call),
        f"result = df.{_grouped(node, by)}.{call}.persist()",
        facts.moved(node.frame),
    )


def _nunique(facts: Facts, node: Any) -> Finding:
    by, made = _key_columns(node)
    pairs = by if node._slice is None else [*by, node._slice]
    return Finding(
        "groupby_nunique",
        f"groupby({shown(_by(node))}){_sliced(node)}.nunique",
        facts.about(node.frame),
        f"the distinct rows of {shown(pairs)} move; near as many as all rows, if most are distinct",
        f"{made}pairs = df[{pairs!r}].drop_duplicates().persist()  # for several counts over them\n"
        f"pairs.groupby({shown(by)}){_sliced(node)}.count()",
        f"result = df.{_grouped(node, _by(node))}.nunique().persist()",
        facts.moved(node.frame),
    )


def many_groups(facts: Facts) -> Iterator[Found]:
    """Reductions to one partition whose groups are known, or likely, to be very many."""
    for node in facts.nodes:
        if not isinstance(node, _REDUCTIONS) or node.frame.npartitions < 2 or not _to_one(node):
            continue
        told = [many_values(facts.sizes, node.frame, key) for key in _keys(node)]
        evidence = next(filter(None, told), None)
        if evidence:
            yield Found(_split_out(facts, node, evidence), node)


def _to_one(node: Any) -> bool:
    """Whether the result is one partition, after Dask has chosen where it was left the choice."""
    chosen = node._tune_down() if hasattr(node, "_tune_down") else None
    return not (chosen if isinstance(chosen, Expr) else node).should_shuffle


def _keys(node: Any) -> list[Any]:
    if _groups(node):
        return [key for key in node.by if not isinstance(key, Expr)]
    subset = getattr(node, "subset", None)
    return list(subset) if subset else list(node.frame.columns)


def _groups(node: Any) -> bool:
    return isinstance(node, _groupby.GroupByBase)


def _split_out(facts: Facts, node: Any, evidence: str) -> Finding:
    code = _with_split_out(node)
    return Finding(
        "split_out",
        f"{code.split('(')[0].removeprefix('df.')} on {shown(_keys(node))} into one partition",
        facts.about(node.frame),
        f"{evidence}: one task has to hold all of the result",
        code,
        moved=facts.moved(node.frame),
    )


def _with_split_out(node: Any) -> str:
    name = type(node).__name__.lower()
    if _groups(node):
        call = f"agg({node.arg!r}, " if "arg" in node._parameters else f"{name}("
        by = shown(_key_columns(node)[0])
        return f"df.groupby({by}, sort=False){_sliced(node)}.{call}split_out=True)"
    if isinstance(node, _reductions.DropDuplicates):
        subset = f"subset={list(node.subset)!r}, " if node.subset else ""
        return f"df.drop_duplicates({subset}split_out=True)"
    call = "value_counts(sort=False, " if name == "valuecounts" else f"{name}("
    return f"df[{node.frame._meta.name!r}].{call}split_out=True)"
