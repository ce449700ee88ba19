"""Aggregations as partial states that combine, and what is made of these.

Every function that pandas knows by these names is a few *states* per group, which tasks compute
from rows and combine with those of other tasks, and a last step from states to the value.
Variance combines by the rule of Chan, Golub and LeVeque (1979): counts, means and sums of squared
deviations, which stays exact where sums of squares would cancel.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.arguments import make_unknown_column_fault
from hyperplane.collections.frames.column_names import escape
from hyperplane.errors import Fault, check

#: Function -> the states that it needs.
STATES_OF_FUNCTION: dict[str, tuple[str, ...]] = {
    "sum": ("sum",),
    "mean": ("total", "count"),
    "min": ("min",),
    "max": ("max",),
    "count": ("count",),
    "size": ("size",),
    "nunique": ("set",),
    "first": ("first",),
    "last": ("last",),
    "std": ("count", "mean", "m2"),
    "var": ("count", "mean", "m2"),
    "median": ("values",),
}
#: States that grow with the values of a group; to combine them in a tree would move all of them
#: at every level.
GROWING_STATES = frozenset({"set", "values"})
#: Functions whose value for a window without rows is 0, not missing.
ZERO_WHEN_EMPTY = frozenset({"sum", "count", "size", "nunique"})
#: Functions that text and times do not have; durations have sums.
NUMERIC_FUNCTIONS = frozenset({"sum", "mean", "std", "var", "median"})

#: Functions that are computed in double precision.
FLOAT64_FUNCTIONS = frozenset({"mean", "std", "var"})

#: What pandas raises where a type has no such function, or no groups.
_AGG_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    NotImplementedError,
    AttributeError,
    ArithmeticError,
)
#: Callables that mean the same as a name: by identity, since anybody may name a function "first".
_FUNCTION_NAMES = {
    id(function): name
    for name in ("sum", "mean", "min", "max", "count", "nunique", "median", "std", "var")
    for function in (getattr(pd.Series, name), getattr(builtins, name, None))
    if function is not None
} | {id(getattr(np, name)): name for name in ("sum", "mean", "min", "max", "median")}

AggSpec = Mapping[str, str | Callable[..., Any] | Sequence[str | Callable[..., Any]]]


@dataclass(frozen=True)
class PartialState:
    """One partial state of one column.

    Parameters
    ----------
    column : str
        Column of the rows.
    kind : str
        What is kept of it.
    name : str
        Its column in partial tables.
    order : str or None
        Column by which rows come first and last; None for the order that they are in.
    """

    column: str
    kind: str
    name: str
    order: str | None = None


@dataclass(frozen=True)
class OutputColumn:
    """One column of the result."""

    column: str
    function: str
    states: tuple[PartialState, ...]
    dtype: Any


@dataclass(frozen=True)
class Aggregation:
    """A whole ``agg`` argument, understood.

    Parameters
    ----------
    outputs : tuple of Output
        In the order of the result's columns.
    states : tuple of State
        Each once, however many functions share it.
    nested : bool
        Whether the result's columns are pairs (column, function), as pandas has them for lists.
    """

    outputs: tuple[OutputColumn, ...]
    states: tuple[PartialState, ...]
    nested: bool

    @property
    def columns(self) -> list[str]:
        """Input columns that are read."""
        return list(dict.fromkeys(state.column for state in self.states))

    @property
    def has_growing_states(self) -> bool:
        """Whether a state grows with the values of a group."""
        return any(state.kind in GROWING_STATES for state in self.states)

    def escape_names(self) -> Aggregation:
        """The same of columns with escaped names."""
        states = {state: _escape_state(state) for state in self.states}
        outputs = tuple(
            replace(
                out, column=escape(out.column), states=tuple(states[state] for state in out.states)
            )
            for out in self.outputs
        )
        return replace(self, outputs=outputs, states=tuple(states.values()))

    @property
    def labels(self) -> pd.Index[Any]:
        """Columns of the result."""
        if self.nested:
            return pd.MultiIndex.from_tuples([(out.column, out.function) for out in self.outputs])
        return pd.Index([out.column for out in self.outputs])


def parse_agg(like: pd.DataFrame, agg: AggSpec, order: str | None = None) -> Aggregation:
    """Check an ``agg`` argument against the columns and types of a frame.

    Parameters
    ----------
    like : pandas.DataFrame
        An empty frame with the columns and types.
    agg : mapping
        Column -> function or list of functions, by name or as a callable of that name.
    order : str or None
        Column by which rows come first and last; None for the order that they are in.

    Returns
    -------
    Aggregation

    Raises
    ------
    RequestError
        With every unknown column, unknown function and function that a type does not have.
    """
    faults: list[Fault] = []
    if not isinstance(agg, Mapping) or not agg:
        check([Fault("agg", repr(agg), 'a mapping such as {"id": "nunique", "items": "sum"}')])
    outputs: list[OutputColumn] = []
    states: dict[tuple[str, str], PartialState] = {}
    nested = any(_is_list(functions) for functions in agg.values())
    for column, functions in agg.items():
        if column not in like.columns:
            faults.append(make_unknown_column_fault(like, column, "agg column"))
            continue
        if _is_list(functions) and not functions:
            faults.append(Fault(f"agg[{column!r}]", repr(functions), "at least one function"))
        for function in functions if _is_list(functions) else [functions]:  # type: ignore[union-attr]
            name = function if isinstance(function, str) else _FUNCTION_NAMES.get(id(function), "")
            fault = _find_function_fault(like[column].dtype, column, name, repr(function))
            if fault:
                faults.append(fault)
                continue
            needed = tuple(
                states.setdefault(
                    (column, kind),
                    PartialState(column, kind, f"__{len(states)}_{kind}_{column}__", order),
                )
                for kind in STATES_OF_FUNCTION[name]
            )
            try:
                result = _find_result_dtype(like[column].dtype, name)
            except _AGG_ERRORS:
                asked = f"{name!r} of a column of type {like[column].dtype}"
                faults.append(Fault(f"agg[{column!r}]", asked, "functions that pandas has for it"))
                continue
            outputs.append(OutputColumn(column, name, needed, result))
    check(faults)
    return Aggregation(tuple(outputs), tuple(states.values()), nested)


def _escape_state(state: PartialState) -> PartialState:
    return replace(state, column=escape(state.column), order=escape(state.order))


def _is_list(functions: Any) -> bool:
    return isinstance(functions, Sequence) and not isinstance(functions, str)


def _find_function_fault(dtype: Any, column: str, name: str, asked: str) -> Fault | None:
    place = f"agg[{column!r}]"
    if name not in STATES_OF_FUNCTION:
        advice = "compute others with df.groupby(...).apply(...), which moves all rows of a group"
        return Fault(place, asked, "one of " + ", ".join(STATES_OF_FUNCTION), advice)
    text = f"{name!r} of a column of type {dtype}"
    if name in NUMERIC_FUNCTIONS and not _accepts_numeric_function(dtype, name):
        return Fault(place, text, "numbers and booleans" + (", durations" * (name == "sum")))
    if name in ("min", "max") and isinstance(dtype, pd.CategoricalDtype):
        return Fault(place, text, "types with an order", "turn it into text or codes first")
    return None


def _accepts_numeric_function(dtype: Any, name: str) -> bool:
    kinds = pd.api.types
    if kinds.is_timedelta64_dtype(dtype):
        return name == "sum"
    return bool(
        (kinds.is_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype))
        and not kinds.is_complex_dtype(dtype)
        and not isinstance(dtype, pd.CategoricalDtype)
    )


def _find_result_dtype(dtype: Any, function: str) -> Any:
    """The type that pandas gives; asked from pandas itself, on two rows without a value."""
    values = pd.Series([0, 0], dtype="int64")
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_float16(dtype.pyarrow_dtype):
        if function in ("first", "last", "min", "max"):
            return dtype  # as of NumPy's; pandas groups none of Arrow's
        dtype = pd.ArrowDtype(pa.float32())
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        column = pd.Series([Decimal(0), Decimal(0)], dtype=dtype)
    elif not isinstance(dtype, pd.CategoricalDtype) and pd.api.types.is_numeric_dtype(dtype):
        column = values.astype(dtype)
    elif isinstance(dtype, pd.CategoricalDtype) or dtype.kind == "O":
        column = pd.Series([None, None], dtype=dtype)
    else:
        column = pd.Series([None, None]).astype(dtype)
        if pd.api.types.is_bool_dtype(dtype):
            column = pd.Series([True, True]).astype(dtype)
    made = pd.DataFrame({"k": [0, 1], "v": column}).groupby("k").agg({"v": function})
    return _widen_result_dtype(made["v"].dtype, function)


def _widen_result_dtype(dtype: Any, function: str) -> Any:
    """The type of the values that are computed, where it is wider than that of pandas."""
    if function in ("sum", "median") and dtype == np.dtype("float16"):
        return np.dtype("float32")  # the least that the kernel computes with
    numbers = getattr(dtype, "numpy_dtype", dtype)
    decimal = isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)
    short = isinstance(numbers, np.dtype) and numbers.kind == "f" and numbers.itemsize < 8
    if function not in FLOAT64_FUNCTIONS or not (short or decimal):
        return dtype
    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(pa.float64())
    return np.dtype("float64") if isinstance(dtype, np.dtype) else pd.Float64Dtype()
