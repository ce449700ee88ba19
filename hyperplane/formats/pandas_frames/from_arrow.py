"""Convert Arrow tables to pandas without the losses of ``Table.to_pandas``.

That method converts integers with missing values to floats, and fails for Arrow types that pandas
cannot parse from their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

_PANDAS_KEY = b"pandas"
#: Dask's column name of an index without a name.
_DASK_INDEX = "__null_dask_index__"


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table to pandas with the dtypes, names, and index of its pandas metadata.

    Integers and booleans keep their values if some are missing: as Python objects, or as ``Int64``
    and ``boolean``.

    Examples
    --------
    >>> to_frame(pa.table({"n": [2**53 + 1, None]}))["n"].to_list()
    [9007199254740993, <NA>]
    """
    return _build_frame(table, [column.null_count > 0 for column in table.columns])


def empty_frame(schema: pa.Schema) -> pd.DataFrame:
    """Return an empty dataframe of a schema; ``nullable`` fields count as having nulls."""
    return _build_frame(schema.empty_table(), [field.nullable for field in schema])


def _build_frame(table: pa.Table, nullable: Sequence[bool]) -> pd.DataFrame:
    """Convert a table; ``nullable`` says for each column whether values may be missing."""
    import pandas as pd

    details = _read_pandas_metadata(table.schema)
    types = {entry["field_name"]: entry for entry in details.get("columns", ())}
    levels = [entry for entry in details.get("index_columns", ()) if isinstance(entry, str)]
    converted = {
        name: _convert_column(column, types.get(name), missing)
        for name, column, missing in zip(table.column_names, table.columns, nullable, strict=True)
    }
    labels = _restore_column_labels(table.schema, set(levels))
    names = [name for name in table.column_names if name not in levels]
    index = _build_index(
        details, {name: converted[name] for name in levels if name in converted}, table.num_rows
    )
    frame = pd.DataFrame(
        dict(enumerate(converted[name] for name in names)), index=range(table.num_rows)
    )
    frame.columns, frame.index = labels, index
    return frame


def _read_pandas_metadata(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the pandas metadata of a schema; empty if it has none."""
    try:
        metadata = json.loads((schema.metadata or {}).get(_PANDAS_KEY, b"{}"))
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _restore_column_labels(schema: pa.Schema, levels: set[str]) -> Any:
    """Return the column labels with their types in pandas, such as integers."""
    import pandas as pd

    plain = pa.schema([(entry.name, pa.null()) for entry in schema if entry.name not in levels])
    details = dict(_read_pandas_metadata(schema))
    if not details:
        return pd.Index(plain.names, dtype="str")
    details["columns"] = [
        entry for entry in details["columns"] if entry["field_name"] not in levels
    ]
    details["columns"] = [{**entry, "numpy_type": "object"} for entry in details["columns"]]
    details["index_columns"] = []
    named = plain.with_metadata({_PANDAS_KEY: json.dumps(details).encode()})
    return named.empty_table().to_pandas().columns


def _build_index(details: Mapping[str, Any], levels: Mapping[str, Any], rows: int) -> Any:
    """Return the index from its columns or from its recorded range."""
    import pandas as pd

    names = {entry["field_name"]: entry["name"] for entry in details.get("columns", ())}
    names[_DASK_INDEX] = None
    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(values).rename(names.get(name, name))
    if levels:
        return pd.MultiIndex.from_arrays(
            list(levels.values()), names=[names.get(name, name) for name in levels]
        )
    for entry in details.get("index_columns", ()):
        if isinstance(entry, dict) and entry.get("kind") == "range":
            index = range(entry["start"], entry["stop"], entry["step"])
            # The recorded range only fits all rows of a file.
            if len(index) == rows:
                return pd.RangeIndex(index, name=entry["name"])
            return pd.RangeIndex(rows, name=entry["name"])
    return pd.RangeIndex(rows)


def _convert_column(column: pa.ChunkedArray, entry: Any, missing: bool) -> Any:
    """Convert one column to a pandas or NumPy array."""
    import numpy as np
    import pandas as pd

    kind, numpy_type = column.type, str(entry["numpy_type"]) if entry else ""
    nested = pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)
    if numpy_type.endswith("[pyarrow]") and numpy_type != "string[pyarrow]":
        arrow: Any = pd.ArrowDtype(kind)
        return arrow.__from_arrow__(column)
    if pa.types.is_dictionary(kind):
        return _convert_categories(column)
    if numpy_type == "object" or nested or _is_object_type(kind):
        if nested and _is_numeric_list(column):
            return column.to_pandas()
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return pd.Series(values, dtype=object)  # without dtype pandas would infer text
    dtype = _find_extension_dtype(numpy_type, kind)
    if dtype is None and missing and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        dtype = _find_nullable_dtype(kind)
    if dtype is None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        dtype = pd.StringDtype(na_value=np.nan)
    return column.to_pandas() if dtype is None else dtype.__from_arrow__(column)


def _convert_categories(column: pa.ChunkedArray) -> Any:
    """Convert a categorical column; its categories keep their dtype even if there are none."""
    import numpy as np
    import pandas as pd

    converted, category_type = column.to_pandas().array, column.type.value_type
    if pa.types.is_string(category_type) or pa.types.is_large_string(category_type):
        categories = pd.Index(converted.categories, dtype=pd.StringDtype(na_value=np.nan))
    elif len(converted.categories) or pa.types.is_null(category_type):
        return converted
    else:
        categories = pd.Index(pa.chunked_array([], category_type).to_pandas())
    return pd.Categorical.from_codes(converted.codes, categories, ordered=converted.ordered)


def _find_extension_dtype(numpy_type: str, kind: pa.DataType) -> Any:
    """Return the extension dtype that a column had in pandas, if it fits the Arrow type."""
    import pandas as pd

    try:
        dtype = pd.api.types.pandas_dtype(numpy_type)
    except TypeError:
        dtype = None
    if isinstance(dtype, pd.StringDtype) and not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        return None
    if hasattr(dtype, "__from_arrow__") and not isinstance(dtype, pd.DatetimeTZDtype):
        return dtype
    if isinstance(kind, pa.BaseExtensionType):
        extension = kind.to_pandas_dtype()
        return extension if hasattr(extension, "__from_arrow__") else None
    return None


def _find_nullable_dtype(kind: pa.DataType) -> Any:
    """Return the pandas dtype of integers or booleans with missing values."""
    import pandas as pd

    name = "boolean" if pa.types.is_boolean(kind) else str(kind).title().replace("Ui", "UI")
    return pd.api.types.pandas_dtype(name)


def _is_object_type(kind: pa.DataType) -> bool:
    """Return whether pandas can only hold a type as Python objects."""
    return bool(
        pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_numeric_list(column: pa.ChunkedArray) -> bool:
    """Return whether all values are lists of numbers without nulls, which fit NumPy arrays."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        return False
    return all(chunk.flatten().null_count == 0 for chunk in column.chunks)
