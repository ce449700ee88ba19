"""Items of bags as the lines or rows of a file; errors name the item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperplane.core.errors import RequestError, WrongType
from hyperplane.formats.json_values import shorten


def build_table(items: Sequence[Any], format_name: str) -> Any:
    """Return the items of a bag partition as an Arrow table that holds them without loss.

    ``format_name`` is for messages.

    Raises
    ------
    WrongType
        If an item is not a dict, has other fields than the first item, or a value of another
        type.

    Examples
    --------
    >>> build_table([{"n": 1, "at": None}, {"n": 2.5, "at": None}], "parquet").to_pylist()
    [{'n': 1.0, 'at': None}, {'n': 2.5, 'at': None}]
    """
    import pyarrow as pa

    fields = list(items[0]) if items and isinstance(items[0], dict) else []
    expected = dict.fromkeys(fields).keys()
    for number, item in enumerate(items):
        if not isinstance(item, dict) or not item:
            raise make_item_error(
                "item", item, number, f"{format_name} requires non-empty dicts; save it as jsonl"
            )
        if item.keys() != expected:
            name = min(item.keys() ^ expected, key=str)
            message = "the field is not in all items; add it with None, or save as jsonl"
            raise make_item_error(str(name), item.get(name), number, message)
    for name in fields:
        if not isinstance(name, str):
            message = "field names must be strings; write str(key)"
            raise make_item_error(f"the key {name!r}", name, 0, message)
    columns = [_build_column(items, name, format_name) for name in fields]
    table = pa.table(columns, names=fields)
    _check_round_trip(table.to_pylist(), items, format_name)
    return table


def _build_column(items: Sequence[Mapping[str, Any]], name: str, format_name: str) -> Any:
    """Return a field of all items as an Arrow array, or raise for an item of another type."""
    import pyarrow as pa

    values = [item[name] for item in items]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        kinds = [type(value) for value in values if value is not None]
        number = next(
            (
                n
                for n, value in enumerate(values)
                if value is not None and type(value) is not kinds[0]
            ),
            0,
        )
        reason = " ".join(str(error).split())[:160]
        message = f"{format_name} requires one type for each field ({reason})"
        message += "; convert it, or save as jsonl"
        raise make_item_error(name, values[number], number, message) from error


def _check_round_trip(
    restored_items: Sequence[Any], items: Sequence[Any], format_name: str
) -> None:
    """Raise for the first item that the table does not hold unchanged."""
    try:
        if restored_items == items:
            return
    except ValueError:
        pass  # nested NumPy arrays cannot be compared this way
    for number, (restored, item) in enumerate(zip(restored_items, items, strict=True)):
        difference = _find_difference(restored, item, "")
        if difference is not None:
            path, value = difference
            message = f"{format_name} would change it; convert it, or save as jsonl"
            raise make_item_error(path, value, number, message)


def _find_difference(restored: Any, item: Any, path: str) -> tuple[str, Any] | None:
    """Return path and value of the first difference; NaN equals NaN, and a tuple equals a list."""
    if isinstance(restored, dict) and isinstance(item, dict):
        for key in {**item, **restored}:
            nested_path = f"{path}.{key}" if path else str(key)
            if key not in restored or key not in item:
                return nested_path, item.get(key)
            difference = _find_difference(restored[key], item[key], nested_path)
            if difference is not None:
                return difference
        return None
    if isinstance(restored, list) and isinstance(item, list | tuple) and len(restored) == len(item):
        pairs = enumerate(zip(restored, item, strict=True))
        differences = (_find_difference(left, right, f"{path}[{n}]") for n, (left, right) in pairs)
        return next((difference for difference in differences if difference is not None), None)
    try:
        same = bool(restored == item) or bool(restored != restored and item != item)
    except ValueError:
        same = False
    return None if same else (path, item)


def encode_lines(items: Sequence[Any], format_item: Callable[[Any, int], str]) -> bytes:
    r"""Return items as lines of UTF-8.

    ``format_item`` takes an item and its number, and returns one line or raises a RequestError
    about ``"item"``.

    Raises
    ------
    WrongType
        If ``format_item`` refuses an item; the error has the number of the item.

    Examples
    --------
    >>> encode_lines(["a", "b"], lambda item, number: f"{number} {item}")
    b'0 a\n1 b\n'
    """
    lines = [_format_line(item, number, format_item) for number, item in enumerate(items)]
    return "".join(f"{line}\n" for line in lines).encode()


def _format_line(item: Any, number: int, format_item: Callable[[Any, int], str]) -> str:
    """Return one item as a line; errors name the item."""
    try:
        return format_item(item, number)
    except RequestError as error:
        fault = error.faults[0]
        advice = f"expected {fault.allowed}; {fault.advice or 'convert it first'}"
        raise WrongType(
            fault.where,
            fault.asked,
            f"item {number}",
            f"item {number} (counted from 0): {fault.where} is {fault.asked}; {advice}",
        ) from error


def make_item_error(field: str, value: Any, number: int, message: str) -> WrongType:
    """Return the error of a bag item that the format does not support."""
    shown = shorten(value)
    text = f"item {number} (counted from 0): {field} is {shown}: {message}"
    return WrongType(field, shown, f"item {number}", text)
