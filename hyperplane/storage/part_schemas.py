"""The types of parts: recorded where they are written, unified where they are loaded.

Parts of one folder may have different types: a shard without missing values, rows that were
appended later. The types of a loaded collection hold the values of all parts, and each part is
converted to them without loss or with an error that names the value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hyperplane.errors import ReadError
from hyperplane.storage.part_frames import empty_frame
from hyperplane.storage.text_columns import value_type
from hyperplane.storage.text_formats import shorten

if TYPE_CHECKING:
    import pandas as pd

#: In the metadata of a field, the categories of an ordered column.
_CATEGORIES = b"hyperplane.categories"
_PANDAS_KEY = b"pandas"


def serialize_schema(table: pa.Table) -> str:
    """The schema of a table as text, with ``nullable`` for columns that lack values.

    Parameters
    ----------
    table : pyarrow.Table
        As it is written.
    """
    found = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kept = field.with_nullable(column.null_count > 0 or pa.types.is_null(field.type))
        if pa.types.is_dictionary(field.type) and field.type.ordered and column.num_chunks:
            # Of a part without rows, or with few words, Parquet does not give all of them back.
            words = pa.table({"words": column.chunk(0).dictionary})
            kept = kept.with_metadata({_CATEGORIES: _to_ipc_bytes(words)})
        found.append(kept)
    schema = pa.schema(found, _strip_versions(table.schema.metadata or {}))
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _to_ipc_bytes(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _read_categories(field: pa.Field) -> Any:
    """The words of an ordered column, where they are recorded."""
    import pandas as pd

    found = (field.metadata or {}).get(_CATEGORIES)
    if found is None:
        return None
    return pd.Index(pa.ipc.open_stream(found).read_all().column(0).to_pandas())


def _strip_versions(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Metadata without the versions of libraries, after whose upgrade the types are the same."""
    if _PANDAS_KEY not in metadata:
        return dict(metadata)
    details = json.loads(metadata[_PANDAS_KEY])
    kept = {name: one for name, one in details.items() if name not in ("creator", "pandas_version")}
    return {**metadata, _PANDAS_KEY: json.dumps(kept).encode()}


def deserialize_schema(text: str) -> pa.Schema:
    """The schema that :func:`recorded_schema` has made text of."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def unify_schemas(
    schemas: Sequence[pa.Schema], rows: Sequence[int | None], urls: Sequence[str]
) -> Any:
    """A frame without rows, of the columns and types that hold the values of all parts.

    Parameters
    ----------
    schemas : sequence of pyarrow.Schema
        Of each part; at least one.
    rows : sequence of int or None
        Rows of each part, where they are known: the types of a part without rows do not count.
    urls : sequence of str
        Of each part, for errors.

    Raises
    ------
    ReadError
        When a part has other columns than the first one.

    Examples
    --------
    >>> schemas = [pa.schema([pa.field("n", one, False)]) for one in (pa.int64(), pa.float64())]
    >>> unified(schemas, [1, 1], ["a", "b"]).dtypes.to_dict()
    {'n': dtype('float64')}
    """
    shapes: dict[bytes, tuple[pa.Schema, Any, str]] = {}
    for schema, count, url in zip(schemas, rows, urls, strict=True):
        shapes.setdefault(
            schema.remove_metadata().serialize().to_pybytes() + bytes([count != 0]),
            (schema, empty_frame(schema), url if count != 0 else ""),
        )
    every = list(shapes.values())
    counted = [one for one in every if one[2]] or every
    first = counted[0]
    for _, frame, url in counted[1:]:
        _check_columns(frame, first[1], url, first[2])
    made = first[1].copy()
    for place, label in enumerate(made.columns):
        dtypes = [frame[label].dtype for _, frame, _ in counted]
        fields = [_schema_field(schema, label) for schema, _, _ in counted]
        made.isetitem(place, _empty_column(_common_dtype(dtypes, fields), made.index))
    if len(counted) > 1 and any(
        frame.index.nlevels != made.index.nlevels for _, frame, _ in counted
    ):
        made = made.reset_index(drop=True)
    return made


def _check_columns(frame: Any, like: Any, url: str, other: str) -> None:
    gone = [name for name in like.columns if name not in frame.columns]
    more = [name for name in frame.columns if name not in like.columns]
    if gone or more:
        said = " and ".join(
            f"{what} {', '.join(map(repr, names[:3]))}{', ...' * (len(names) > 3)}"
            for names, what in ((gone, "lacks the columns"), (more, "has also the columns"))
            if names
        )
        raise ReadError(
            url,
            f"{said}, compared with {other}; save parts with the same columns, or read the files "
            "with hyperplane.dataframe.read(..., schema='union')",
        )


def _schema_field(schema: pa.Schema, label: Any) -> pa.Field:
    place = schema.get_field_index(str(label))
    return schema.field(place) if place >= 0 else pa.field(str(label), pa.null())


def _empty_column(dtype: Any, index: pd.Index) -> Any:
    import pandas as pd

    return pd.Series(pd.Series([], dtype=dtype).array, index=index)


def _common_dtype(dtypes: Sequence[Any], fields: Sequence[pa.Field]) -> Any:
    """The type of pandas that holds the values of columns of several types."""
    import numpy as np
    import pandas as pd

    held = [
        (dtype, field)
        for dtype, field in zip(dtypes, fields, strict=True)
        if not pa.types.is_null(value_type(field.type))
    ]
    nothing = len(held) < len(dtypes)
    if not held:
        return dtypes[0]
    if all(isinstance(dtype, pd.CategoricalDtype) for dtype, _ in held) and _can_combine_categories(
        held
    ):
        words = _read_categories(held[0][1])
        return held[0][0] if words is None else pd.CategoricalDtype(words, ordered=True)
    kinds = [
        dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
        for dtype, _ in held
    ]
    truth = {pd.api.types.is_bool_dtype(kind) for kind in kinds}
    if len(truth) > 1:
        return np.dtype(object)  # pandas makes 1 of True beside Int64
    found = pd.concat([pd.Series([], dtype=kind) for kind in kinds]).dtype
    if nothing and isinstance(found, pd.IntervalDtype):
        return np.dtype(object)  # of which those of whole numbers have no missing value
    if nothing and found.kind in "iub" and isinstance(found, np.dtype):
        name = str(found).replace("bool", "boolean")
        return pd.api.types.pandas_dtype(
            name if name == "boolean" else name.title().replace("Ui", "UI")
        )
    return found


def _can_combine_categories(held: Sequence[tuple[Any, pa.Field]]) -> bool:
    """Whether columns of categories can be put together as such, with the order that they have."""
    if len({field.type.value_type for _, field in held}) > 1:
        return False
    if not any(field.type.ordered for _, field in held):
        return True
    orders = {(field.metadata or {}).get(_CATEGORIES) for _, field in held}
    return len(held) == 1 or (len(orders) == 1 and None not in orders)


def convert_frame(frame: Any, like: Any, url: str) -> Any:
    """A part with the columns and types of the collection.

    Parameters
    ----------
    frame : pandas.DataFrame
        The part.
    like : pandas.DataFrame
        What :func:`unified` made; some of its columns perhaps.
    url : str
        The part, for errors.

    Raises
    ------
    ReadError
        When a column is not there, or a value does not fit its type without loss.
    """
    _check_columns(frame, like, url, "the other parts")
    made = frame if list(frame.columns) == list(like.columns) else frame[list(like.columns)]
    for place, (name, dtype) in enumerate(like.dtypes.items()):
        column = made.iloc[:, place]
        if _has_dtype(column.dtype, dtype):
            continue
        if made is frame:
            made = frame.copy(deep=False)
        made.isetitem(place, _convert_column(column, dtype, name, url))
    if like.index.nlevels != made.index.nlevels:
        raise ReadError(url, "has an index of other levels than the other parts; save it again")
    return made


def _has_dtype(had: Any, dtype: Any) -> bool:
    """Whether a column has the type already; of categories, that of the words."""
    import pandas as pd

    if isinstance(had, pd.CategoricalDtype) and isinstance(dtype, pd.CategoricalDtype):
        if dtype.ordered and len(dtype.categories):
            return bool(had == dtype)
        return bool(had.categories.dtype == dtype.categories.dtype)
    return bool(had == dtype)


def _convert_column(column: Any, dtype: Any, name: Any, url: str) -> Any:
    import numpy as np
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered and len(dtype.categories):
        return column.astype(dtype)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype if len(column) else object)
    if isinstance(dtype, pd.CategoricalDtype):
        words = pd.Index(column.dropna().unique(), dtype=dtype.categories.dtype)
        return column.astype(pd.CategoricalDtype(words, ordered=dtype.ordered))
    if not len(column):
        return pd.Series(_empty_column(dtype, column.index), index=column.index)
    had = column.astype(object)
    if dtype == np.dtype(object):
        return had
    try:
        with np.errstate(all="raise"):
            made = column.astype(dtype)
    except (ArithmeticError, TypeError, ValueError) as error:
        bad = next((value for value in had if not _is_castable(value, dtype)), None)
        raise _misfit_error(url, name, bad, dtype) from error
    if not _is_exact_cast(column.dtype, dtype):
        for value, other in zip(had, made.astype(object), strict=True):
            if not _is_equal(value, other):
                raise _misfit_error(url, name, value, dtype)
    return made


def _is_exact_cast(had: Any, dtype: Any) -> bool:
    """Whether NumPy holds every value of one type in the other."""
    import numpy as np

    if not (isinstance(had, np.dtype) and isinstance(dtype, np.dtype)):
        return False
    return np.can_cast(had, dtype, "safe") and not (had.kind in "iu" and had.itemsize == 8)


def _is_equal(value: Any, other: Any) -> bool:
    import numpy as np
    import pandas as pd

    value, other = (one.tolist() if isinstance(one, np.ndarray) else one for one in (value, other))
    if isinstance(value, list):
        alike = isinstance(other, list) and len(value) == len(other)
        return alike and all(map(_is_equal, value, other))
    if isinstance(value, dict):
        alike = isinstance(other, dict) and value.keys() == other.keys()
        return alike and all(_is_equal(one, other[name]) for name, one in value.items())
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return bool(pd.isna(other))
    return bool(value == other)


def _is_castable(value: Any, dtype: Any) -> bool:
    import pandas as pd

    try:
        pd.Series([value], dtype=object).astype(dtype)
    except (ArithmeticError, TypeError, ValueError):
        return False
    return True


def _misfit_error(url: str, name: Any, value: Any, dtype: Any) -> ReadError:
    return ReadError(
        url,
        f"column {name!r} holds {shorten(value)}, which does not fit {dtype}, the type that the "
        "parts have in common; save them with one type, as with df.astype",
    )
