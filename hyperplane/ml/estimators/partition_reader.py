"""Features and labels of a partition: arrays of dictionaries, tuples and columns of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import DataError, Fault
from hyperplane.core.public_calls import nearest

#: Inputs and labels of rows; the labels are None if there are none.
Arrays = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...] | None]


@dataclass(frozen=True)
class FeatureReader:
    """Function that returns the features and labels of a partition of any documented form.

    Parameters
    ----------
    features, labels : tuple of str, optional
        Columns of tables: each is one input or one label.
    needs_labels : bool
        Whether a partition without labels is an error.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    >>> FeatureReader(features=("a",), labels=("b",))(frame)
    ((array([1., 2.], dtype=float32),), (array([3, 4]),))
    """

    features: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    needs_labels: bool = True

    def __call__(self, part: Any) -> Arrays:
        """Return the arrays, all with the same number of rows."""
        x, y = self._split(part)
        if y is None and self.needs_labels:
            raise DataError("y", "the data has no labels: give {'x': ..., 'y': ...}, or label_cols")
        lengths = {len(array) for array in (*x, *(y or ()))}
        if len(lengths) > 1:
            raise DataError("x", f"the arrays of a partition have {sorted(lengths)} rows")
        return x, y

    def _split(self, part: Any) -> Arrays:
        if isinstance(part, pd.DataFrame):
            return self._read_frame(part)
        if isinstance(part, dict):
            if "x" not in part:
                shown = ", ".join(map(repr, list(part)[:20]))
                raise DataError(
                    "x", f"a shard needs the key 'x', and 'y' for labels; it has {shown}"
                )
            labels = part.get("y")
        elif isinstance(part, tuple | list) and len(part) == 2:
            part, labels = {"x": part[0]}, part[1]
        else:
            part, labels = {"x": part}, None
        return _list_arrays("x", part["x"]), None if labels is None else _list_arrays("y", labels)

    def _read_frame(self, frame: pd.DataFrame) -> Arrays:
        faults = find_column_faults(
            frame.dtypes.to_dict(), self.features, self.labels, self.needs_labels
        )
        if faults:
            raise DataError(faults[0].where, str(faults[0]))
        labels = tuple(_read_column(frame[name]) for name in self.labels or ())
        return tuple(_read_column(frame[name]) for name in self.features or ()), labels or None


def _list_arrays(where: str, value: Any) -> tuple[np.ndarray, ...]:
    """Return the arrays of a single array, or of a tuple or list of arrays."""
    values = value if isinstance(value, tuple | list) else (value,)
    for number, each in enumerate(values):
        if not isinstance(each, np.ndarray) or each.ndim == 0 or each.dtype == object:
            given = describe_array(each)
            raise DataError(
                f"{where}[{number}]", f"{given}; expected an array of numbers with rows"
            )
    return tuple(values)


def describe_array(value: Any) -> str:
    """Return the type of a value for a message.

    Examples
    --------
    >>> describe_array(np.zeros((2, 3))), describe_array("text")
    ('an array of float64 of shape (2, 3)', 'an object of type str')
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"an object of type {type(value).__name__}"


def _read_column(column: pd.Series) -> np.ndarray:
    """Return a column as float32 or integers; cells that are arrays are stacked."""
    if _is_list_type(column.dtype):
        return _stack_lists(column)
    if pd.api.types.is_object_dtype(column.dtype):
        return _stack_cells(column)
    if pd.api.types.is_integer_dtype(column.dtype) and not column.hasnans:
        kind: Any = getattr(column.dtype, "numpy_dtype", column.dtype)
        return column.to_numpy(dtype=kind)
    return column.to_numpy(dtype=np.float32, na_value=np.nan)


def _stack_cells(column: pd.Series) -> np.ndarray:
    if not len(column):
        return np.empty(0, np.float32)
    try:
        stacked = np.stack([np.asarray(cell) for cell in column])
    except ValueError as error:
        raise DataError(str(column.name), f"its cells have different shapes: {error}") from error
    if stacked.dtype.kind not in "iufb":
        raise DataError(str(column.name), "its cells are neither numbers nor arrays of numbers")
    return stacked.astype(np.float32) if stacked.dtype.kind in "fb" else stacked


def _is_list_type(dtype: Any) -> bool:
    """Return whether the cells are Arrow lists of numbers, as in columns of Parquet files."""
    if not isinstance(dtype, pd.ArrowDtype):
        return False
    kind = dtype.pyarrow_dtype
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list or pa.types.is_fixed_size_list(kind)):
        return False
    types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(is_type(kind.value_type) for is_type in types)


def _stack_lists(column: pd.Series) -> np.ndarray:
    lists = pa.chunked_array(column.array.__arrow_array__()).combine_chunks()
    lengths = pc.list_value_length(lists).unique().to_pylist()
    if len(lengths) > 1:
        shown = ", ".join(map(str, lengths[:5]))
        raise DataError(str(column.name), f"its cells have different lengths: {shown}")
    values = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
    stacked = values.reshape(len(lists), -1) if len(lists) else np.empty(0)
    return stacked.astype(np.float32) if stacked.dtype.kind in "fbO" else stacked


def find_column_faults(
    dtypes: dict[Any, Any],
    features: Sequence[str] | None,
    labels: Sequence[str] | None,
    needs_labels: bool,
) -> list[Fault]:
    """Return a fault for each argument that is missing and each column that is not usable.

    Examples
    --------
    >>> faults = find_column_faults({"age": np.dtype(float)}, ["aeg"], None, True)
    >>> [(fault.where, fault.advice) for fault in faults]
    [('feature_cols', 'did you mean age?'), ('label_cols', '')]
    """
    faults = []
    known = [str(name) for name in dtypes]
    for where, names in (("feature_cols", features), ("label_cols", labels)):
        if names is None:
            if where == "feature_cols" or needs_labels:
                faults.append(
                    Fault(where, "None", f"a list of columns of {', '.join(known)[:300]}")
                )
            continue
        for name in names:
            if name not in dtypes:
                near = nearest(name, known)
                advice = f"did you mean {' or '.join(near)}?" if near else ""
                allowed = f"a column of the data: {', '.join(known)[:300]}"
                faults.append(Fault(where, repr(name)[:80], allowed, advice))
            elif not _is_usable(dtypes[name]):
                allowed = "a column of numbers, or of arrays of numbers"
                advice = "encode it as numbers first"
                faults.append(Fault(where, f"{name!r} of type {dtypes[name]}", allowed, advice))
    return faults


def _is_usable(dtype: Any) -> bool:
    types = pd.api.types
    return (
        types.is_object_dtype(dtype)
        or _is_list_type(dtype)
        or types.is_bool_dtype(dtype)
        or (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))
    )


def find_name_faults(where: str, names: Any) -> list[Fault]:
    """Return the fault of an argument that is not None, a name or a list of different names."""
    if names is None or isinstance(names, str):
        return []
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if is_list and names and len(set(names)) == len(names):
        return []
    return [Fault(where, describe_value(names), "a list of different names of columns")]
