"""Values of Avro that fastavro has decoded, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hyperplane.collections.frames.sources.avro_schema import AvroField
from hyperplane.errors import DataError


def make_arrow_array(field: AvroField, values: Sequence[Any]) -> pa.Array:
    """A column of the values of a field, in the type that its schema gives.

    Raises
    ------
    DataError
        When a value does not fit the type of its union without loss.

    Examples
    --------
    >>> several = AvroField("s", pa.list_(pa.string()), False, None)
    >>> make_arrow_array(several, [[1, "x"], None]).to_pylist()
    [['1', 'x'], None]
    """
    held = [_to_plain(value, field.arrow) for value in values]
    try:
        return pa.array(held, field.arrow)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        wrong = next((value for value in held if not _fits(value, field.arrow)), None)
        shown = repr(wrong)[:60]
        raise DataError(
            field.name,
            f"holds {shown}, which {field.arrow}, the widest type of its union, does not hold; "
            "choose other columns with hyperplane.dataframe.read(..., columns=[...])",
        ) from error


def _to_plain(value: Any, kind: pa.DataType) -> Any:
    """A value as pyarrow takes it: text for a UUID, and for any value of a union of such types."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else str(value)
    if pa.types.is_struct(kind):
        return {one.name: _to_plain(value[one.name], one.type) for one in kind}
    if pa.types.is_map(kind):
        return {name: _to_plain(one, kind.item_type) for name, one in value.items()}
    return [_to_plain(one, kind.value_type) for one in value] if pa.types.is_list(kind) else value


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return False
    return True
