"""GroupAggregation of groups of rows, for ``XShards.group_by``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hyperplane.collections.frames.arguments import find_column_faults, list_names
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault

#: Names of functions, those of Spark included -> functions that Dask combines from partitions.
_FUNCTIONS = {
    **{name: name for name in ("count", "sum", "mean", "min", "max", "std", "var")},
    **{"first": "first", "last": "last"},
    **{"avg": "mean", "stddev": "std", "stddev_samp": "std"},
    **{"variance": "var", "var_samp": "var"},
}
#: Functions of numbers only.
_OF_NUMBERS = frozenset({"sum", "mean", "std", "var"})
#: Columns that are added for a group of all rows, and to count rows.
_GROUP, _ROWS = "__group", "__rows"


class GroupAggregation(NamedTuple):
    """A column of the result: the function of a column, and its name."""

    column: str
    function: str
    name: str


_COUNT_ROWS = GroupAggregation(_ROWS, "sum", "count(1)")


def read_aggregations(
    agg: Any, df: Any, names: Sequence[str], faults: list[Fault]
) -> list[GroupAggregation]:
    """Return the columns of the result, and add faults to a list."""
    others = [name for name in df.columns if name not in names]
    numbers = set(df.select_dtypes("number").columns)
    if isinstance(agg, Mapping):
        requests = {name: list_names(functions) for name, functions in agg.items()}
        faults += find_column_faults(df._meta, agg=[name for name in requests if name != "*"])
        faults += [
            Fault("agg", repr(name), "a column that is not in columns")
            for name in requests
            if name in names
        ]
    else:
        functions = list_names(agg)
        requests = {
            name: [each for each in functions if name in numbers or not _needs_numbers(each)]
            for name in others
        }
        if not others and len(functions) == 1 and is_one_of(functions[0], ["count"]):
            requests = {"*": functions}
    given = [each for functions in requests.values() for each in functions]
    if not isinstance(agg, Mapping):
        given = list_names(agg)
    allowed = "one of " + ", ".join(_FUNCTIONS)
    wrong = {repr(each)[:80] for each in given if not is_one_of(each, _FUNCTIONS)}
    faults += [Fault("agg", each, allowed) for each in sorted(wrong)]
    if not given:
        faults.append(Fault("agg", repr(agg)[:80], f"{allowed}, a list, or a dict of columns"))
    found = []
    for name, functions in requests.items():
        for each in functions:
            if name == "*" and each == "count":
                found.append(_COUNT_ROWS)
            elif name == "*":
                faults.append(Fault("agg", f"{each!r} of '*'", "'count' of '*', or a column"))
            elif _needs_numbers(each) and name in df.columns and name not in numbers:
                given_type = f"{name!r} of type {df[name].dtype}"
                faults.append(Fault("agg", given_type, f"a column of numbers for {each}"))
            elif is_one_of(each, _FUNCTIONS):
                found.append(GroupAggregation(name, _FUNCTIONS[each], f"{each}({name})"))
    if not found and not faults:
        faults.append(Fault("agg", repr(agg)[:80], "columns of numbers beside those of groups"))
    return found


def _needs_numbers(function: Any) -> bool:
    return is_one_of(function, _FUNCTIONS) and _FUNCTIONS[function] in _OF_NUMBERS


def aggregate(df: Any, names: list[str], aggregations: Sequence[GroupAggregation]) -> Any:
    """Return one row for each group; without names, all rows are one group."""
    keys = names or [_GROUP]
    if not names:
        df = df.assign(**{_GROUP: 0})
    if _COUNT_ROWS in aggregations:
        df = df.assign(**{_ROWS: 1})
    spec: dict[str, list[str]] = {}
    for each in aggregations:
        functions = spec.setdefault(each.column, [])
        if each.function not in functions:
            functions.append(each.function)
    df = df[list(dict.fromkeys([*keys, *spec]))]
    result = df.groupby(keys, dropna=False).agg(spec, split_out=df.npartitions if names else 1)
    result = result.map_partitions(
        _flatten, list(aggregations), meta=_flatten(result._meta, list(aggregations))
    )
    return result if names else result.drop(columns=[_GROUP])


def _flatten(frame: Any, aggregations: list[GroupAggregation]) -> Any:
    columns = [(each.column, each.function) for each in aggregations]
    return frame[columns].set_axis([each.name for each in aggregations], axis=1).reset_index()


def join_aggregates(df: Any, result: Any, names: list[str]) -> Any:
    """Add the row of its group to each row."""
    if names:
        return df.merge(result, on=names, how="left")
    of_group = {_GROUP: 0}
    joined = df.assign(**of_group).merge(result.assign(**of_group), on=_GROUP)
    return joined.drop(columns=[_GROUP])
