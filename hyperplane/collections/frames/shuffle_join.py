"""Joins of collections of any size: in Polars, or a shuffle by a type-independent hash and pandas.

pandas joins keys and returns columns of types that Polars does not have, such as objects. Dask's
hash depends on the type of the keys in each partition: booleans with a missing value are
objects, and known and unknown categories have different hashes. Rows with equal keys would be sent
to different partitions and not be joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.declared_cast import cast_to_declared
from hyperplane.collections.frames.helper_steps import JOIN, KeyedTable, register_join
from hyperplane.collections.frames.join_kinds import SELECTING
from hyperplane.collections.frames.join_types import can_join_tables
from hyperplane.collections.frames.shuffle_sides import JoinKeys, is_hashed, shuffle_sides
from hyperplane.collections.frames.table_join import join_as_tables
from hyperplane.collections.frames.task_errors import run_in_partition, run_task
from hyperplane.core.column_cast import cast_column
from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.categories import decode_categories
from hyperplane.formats.pandas_frames.lossless_dtypes import nullable_dtype

#: Column with the position of a row.
_POSITION = "__position__"
#: Results of ``pandas.api.types.infer_dtype`` for columns that may have booleans.
_MAY_HOLD_BOOLEANS = ("boolean", "mixed", "mixed-integer", "categorical")


def shuffle_join(
    left: dd.DataFrame, right: dd.DataFrame, keys: Sequence[str], how: Any, suffixes: Any
) -> dd.DataFrame:
    """Join two collections like ``left.merge(right, on=keys, how=how)``.

    For a semi or anti join, ``right`` has the keys only.
    """
    widen = partial(make_columns_nullable, keys=list(keys)) if how == "left" else _keep_unchanged
    like = _make_meta(left._meta, widen(right._meta), list(keys), how, suffixes)
    if can_join_tables(left._meta, right._meta, keys):
        return join_as_tables(left, right, like, keys, how, suffixes)
    left, right = left.clear_divisions(), right.clear_divisions()
    tables = [KeyedTable(JOIN, side.expr, tuple(keys), 0) for side in (left, right)]
    if right.npartitions > 1:
        types = [side._meta.dtypes for side in (left, right)]
        hashed = [key for key in keys if is_hashed(*(dtypes[key] for dtypes in types))]
        into = max(left.npartitions, right.npartitions)
        join_keys = JoinKeys(tuple(keys), tuple(hashed), into)
        # Rows that are kept without a match must not be copied.
        divided = int(how == "inner" and right.npartitions > left.npartitions)
        if divided:
            right, left = shuffle_sides(right, left, join_keys, is_distinct=False)
        else:
            is_distinct = how in SELECTING
            left, right = shuffle_sides(left, right, join_keys, is_distinct=is_distinct)
        tables[divided] = replace(tables[divided], is_divided=True)
        tables[1 - divided] = replace(tables[1 - divided], receivers=into)
    else:
        left, right = (_cast_side(side, keys) for side in (left, right))
    declared = [side._meta.dtypes for side in (left, right)]
    # For other types the warning of join() reports a mismatch.
    objects = [key for key in keys if all(dtypes[key] == np.dtype(object) for dtypes in declared)]
    merge = partial(
        _merge_partitions, keys=list(keys), how=how, suffixes=suffixes, widen=widen, objects=objects
    )
    result = left.map_partitions(
        merge, right, meta=like, enforce_metadata=False, align_dataframes=False
    )
    register_join(result, tables, suffixes, common=keys, selects=how in SELECTING)
    return result


def _make_meta(
    left: pd.DataFrame, right: pd.DataFrame, keys: list[str], how: Any, suffixes: Any
) -> pd.DataFrame:
    """Return the empty frame of the result; also finds keys that pandas cannot join."""
    selects = how in SELECTING
    merged = left.merge(right, on=keys, how="inner" if selects else how, suffixes=suffixes)
    return left.iloc[:0].reset_index(drop=True) if selects else merged


def _keep_unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def _cast_side(side: dd.DataFrame, keys: Sequence[str]) -> dd.DataFrame:
    """Cast the partitions of a side to the declared types."""
    meta = side._meta
    cast = partial(run_in_partition, cast_to_declared)
    return side.map_partitions(cast, meta, list(keys), meta=meta, enforce_metadata=False)


def _merge_partitions(
    left: pd.DataFrame,
    right: pd.DataFrame,
    keys: list[str],
    how: Any,
    suffixes: Any,
    widen: Any,
    objects: list[str],
) -> pd.DataFrame:
    """Join two partitions; ``objects`` are the keys declared as objects on both sides."""
    sides = [left, right]
    for key in objects:
        for one, other in (sides, sides[::-1]):
            _check_booleans_and_numbers(one[key], other[key], key)
    return run_task(_merge_frames, sides[0], widen(sides[1]), keys, how, suffixes)


def _merge_frames(
    left: pd.DataFrame, right: pd.DataFrame, keys: list[str], how: Any, suffixes: Any
) -> pd.DataFrame:
    """Join two frames with pandas, with keys cast to types that pandas compares exactly.

    The rows of a semi or anti join are rows of ``left``, unchanged.
    """
    left_rows, right_rows = (make_keys_comparable(side, keys) for side in (left, right))
    for key in keys:
        decoded = (_decode_numeric_categories(side[key]) for side in (left_rows, right_rows))
        comparable_keys = _unify_signs(*decoded)
        if comparable_keys is not None:
            left_rows[key], right_rows[key] = comparable_keys
    if how in SELECTING:
        has_match = _find_matches(left_rows[keys], right_rows[keys], keys)
        kept: pd.DataFrame = left[has_match if how == "semi" else ~has_match]
        return kept.reset_index(drop=True)
    result = left_rows.merge(right_rows, on=keys, how=how, suffixes=suffixes)
    for key in keys:
        are_categories = [
            isinstance(frame[key].dtype, pd.CategoricalDtype)
            for frame in (left_rows, right_rows, result)
        ]
        if are_categories[2] and not all(are_categories):
            # A join of categories with another type returns values, except if there are no rows.
            result[key] = decode_categories(result[key]).set_axis(result.index)
        dtype = _decode_numeric_categories(left[key]).dtype
        is_half = _is_float16(dtype) and dtype == right[key].dtype
        numpy_dtype = _get_numpy_dtype(dtype)
        was_integer = numpy_dtype is not None and numpy_dtype.kind in "iu"
        if is_half or (was_integer and left_rows[key].dtype not in (dtype, left[key].dtype)):
            result[key] = cast_column(result[key], dtype)
    return result


def _find_matches(left: pd.DataFrame, right: pd.DataFrame, keys: list[str]) -> np.ndarray[Any, Any]:
    """Return whether each row of the left side has equal keys on the right side."""
    numbered = left.assign(**{_POSITION: np.arange(len(left))})
    # With a distinct right side, the merge has at most one row for each row of the left side.
    matched = numbered.merge(right.drop_duplicates(), on=keys)[_POSITION]
    result = np.zeros(len(left), dtype=bool)
    result[matched.to_numpy(dtype="int64")] = True
    return result


def _check_booleans_and_numbers(values: pd.Series[Any], others: pd.Series[Any], key: str) -> None:
    """Raise DataError if a boolean of one side equals a number of the other, as True and 1."""
    if pd.api.types.infer_dtype(values, skipna=True) not in _MAY_HOLD_BOOLEANS:
        return
    booleans = {value for value in values.tolist() if isinstance(value, (bool, np.bool_))}
    for number in others.tolist() if booleans else ():
        is_number = type(number) is not bool and isinstance(number, (Real, Decimal))
        if is_number and number in booleans:
            raise DataError(
                key,
                f"holds {bool(number)} on one side and {number!r} on the other, which pandas "
                "considers equal; convert the keys of both sides to one type, for example with "
                "astype(...)",
            )


def _decode_numeric_categories(values: pd.Series[Any]) -> pd.Series[Any]:
    """Decode categories of numbers to numbers; return other columns unchanged."""
    if isinstance(values.dtype, pd.CategoricalDtype) and _get_numpy_dtype(
        values.cat.categories.dtype
    ):
        result: pd.Series[Any] = decode_categories(values).set_axis(values.index)
        return result
    return values


def make_keys_comparable(frame: pd.DataFrame, keys: Sequence[Any]) -> pd.DataFrame:
    """Cast keys to types that pandas joins by value.

    pandas does not join 16-bit floats, and compares Arrow floats by their bits, so that 0.0 and
    -0.0 would be different keys.
    """
    result = frame.copy(deep=False)
    for key in keys:
        dtype: Any = frame[key].dtype
        is_arrow = isinstance(dtype, pd.ArrowDtype)
        if _is_float16(dtype):
            dtype = pd.ArrowDtype(pa.float32()) if is_arrow else np.dtype("float32")
            result[key] = frame[key].astype(dtype)
        if is_arrow and dtype.pyarrow_dtype in (pa.float32(), pa.float64()):
            result[key] = (result[key] + 0.0).astype(dtype)  # the sum of a float32 is a float64
    return result


def _unify_signs(
    one: pd.Series[Any], other: pd.Series[Any]
) -> tuple[pd.Series[Any], pd.Series[Any]] | None:
    """Cast a signed and an unsigned key to a type that pandas compares exactly; else None.

    pandas 3.1 casts the right keys to the type of the left keys, in which 257 may become 1, and
    compares keys of 64 bits as floats, in which 2**53 equals 2**53 + 1.
    """
    types = [_get_numpy_dtype(side.dtype) for side in (one, other)]
    if None in types or {dtype.kind for dtype in types if dtype} != {"i", "u"}:
        return None
    common = np.result_type(*(dtype for dtype in types if dtype))
    if common.kind == "f":
        unsigned = one if types[0] and types[0].kind == "u" else other
        if bool((unsigned.dropna() > np.iinfo("int64").max).any()):
            return one.astype(object), other.astype(object)
        common = np.dtype("int64")
    return _cast_unsigned(one, common), _cast_unsigned(other, common)


def _cast_unsigned(values: pd.Series[Any], common: np.dtype[Any]) -> pd.Series[Any]:
    """Cast unsigned integers to a common type; return other columns unchanged."""
    dtype: Any = values.dtype
    numpy_dtype = _get_numpy_dtype(dtype)
    if numpy_dtype is None or numpy_dtype.kind != "u":
        return values
    if isinstance(dtype, pd.ArrowDtype):
        return values.astype(pd.ArrowDtype(pa.from_numpy_dtype(common)))
    return values.astype(common if isinstance(dtype, np.dtype) else nullable_dtype(common))


def _get_numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of the values of a pandas type; None if there is none."""
    numpy_dtype = getattr(dtype, "numpy_dtype", dtype)
    return numpy_dtype if isinstance(numpy_dtype, np.dtype) else None


def _is_float16(dtype: Any) -> bool:
    """Return whether a type is a 16-bit float."""
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_float16(dtype.pyarrow_dtype))
    return bool(dtype == np.dtype("float16"))


def make_columns_nullable(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Cast all columns but the keys to types that support missing values without loss."""
    return frame.astype(
        {
            name: make_nullable(dtype)
            for name, dtype in frame.dtypes.items()
            if name not in keys and make_nullable(dtype) is not dtype
        }
    )


def make_nullable(dtype: Any) -> Any:
    """Return the nullable type for integers and booleans; other types unchanged."""
    kind = dtype.kind if isinstance(dtype, np.dtype) else ""
    if kind == "b":
        return "boolean"
    return str(dtype).replace("u", "U").replace("int", "Int") if kind in ("i", "u") else dtype
