"""Arrow tables as pandas frames, without the loss that ``Table.to_pandas`` has.

It makes floats of whole numbers where values are missing, and fails on types of Arrow that pandas
cannot parse from their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

_PANDAS = b"pandas"
#: What Dask calls an index without a name.
_OF_DASK = "__null_dask_index__"


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a pandas frame with the types, names and index that its pandas metadata has.

    Whole numbers and truth values keep their values where some are missing: in a column of Python
    objects, or in ``Int64`` and ``boolean``.

    Parameters
    ----------
    table : pyarrow.Table
        With or without the metadata of pandas.

    Examples
    --------
    >>> to_frame(pa.table({"n": [2**53 + 1, None]}))["n"].to_list()
    [9007199254740993, <NA>]
    """
    return _frame(table, [column.null_count > 0 for column in table.columns])


def empty_frame(schema: pa.Schema) -> pd.DataFrame:
    """No rows; the columns and types of a table of which ``nullable`` says what values lack."""
    return _frame(schema.empty_table(), [field.nullable for field in schema])


def _frame(table: pa.Table, nullable: Sequence[bool]) -> pd.DataFrame:
    import pandas as pd

    details = _details(table.schema)
    types = {one["field_name"]: one for one in details.get("columns", ())}
    levels = [one for one in details.get("index_columns", ()) if isinstance(one, str)]
    made = {
        name: _column(column, types.get(name), missing)
        for name, column, missing in zip(table.column_names, table.columns, nullable, strict=True)
    }
    labels = _labels(table.schema, set(levels))
    names = [name for name in table.column_names if name not in levels]
    index = _index(details, {name: made[name] for name in levels if name in made}, table.num_rows)
    frame = pd.DataFrame(dict(enumerate(made[name] for name in names)), index=range(table.num_rows))
    frame.columns, frame.index = labels, index
    return frame


def _details(schema: pa.Schema) -> Mapping[str, Any]:
    try:
        found = json.loads((schema.metadata or {}).get(_PANDAS, b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _labels(schema: pa.Schema, levels: set[str]) -> Any:
    """The names of the columns, which pandas may have had as numbers."""
    import pandas as pd

    plain = pa.schema([(one.name, pa.null()) for one in schema if one.name not in levels])
    details = dict(_details(schema))
    if not details:
        return pd.Index(plain.names, dtype="str")
    details["columns"] = [one for one in details["columns"] if one["field_name"] not in levels]
    details["columns"] = [{**one, "numpy_type": "object"} for one in details["columns"]]
    details["index_columns"] = []
    named = plain.with_metadata({_PANDAS: json.dumps(details).encode()})
    return named.empty_table().to_pandas().columns


def _index(details: Mapping[str, Any], levels: Mapping[str, Any], rows: int) -> Any:
    import pandas as pd

    names = {one["field_name"]: one["name"] for one in details.get("columns", ())}
    names[_OF_DASK] = None
    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(values).rename(names.get(name, name))
    if levels:
        return pd.MultiIndex.from_arrays(
            list(levels.values()), names=[names.get(name, name) for name in levels]
        )
    for one in details.get("index_columns", ()):
        if isinstance(one, dict) and one.get("kind") == "range":
            held = range(one["start"], one["stop"], one["step"])
            # Of a whole file; of some of its rows, or of a part without them, it is not known.
            if len(held) == rows:
                return pd.RangeIndex(held, name=one["name"])
            return pd.RangeIndex(rows, name=one["name"])
    return pd.RangeIndex(rows)


def _column(column: pa.ChunkedArray, entry: Any, missing: bool) -> Any:
    """One column as an array of pandas or NumPy."""
    import numpy as np
    import pandas as pd

    kind, wanted = column.type, str(entry["numpy_type"]) if entry else ""
    nested = pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)
    if wanted.endswith("[pyarrow]") and wanted != "string[pyarrow]":
        arrow: Any = pd.ArrowDtype(kind)
        return arrow.__from_arrow__(column)
    if pa.types.is_dictionary(kind):
        return _categories(column)
    if wanted == "object" or nested or _as_objects(kind):
        if nested and _is_regular(column):
            return column.to_pandas()
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return pd.Series(values, dtype=object)  # of an array alone pandas would make text
    dtype = _extension(wanted, kind)
    if dtype is None and missing and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        dtype = _nullable(kind)
    if dtype is None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        dtype = pd.StringDtype(na_value=np.nan)
    return column.to_pandas() if dtype is None else dtype.__from_arrow__(column)


def _categories(column: pa.ChunkedArray) -> Any:
    """Categories whose words have a type also where there are none."""
    import numpy as np
    import pandas as pd

    made, words = column.to_pandas().array, column.type.value_type
    if pa.types.is_string(words) or pa.types.is_large_string(words):
        held = pd.Index(made.categories, dtype=pd.StringDtype(na_value=np.nan))
    elif len(made.categories) or pa.types.is_null(words):
        return made
    else:
        held = pd.Index(pa.chunked_array([], words).to_pandas())
    return pd.Categorical.from_codes(made.codes, held, ordered=made.ordered)


def _extension(wanted: str, kind: pa.DataType) -> Any:
    """The extension type of pandas that a column had, if it is one that takes these values."""
    import pandas as pd

    try:
        dtype = pd.api.types.pandas_dtype(wanted)
    except TypeError:
        dtype = None
    if isinstance(dtype, pd.StringDtype) and not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        return None
    if hasattr(dtype, "__from_arrow__") and not isinstance(dtype, pd.DatetimeTZDtype):
        return dtype
    if isinstance(kind, pa.BaseExtensionType):
        made = kind.to_pandas_dtype()
        return made if hasattr(made, "__from_arrow__") else None
    return None


def _nullable(kind: pa.DataType) -> Any:
    import pandas as pd

    name = "boolean" if pa.types.is_boolean(kind) else str(kind).title().replace("Ui", "UI")
    return pd.api.types.pandas_dtype(name)


def _as_objects(kind: pa.DataType) -> bool:
    """Types for which pandas has objects of Python only."""
    return bool(
        pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_regular(column: pa.ChunkedArray) -> bool:
    """Whether all are lists of numbers without missing ones, which arrays of NumPy hold."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    if not (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
        return False
    return all(chunk.flatten().null_count == 0 for chunk in column.chunks)
