"""Rules for group-bys that shuffle all rows, or whose large result is in one partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.collections.frames.explain.cardinality import describe_high_cardinality
from hyperplane.collections.frames.explain.query_plan import (
    QueryPlan,
    StepFinding,
    format_columns,
    format_function,
)
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import (
    DropDuplicates,
    Expr,
    GroupbyAggregation,
    GroupByApply,
    GroupByApplyConcatApply,
    GroupByBase,
    GroupByBFill,
    GroupByFFill,
    GroupByMedian,
    GroupByNUnique,
    GroupByReduction,
    GroupByShift,
    GroupByTransform,
    Unique,
    ValueCounts,
)

_METHOD_NAMES = {
    GroupByApply: "apply",
    GroupByTransform: "transform",
    GroupByBFill: "bfill",
    GroupByFFill: "ffill",
    GroupByShift: "shift",
    GroupByMedian: "median",
}
#: Methods whose result depends on the order of the rows in a group.
_ORDERED_METHODS = ("bfill", "ffill", "shift")
_REDUCTIONS = (
    GroupByApplyConcatApply,
    GroupByReduction,
    Unique,
    ValueCounts,
)


def find_groupby_shuffles(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``groupby(...).apply`` and other methods that need all rows of a group at once."""
    for node in plan.simplified_steps:
        if isinstance(node, GroupByApply) and is_shuffled_groupby(node):
            yield StepFinding(_make_shuffle_finding(plan, node), node)
        elif isinstance(node, GroupbyAggregation) and _is_holistic(node):
            yield StepFinding(_make_median_finding(plan, node), node)
        elif isinstance(node, GroupByNUnique) and node.frame.npartitions > 1:
            yield StepFinding(_make_nunique_finding(plan, node), node)


def is_shuffled_groupby(node: Any) -> bool:
    """Return whether Dask shuffles for a group-by; it does not for an index of known divisions."""
    return bool(node.frame.npartitions > 1 and node.need_to_shuffle)


def _is_holistic(node: Any) -> bool:
    """Return whether Dask shuffles for an aggregation that needs all values, such as a median."""
    if node.frame.npartitions < 2 or node._is_decomposable:
        return False
    # Dask decides after one step of lowering, in which an earlier join may become a broadcast join,
    # whose partitions do not have whole groups.
    lowered = node._lower()
    lowered = lowered.substitute(lowered.frame, lowered.frame.lower_once({}))
    return bool(lowered.need_to_shuffle)


def _list_keys(node: Any) -> list[Any]:
    return [key.columns[0] if isinstance(key, Expr) else key for key in node.by]


def _list_key_columns(node: Any) -> tuple[list[Any], str]:
    """Return the key columns, and the code that assigns keys that are expressions."""
    computed = [number for number, key in enumerate(node.by) if isinstance(key, Expr)]
    names = [f"key{number}" if number in computed else key for number, key in enumerate(node.by)]
    assignment = ", ".join(f"{names[number]}=..." for number in computed)
    return (
        names,
        f"df = df.assign({assignment})  # the computed key, as a column\n" if assignment else "",
    )


def _format_slice(node: Any) -> str:
    """Return the column selection after the group-by as code."""
    selection = node._slice
    return "" if selection is None else f"[{selection!r}]"


def _format_groupby(node: Any, by: list[Any]) -> str:
    options = [
        f", {name}=False"
        for name in ("dropna", "group_keys")
        if name in node._parameters and node.operand(name) is False
    ]
    return f"groupby({format_columns(by)}{''.join(options)}){_format_slice(node)}"


def _format_shuffled_groupby(node: Any, call: str, meta: str = "", ordered: bool = False) -> str:
    """Return the code that shuffles once and then calls the method in each partition."""
    by, assignment = _list_key_columns(node)
    # Only this shuffle method keeps the order of rows.
    method, why = (", shuffle_method='tasks'", ": keeps the order of rows") if ordered else ("", "")
    return (
        f"{assignment}df = df.shuffle({format_columns(by)}{method}).persist()"
        f"  # once, for all that needs whole groups{why}\n"
        f"df.map_partitions(lambda part: part.{_format_groupby(node, by)}.{call}{meta})"
    )


def _make_shuffle_finding(plan: QueryPlan, node: Any) -> Finding:
    method = _METHOD_NAMES.get(type(node), type(node).__name__.removeprefix("GroupBy").lower())
    arguments = _format_arguments(node)
    meta = "" if method in {"bfill", "ffill", "median"} else ", meta=meta"
    arguments_with_meta = ", ".join(filter(None, [arguments, meta.removeprefix(", ")]))
    by, ordered = _list_keys(node), method in _ORDERED_METHODS
    why = "every row moves, so that each group is whole in one partition"
    if method in {"bfill", "ffill"}:  # for shift Dask sorts by the index after the shuffle
        why += "; the order of rows within a group may change"
    return Finding(
        f"groupby_{method}",
        f"groupby({format_columns(by)}){_format_slice(node)}.{method}",
        plan.describe(node.frame),
        why,
        _format_shuffled_groupby(node, f"{method}({arguments})", meta, ordered),
        f"result = df.{_format_groupby(node, by)}.{method}({arguments_with_meta}).persist()",
        plan.total_bytes(node.frame),
    )


def _format_arguments(node: Any) -> str:
    """Return the function and its arguments as code."""
    if type(node) in (GroupByApply, GroupByTransform):
        function = node.operand("func")
        name = repr(function) if isinstance(function, str) else format_function(function)
        variable_arguments = (
            ", *args" * bool(node.operand("args")),
            ", **kwargs" * bool(node.operand("kwargs")),
        )
        return name + "".join(variable_arguments)
    options = node.operand("kwargs") or {}
    return ", ".join(
        f"{name}={value!r}" for name, value in options.items() if value not in (None, False)
    )


def _make_median_finding(plan: QueryPlan, node: Any) -> Finding:
    by, call = _list_keys(node), f"agg({node.arg!r})"
    return Finding(
        "groupby_median",
        f"groupby({format_columns(by)}){_format_slice(node)}.agg with a median",
        plan.describe(node.frame),
        "a median needs all values of its group: every row moves",
        _format_shuffled_groupby(node, call),
        f"result = df.{_format_groupby(node, by)}.{call}.persist()",
        plan.total_bytes(node.frame),
    )


def _make_nunique_finding(plan: QueryPlan, node: Any) -> Finding:
    by, assignment = _list_key_columns(node)
    pairs = by if node._slice is None else [*by, node._slice]
    return Finding(
        "groupby_nunique",
        f"groupby({format_columns(_list_keys(node))}){_format_slice(node)}.nunique",
        plan.describe(node.frame),
        f"the distinct rows of {format_columns(pairs)} move, which may be nearly all rows",
        f"{assignment}pairs = df[{pairs!r}].drop_duplicates().persist()  # for several counts\n"
        f"pairs.groupby({format_columns(by)}){_format_slice(node)}.count()",
        f"result = df.{_format_groupby(node, _list_keys(node))}.nunique().persist()",
        plan.total_bytes(node.frame),
    )


def find_large_results(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield reductions to one partition that are known or likely to have very many groups."""
    for node in plan.simplified_steps:
        if (
            not isinstance(node, _REDUCTIONS)
            or node.frame.npartitions < 2
            or not _has_one_partition(node)
        ):
            continue
        columns = _list_group_columns(node)
        reasons = [describe_high_cardinality(plan.sizes, node.frame, key) for key in columns]
        evidence = next(filter(None, reasons), None)
        if evidence:
            yield StepFinding(_make_split_out_finding(plan, node, evidence), node)


def _has_one_partition(node: Any) -> bool:
    """Return whether the result has one partition, after Dask's automatic choice."""
    tuned = node._tune_down() if hasattr(node, "_tune_down") else None
    return not (tuned if isinstance(tuned, Expr) else node).should_shuffle


def _list_group_columns(node: Any) -> list[Any]:
    if _is_groupby(node):
        return [key for key in node.by if not isinstance(key, Expr)]
    subset = getattr(node, "subset", None)
    return list(subset) if subset else list(node.frame.columns)


def _is_groupby(node: Any) -> bool:
    return isinstance(node, GroupByBase)


def _make_split_out_finding(plan: QueryPlan, node: Any, evidence: str) -> Finding:
    code = _format_split_out_call(node)
    call, columns = (
        code.split("(")[0].removeprefix("df."),
        format_columns(_list_group_columns(node)),
    )
    return Finding(
        "split_out",
        f"{call} on {columns} into one partition",
        plan.describe(node.frame),
        f"{evidence}: a single task holds the whole result",
        code,
        moved=plan.total_bytes(node.frame),
    )


def _format_split_out_call(node: Any) -> str:
    name = type(node).__name__.lower()
    if _is_groupby(node):
        call = f"agg({node.arg!r}, " if "arg" in node._parameters else f"{name}("
        by = format_columns(_list_key_columns(node)[0])
        return f"df.groupby({by}, sort=False){_format_slice(node)}.{call}split_out=True)"
    if isinstance(node, DropDuplicates):
        subset = f"subset={list(node.subset)!r}, " if node.subset else ""
        return f"df.drop_duplicates({subset}split_out=True)"
    call = "value_counts(sort=False, " if name == "valuecounts" else f"{name}("
    return f"df[{node.frame._meta.name!r}].{call}split_out=True)"
