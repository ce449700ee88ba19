"""Convert values decoded by fastavro to Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hyperplane.core.errors import DataError
from hyperplane.formats.avro.schema import AvroField


def make_arrow_array(field: AvroField, values: Sequence[Any]) -> pa.Array:
    """Return the values of a field as an Arrow array of the field's type.

    Raises
    ------
    DataError
        If the type of its union cannot represent a value exactly.

    Examples
    --------
    >>> several = AvroField("s", pa.list_(pa.string()), False, None)
    >>> make_arrow_array(several, [[1, "x"], None]).to_pylist()
    [['1', 'x'], None]
    """
    plain = [_to_plain(value, field.arrow) for value in values]
    try:
        return pa.array(plain, field.arrow)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        value = next((value for value in plain if not _fits(value, field.arrow)), None)
        shown = repr(value)[:60]
        raise DataError(
            field.name,
            f"holds {shown}, which {field.arrow}, the widest type of its union, cannot "
            "represent; choose other columns with hyperplane.dataframe.read(..., columns=[...])",
        ) from error


def _to_plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value that pyarrow accepts; UUIDs and values of string unions become text."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else str(value)
    if pa.types.is_struct(kind):
        return {field.name: _to_plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {name: _to_plain(item, kind.item_type) for name, item in value.items()}
    return [_to_plain(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return False
    return True
