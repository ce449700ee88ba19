"""Work at the speed of Python, and look-ups that read everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.dataframe.dask_expr._accessor import FunctionMap
from dask.dataframe.dask_expr._expr import Apply
from dask.dataframe.dask_expr._indexing import LocUnknown

from hyperplane.collections.frames.explain.query_plan import Facts, Found, function_name
from hyperplane.collections.frames.explain.report import Finding


def python_rows(facts: Facts) -> Iterator[Found]:
    """``apply(axis=1)``, and string methods on columns of Python objects."""
    for node in facts.nodes:
        if isinstance(node, Apply) and (node.kwargs or {}).get("axis") in (1, "columns"):
            yield Found(_apply(facts, node), node)
        elif isinstance(node, FunctionMap) and node.accessor == "str" and _python_text(node.frame):
            yield Found(_strings(facts, node), node)


def _apply(facts: Facts, node: Any) -> Finding:
    name = function_name(node.function)
    return Finding(
        "row_function",
        f"apply({name}, axis=1)",
        facts.about(node.frame),
        "Python calls the function once a row, and holds the interpreter's lock all the while",
        f"df.map_partitions({name}_of_columns, meta=meta)"
        "  # e.g. part['a'] * part['b'] for all rows at once",
    )


def _python_text(frame: Any) -> bool:
    return bool(frame._meta.dtype == object)


def _strings(facts: Facts, node: Any) -> Finding:
    column = node.frame._meta.name
    return Finding(
        "python_strings",
        f"{column!r}.str.{node.attr}",
        facts.about(node.frame),
        "the texts are Python objects: one call a row, under the interpreter's lock",
        f"df[{column!r}].astype('string[pyarrow]').str.{node.attr}",
    )


def unknown_look_up(facts: Facts) -> Iterator[Found]:
    """``loc`` by label where the divisions are not known."""
    for node in facts.nodes:
        if isinstance(node, LocUnknown) and node.frame.npartitions > 1:
            yield Found(
                Finding(
                    "loc_unknown",
                    f"loc[{_label(node.iindexer)}]",
                    facts.about(node.frame),
                    "the divisions are not known, so every partition is read and looked through",
                    "df = df.reset_index().set_index('index', sorted=True)"
                    "  # once, if the index is sorted",
                ),
                node,
            )


def _label(key: Any) -> str:
    if not isinstance(key, slice):
        return repr(key)
    if key.start == key.stop:
        return repr(key.start)
    return ":".join("" if end is None else repr(end) for end in (key.start, key.stop))
