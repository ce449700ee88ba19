"""Rules for Python calls per row, and for lookups that read every partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hyperplane.collections.frames.explain.query_plan import QueryPlan, StepFinding, format_function
from hyperplane.collections.frames.explain.report import Finding
from hyperplane.core.dask_internals.frames import Apply, FunctionMap, LocUnknown


def find_python_calls(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``apply(axis=1)``, and string methods on columns of Python objects."""
    for node in plan.simplified_steps:
        if isinstance(node, Apply) and (node.kwargs or {}).get("axis") in (1, "columns"):
            yield StepFinding(_make_apply_finding(plan, node), node)
        elif (
            isinstance(node, FunctionMap)
            and node.accessor == "str"
            and _holds_python_strings(node.frame)
        ):
            yield StepFinding(_make_string_finding(plan, node), node)


def _make_apply_finding(plan: QueryPlan, node: Any) -> Finding:
    name = format_function(node.function)
    return Finding(
        "row_function",
        f"apply({name}, axis=1)",
        plan.describe(node.frame),
        "Python calls the function once per row and holds the GIL",
        f"df.map_partitions({name}_of_columns, meta=meta)"
        "  # e.g. part['a'] * part['b'] for all rows at once",
    )


def _holds_python_strings(frame: Any) -> bool:
    return bool(frame._meta.dtype == object)


def _make_string_finding(plan: QueryPlan, node: Any) -> Finding:
    column = node.frame._meta.name
    return Finding(
        "python_strings",
        f"{column!r}.str.{node.attr}",
        plan.describe(node.frame),
        "the strings are Python objects: one call per row, holding the GIL",
        f"df[{column!r}].astype('string[pyarrow]').str.{node.attr}",
    )


def find_unknown_division_lookups(plan: QueryPlan) -> Iterator[StepFinding]:
    """Yield ``loc`` by label on frames with unknown divisions."""
    for node in plan.simplified_steps:
        if isinstance(node, LocUnknown) and node.frame.npartitions > 1:
            yield StepFinding(
                Finding(
                    "loc_unknown",
                    f"loc[{_format_label(node.iindexer)}]",
                    plan.describe(node.frame),
                    "the divisions are not known, so every partition is read and searched",
                    "df = df.reset_index().set_index('index', sorted=True)"
                    "  # once, if the index is sorted",
                ),
                node,
            )


def _format_label(key: Any) -> str:
    if not isinstance(key, slice):
        return repr(key)
    if key.start == key.stop:
        return repr(key.start)
    return ":".join("" if end is None else repr(end) for end in (key.start, key.stop))
