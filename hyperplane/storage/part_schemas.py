"""Record the schema of each part when it is written, and unify them when parts are loaded.

Parts of one folder may have different types, for example if only some have missing values. The
types of a loaded collection hold the values of all parts. Each part is converted to these types
without loss; a value that cannot be converted is an error, which names it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hyperplane.core.column_cast import cast_column
from hyperplane.core.errors import ReadError
from hyperplane.formats.json_values import shorten
from hyperplane.formats.pandas_frames.from_arrow import empty_frame
from hyperplane.formats.text_columns import value_type

if TYPE_CHECKING:
    import pandas as pd

#: Key of the field metadata that holds the categories of an ordered column.
_CATEGORIES = b"hyperplane.categories"
_PANDAS_KEY = b"pandas"


def serialize_schema(table: pa.Table, schema: pa.Schema | None = None) -> str:
    """Return the schema of a table as text, with ``nullable`` set for columns that have nulls.

    ``schema`` is that of the file, by default the one of the table.
    """
    fields = []
    schema = table.schema if schema is None else schema
    for field, column in zip(schema, table.columns, strict=True):
        recorded = field.with_nullable(column.null_count > 0 or pa.types.is_null(field.type))
        if pa.types.is_dictionary(field.type) and field.type.ordered and column.num_chunks:
            # Parquet restores only the categories that occur in a part.
            categories = pa.table({"words": column.chunk(0).dictionary})
            recorded = recorded.with_metadata({_CATEGORIES: _to_ipc_bytes(categories)})
        fields.append(recorded)
    recorded_schema = pa.schema(fields, _strip_versions(schema.metadata or {}))
    return base64.b64encode(recorded_schema.serialize().to_pybytes()).decode()


def _to_ipc_bytes(table: pa.Table) -> bytes:
    """Return a table in the Arrow IPC format."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _read_categories(field: pa.Field) -> Any:
    """Return the recorded categories of an ordered column; None if there are none."""
    import pandas as pd

    data = (field.metadata or {}).get(_CATEGORIES)
    if data is None:
        return None
    return pd.Index(pa.ipc.open_stream(data).read_all().column(0).to_pandas())


def _strip_versions(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return metadata without library versions, so that an upgrade does not change the schema."""
    if _PANDAS_KEY not in metadata:
        return dict(metadata)
    details = json.loads(metadata[_PANDAS_KEY])
    for name in ("creator", "pandas_version"):
        details.pop(name, None)
    return {**metadata, _PANDAS_KEY: json.dumps(details).encode()}


def deserialize_schema(text: str) -> pa.Schema:
    """Return the schema in a text of :func:`serialize_schema`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def unify_schemas(
    schemas: Sequence[pa.Schema], rows: Sequence[int | None], urls: Sequence[str]
) -> Any:
    """Return an empty dataframe with columns and types that hold the values of all parts.

    Parameters
    ----------
    schemas : sequence of pyarrow.Schema
        Schema of each part; at least one.
    rows : sequence of int or None
        Rows of each part if known; types of empty parts are ignored.
    urls : sequence of str
        URL of each part, for messages.

    Raises
    ------
    ReadError
        If a part has other columns than the first one.

    Examples
    --------
    >>> schemas = [pa.schema([pa.field("n", kind, False)]) for kind in (pa.int64(), pa.float64())]
    >>> unify_schemas(schemas, [1, 1], ["a", "b"]).dtypes.to_dict()
    {'n': dtype('float64')}
    """
    # For each schema: the schema, an empty dataframe, and the URL of the first part that has it;
    # parts without rows are separate, with an empty URL.
    distinct: dict[bytes, tuple[pa.Schema, Any, str]] = {}
    for schema, count, url in zip(schemas, rows, urls, strict=True):
        distinct.setdefault(
            schema.remove_metadata().serialize().to_pybytes() + bytes([count != 0]),
            (schema, empty_frame(schema), url if count != 0 else ""),
        )
    everything = list(distinct.values())
    parts = [part for part in everything if part[2]] or everything
    _, first_frame, first_url = parts[0]
    for _, frame, url in parts[1:]:
        _check_columns(frame, first_frame, url, first_url)
    unified = first_frame.copy()
    for position, label in enumerate(unified.columns):
        dtypes = [frame[label].dtype for _, frame, _ in parts]
        fields = [_schema_field(schema, label) for schema, _, _ in parts]
        unified.isetitem(position, _empty_column(_common_dtype(dtypes, fields), unified.index))
    if len(parts) > 1 and any(
        frame.index.nlevels != unified.index.nlevels for _, frame, _ in parts
    ):
        unified = unified.reset_index(drop=True)
    return unified


def _check_columns(frame: Any, like: Any, url: str, other: str) -> None:
    """Raise ReadError if a part does not have the columns of another one."""
    missing = [name for name in like.columns if name not in frame.columns]
    extra = [name for name in frame.columns if name not in like.columns]
    if missing or extra:
        differences = " and ".join(
            f"{verb} {', '.join(map(repr, names[:3]))}{', ...' * (len(names) > 3)}"
            for names, verb in (
                (missing, "lacks the columns"),
                (extra, "has the additional columns"),
            )
            if names
        )
        raise ReadError(
            url,
            f"{differences} compared with {other}; save all parts with the same columns, or read "
            "the files with hyperplane.dataframe.read(..., schema='union')",
        )


def _schema_field(schema: pa.Schema, label: Any) -> pa.Field:
    """Return the field of a column; one of type null if the schema lacks it."""
    position = schema.get_field_index(str(label))
    return schema.field(position) if position >= 0 else pa.field(str(label), pa.null())


def _empty_column(dtype: Any, index: pd.Index) -> Any:
    """Return an empty column of a dtype."""
    import pandas as pd

    return pd.Series(pd.Series([], dtype=dtype).array, index=index)


def _common_dtype(dtypes: Sequence[Any], fields: Sequence[pa.Field]) -> Any:
    """Return the pandas dtype that holds the values of columns of several types."""
    import numpy as np
    import pandas as pd

    typed = [
        (dtype, field)
        for dtype, field in zip(dtypes, fields, strict=True)
        if not pa.types.is_null(value_type(field.type))
    ]
    has_all_null_part = len(typed) < len(dtypes)
    if not typed:
        return dtypes[0]
    if all(
        isinstance(dtype, pd.CategoricalDtype) for dtype, _ in typed
    ) and _can_combine_categories(typed):
        categories = _read_categories(typed[0][1])
        return typed[0][0] if categories is None else pd.CategoricalDtype(categories, ordered=True)
    kinds = [
        dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
        for dtype, _ in typed
    ]
    are_booleans = {pd.api.types.is_bool_dtype(kind) for kind in kinds}
    if len(are_booleans) > 1:
        return np.dtype(object)  # pandas would convert True to 1 beside Int64
    common = pd.concat([pd.Series([], dtype=kind) for kind in kinds]).dtype
    if has_all_null_part and isinstance(common, pd.IntervalDtype):
        return np.dtype(object)  # intervals of integers have no missing value
    if has_all_null_part and common.kind in "iub" and isinstance(common, np.dtype):
        name = str(common).replace("bool", "boolean")
        return pd.api.types.pandas_dtype(
            name if name == "boolean" else name.title().replace("Ui", "UI")
        )
    return common


def _can_combine_categories(typed: Sequence[tuple[Any, pa.Field]]) -> bool:
    """Return whether categorical columns can be combined and keep their order."""
    if len({field.type.value_type for _, field in typed}) > 1:
        return False
    if not any(field.type.ordered for _, field in typed):
        return True
    orders = {(field.metadata or {}).get(_CATEGORIES) for _, field in typed}
    return len(typed) == 1 or (len(orders) == 1 and None not in orders)


def convert_frame(frame: Any, like: Any, url: str) -> Any:
    """Return a part with the columns and types of the collection.

    ``like`` is the result of :func:`unify_schemas`, or some columns of it.

    Raises
    ------
    ReadError
        If a column is missing, or a value does not fit its type without loss.
    """
    _check_columns(frame, like, url, "the other parts")
    converted = frame if list(frame.columns) == list(like.columns) else frame[list(like.columns)]
    for position, (name, dtype) in enumerate(like.dtypes.items()):
        column = converted.iloc[:, position]
        if _has_dtype(column.dtype, dtype):
            continue
        if converted is frame:
            converted = frame.copy(deep=False)
        converted.isetitem(position, _convert_column(column, dtype, name, url))
    if like.index.nlevels != converted.index.nlevels:
        raise ReadError(
            url, "has another number of index levels than the other parts; save it again"
        )
    return converted


def _has_dtype(present: Any, dtype: Any) -> bool:
    """Return whether dtypes are equal; unordered categoricals may have other categories."""
    import pandas as pd

    if isinstance(present, pd.CategoricalDtype) and isinstance(dtype, pd.CategoricalDtype):
        if dtype.ordered and len(dtype.categories):
            return bool(present == dtype)
        return bool(present.categories.dtype == dtype.categories.dtype)
    return bool(present == dtype)


def _convert_column(column: Any, dtype: Any, name: Any, url: str) -> Any:
    """Convert a column of a part without loss, or raise ReadError."""
    import numpy as np
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered and len(dtype.categories):
        return column.astype(dtype)
    if isinstance(column.dtype, pd.CategoricalDtype):
        kind = column.cat.categories.dtype if len(column) else np.dtype(object)
        # NumPy's integers and truth values cannot be missing.
        is_object = isinstance(kind, np.dtype) and kind.kind in "iub" and column.hasnans
        column = column.astype(object if is_object else kind)
    if isinstance(dtype, pd.CategoricalDtype):
        categories = pd.Index(column.dropna().unique(), dtype=dtype.categories.dtype)
        return column.astype(pd.CategoricalDtype(categories, ordered=dtype.ordered))
    if not len(column):
        return pd.Series(_empty_column(dtype, column.index), index=column.index)
    originals = column.astype(object)
    if dtype == np.dtype(object):
        return originals
    try:
        with np.errstate(all="raise"):
            converted = cast_column(column, dtype)
    except (ArithmeticError, TypeError, ValueError) as error:
        bad = next((value for value in originals if not _is_castable(value, dtype)), None)
        raise _misfit_error(url, name, bad, dtype) from error
    if not _is_exact_cast(column.dtype, dtype):
        for value, other in zip(originals, converted.astype(object), strict=True):
            if not _is_equal(value, other):
                raise _misfit_error(url, name, value, dtype)
    return converted


def needs_value_check(source: Any, dtype: Any) -> bool:
    """Return whether some value of a dtype may not fit the common dtype of the parts.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> needs_value_check(np.dtype("int64"), np.dtype("float64"))
    True
    >>> needs_value_check(np.dtype("int64"), pd.Int64Dtype())
    False
    """
    import numpy as np
    import pandas as pd

    if _has_dtype(source, dtype) or dtype == np.dtype(object):
        return False
    if all(pd.api.types.is_numeric_dtype(kind) for kind in (source, dtype)):
        # The types of NumPy of nullable types.
        source, dtype = (getattr(kind, "numpy_dtype", kind) for kind in (source, dtype))
    return not (source == dtype or _is_exact_cast(source, dtype))


def _is_exact_cast(source: Any, dtype: Any) -> bool:
    """Return whether NumPy converts every value between two dtypes exactly."""
    import numpy as np

    if not (isinstance(source, np.dtype) and isinstance(dtype, np.dtype)):
        return False
    # For NumPy the cast of 64-bit integers to floats is safe, although it rounds them.
    return np.can_cast(source, dtype, "safe") and not (source.kind in "iu" and source.itemsize == 8)


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two values are equal; missing values are equal to each other."""
    import numpy as np
    import pandas as pd

    value = value.tolist() if isinstance(value, np.ndarray) else value
    other = other.tolist() if isinstance(other, np.ndarray) else other
    if isinstance(value, list):
        alike = isinstance(other, list) and len(value) == len(other)
        return alike and all(map(_is_equal, value, other))
    if isinstance(value, dict):
        alike = isinstance(other, dict) and value.keys() == other.keys()
        return alike and all(_is_equal(item, other[name]) for name, item in value.items())
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return bool(pd.isna(other))
    return bool(value == other)


def _is_castable(value: Any, dtype: Any) -> bool:
    """Return whether a value can be converted to a dtype."""
    import pandas as pd

    try:
        pd.Series([value], dtype=object).astype(dtype)
    except (ArithmeticError, TypeError, ValueError):
        return False
    return True


def _misfit_error(url: str, name: Any, value: Any, dtype: Any) -> ReadError:
    """Return the error of a value that does not fit a dtype."""
    return ReadError(
        url,
        f"column {name!r} holds {shorten(value)}, which does not fit {dtype}, the common type of "
        "the parts; save all parts with one type, for example with df.astype",
    )
