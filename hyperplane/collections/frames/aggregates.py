"""The ``agg`` argument: parsed into partial states that tasks compute and merge.

Each aggregation function needs a few *partial states* per group. A task computes them from the
rows of its partition, further tasks merge them, and the last one computes the value from them.
Variances are merged from counts, means and sums of squared deviations (Chan, Golub and LeVeque,
1979), which keeps the precision that sums of squares lose by cancellation.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.arguments import make_unknown_column_fault
from hyperplane.core.errors import Fault, check
from hyperplane.formats.pandas_frames.column_names import escape

#: Function -> kinds of the states that it needs.
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
#: States that grow with the number of values of a group. A tree reduction would move all of them
#: at every level, so they are exchanged by key.
GROWING_STATES = frozenset({"set", "values"})
#: Functions that are 0, not missing, for a window without rows.
ZERO_WHEN_EMPTY = frozenset({"sum", "count", "size", "nunique"})
#: Functions of numbers and booleans only; ``sum`` is also defined for durations.
NUMERIC_FUNCTIONS = frozenset({"sum", "mean", "std", "var", "median"})
#: Functions that are computed in double precision.
FLOAT64_FUNCTIONS = frozenset({"mean", "std", "var"})

#: Errors of pandas for a type that has no such function or cannot be grouped.
_AGG_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    NotImplementedError,
    AttributeError,
    ArithmeticError,
)
#: id of a callable -> name of the function. ``__name__`` does not identify it: a user's function
#: may be named "median", too.
_FUNCTION_NAMES = {
    id(function): name
    for name in ("sum", "mean", "min", "max", "count", "nunique", "median", "std", "var")
    for function in (getattr(pd.Series, name), getattr(builtins, name, None))
    if function is not None
} | {id(getattr(np, name)): name for name in ("sum", "mean", "min", "max", "median")}

AggSpec = Mapping[str, str | Callable[..., Any] | Sequence[str | Callable[..., Any]]]


@dataclass(frozen=True)
class PartialState:
    """One partial state of one column."""

    #: Column of the rows.
    column: str
    #: Kind of state, one of the values of STATES_OF_FUNCTION.
    kind: str
    #: Column of the state in partial tables.
    name: str
    #: Column whose order defines ``first`` and ``last``; None for the order of the rows.
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
    """A parsed ``agg`` argument."""

    outputs: tuple[OutputColumn, ...]
    #: All states without duplicates; functions of one column share states.
    states: tuple[PartialState, ...]
    #: Whether the result's columns are pairs (column, function), as in pandas when ``agg`` has
    #: lists of functions.
    nested: bool

    @property
    def columns(self) -> list[str]:
        """Input columns without duplicates."""
        return list(dict.fromkeys(state.column for state in self.states))

    @property
    def has_growing_states(self) -> bool:
        """Whether a state grows with the number of values of a group."""
        return any(state.kind in GROWING_STATES for state in self.states)

    def escape_names(self) -> Aggregation:
        """Return this aggregation with escaped names of the input columns."""
        states = {state: _escape_state(state) for state in self.states}
        outputs = tuple(
            replace(
                output,
                column=escape(output.column),
                states=tuple(states[state] for state in output.states),
            )
            for output in self.outputs
        )
        return replace(self, outputs=outputs, states=tuple(states.values()))

    @property
    def labels(self) -> pd.Index[Any]:
        """Columns of the result."""
        if self.nested:
            pairs = [(output.column, output.function) for output in self.outputs]
            return pd.MultiIndex.from_tuples(pairs)
        return pd.Index([output.column for output in self.outputs])


def parse_agg(like: pd.DataFrame, agg: AggSpec, order: str | None = None) -> Aggregation:
    """Parse an ``agg`` argument and check it against the columns and types of an empty frame.

    A function is a name or a callable such as ``np.sum``. ``order`` is the column whose order
    defines ``first`` and ``last``; None for the order of the rows. A RequestError has a fault for
    each unknown column, each unknown function and each function that is not defined for the type
    of its column.
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
            states_of_output = tuple(
                states.setdefault(
                    (column, kind),
                    PartialState(column, kind, f"__{len(states)}_{kind}_{column}__", order),
                )
                for kind in STATES_OF_FUNCTION[name]
            )
            try:
                result_dtype = _find_result_dtype(like[column].dtype, name)
            except _AGG_ERRORS:
                given = f"{name!r} of a column of type {like[column].dtype}"
                allowed = "functions that pandas supports for this type"
                faults.append(Fault(f"agg[{column!r}]", given, allowed))
                continue
            outputs.append(OutputColumn(column, name, states_of_output, result_dtype))
    check(faults)
    return Aggregation(tuple(outputs), tuple(states.values()), nested)


def _escape_state(state: PartialState) -> PartialState:
    return replace(state, column=escape(state.column), order=escape(state.order))


def _is_list(functions: Any) -> bool:
    return isinstance(functions, Sequence) and not isinstance(functions, str)


def _find_function_fault(dtype: Any, column: str, name: str, given: str) -> Fault | None:
    """Return a fault if a function is unknown or not defined for the type of its column.

    ``given`` is the function as the user wrote it.
    """
    where = f"agg[{column!r}]"
    if name not in STATES_OF_FUNCTION:
        advice = "for other functions use df.groupby(...).apply(...), which shuffles all rows"
        return Fault(where, given, "one of " + ", ".join(STATES_OF_FUNCTION), advice)
    call = f"{name!r} of a column of type {dtype}"
    if name in NUMERIC_FUNCTIONS and not _accepts_numeric_function(dtype, name):
        return Fault(
            where,
            call,
            "numbers, booleans and durations" if name == "sum" else "numbers and booleans",
        )
    if name in ("min", "max") and isinstance(dtype, pd.CategoricalDtype):
        return Fault(where, call, "types with an order", "convert it to text or codes first")
    return None


def _accepts_numeric_function(dtype: Any, name: str) -> bool:
    """Return whether a function of NUMERIC_FUNCTIONS is defined for a type."""
    types = pd.api.types
    if types.is_timedelta64_dtype(dtype):
        return name == "sum"
    return bool(
        (types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype))
        and not types.is_complex_dtype(dtype)
        and not isinstance(dtype, pd.CategoricalDtype)
    )


def _find_result_dtype(dtype: Any, function: str) -> Any:
    """Return the result type of pandas, found by aggregating two rows with pandas.

    It is widened if the kernel computes in a wider type.
    """
    values = pd.Series([0, 0], dtype="int64")
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_float16(dtype.pyarrow_dtype):
        if function in ("first", "last", "min", "max"):
            return dtype  # pandas cannot group Arrow's float16, and keeps NumPy's float16
        dtype = pd.ArrowDtype(pa.float32())
    arrow = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else pa.null()
    if pa.types.is_decimal(arrow):
        # pandas 3.0 has no std of decimals, and pandas 2 truncates medians to their digits.
        if function in (*FLOAT64_FUNCTIONS, "median"):
            return pd.ArrowDtype(pa.float64())
        column = pd.Series([Decimal(0), Decimal(0)], dtype=dtype)
    elif pa.types.is_date(arrow):  # if all dates are missing, pandas 3.0 returns the type null
        column = pd.Series([date.min, date.min], dtype=dtype)
    elif not isinstance(dtype, pd.CategoricalDtype) and pd.api.types.is_numeric_dtype(dtype):
        column = values.astype(dtype)
    elif isinstance(dtype, pd.CategoricalDtype) or dtype.kind == "O":
        column = pd.Series([None, None], dtype=dtype)
    else:
        column = pd.Series([None, None]).astype(dtype)
        if pd.api.types.is_bool_dtype(dtype):
            column = pd.Series([True, True]).astype(dtype)
    aggregated = pd.DataFrame({"k": [0, 1], "v": column}).groupby("k").agg({"v": function})
    return _widen_result_dtype(aggregated["v"].dtype, function)


def _widen_result_dtype(dtype: Any, function: str) -> Any:
    """Return the type that the kernel computes, if it is wider than the type of pandas."""
    if function in ("sum", "median") and dtype == np.dtype("float16"):
        return np.dtype("float32")  # the narrowest float of the kernel
    numbers = getattr(dtype, "numpy_dtype", dtype)
    is_decimal = isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)
    is_narrow = isinstance(numbers, np.dtype) and numbers.kind == "f" and numbers.itemsize < 8
    if function not in FLOAT64_FUNCTIONS or not (is_narrow or is_decimal):
        return dtype
    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(pa.float64())
    return np.dtype("float64") if isinstance(dtype, np.dtype) else pd.Float64Dtype()
