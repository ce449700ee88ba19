"""Items of bags, dicts, and lists as JSON and text lines.

A value that would not be loaded unchanged is an error that names it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hyperplane.core.errors import DataError, Fault, RequestError, WrongType, check

_JSON = "text, numbers, True, False, None, lists, and dicts with text as keys"
_ADVICE = {
    "set": "write sorted(...)",
    "frozenset": "write sorted(...)",
    "bytes": "decode it, or save bytes as they are",
    "ndarray": "write .tolist()",
    "NAType": "write None",
    "NaTType": "write None",
}


def to_json(obj: Any, where: str, **how: Any) -> str:
    """Return an object as JSON; NumPy numbers as numbers, and times in ISO 8601.

    ``where`` is the name of the object in faults, ``how`` are options of ``json.dumps``.

    Raises
    ------
    RequestError
        With a fault for each value that JSON does not support.

    Examples
    --------
    >>> to_json({"n": [1, None]}, "obj")
    '{"n": [1, null]}'
    """
    try:
        text = json.dumps(obj, ensure_ascii=False, allow_nan=False, **how)
        text.encode()
        # Keys that are not text, and tuples, would not be loaded unchanged.
        if json.loads(text) == obj:
            return text
    except (TypeError, ValueError, RecursionError):
        pass  # the slow conversion below reports each value
    faults: list[Fault] = []
    try:
        converted = _to_json_value(obj, where, faults)
    except RecursionError:
        faults = [Fault(where, "nested too deeply, or containing itself", _JSON)]
    check(faults)
    return json.dumps(converted, ensure_ascii=False, **how)


def _to_json_value(obj: Any, where: str, faults: list[Fault]) -> Any:
    """Convert a value for JSON; add a fault for what JSON does not support."""
    if isinstance(obj, dict):
        bad_keys = [key for key in obj if not isinstance(key, str)]
        faults += [
            Fault(
                f"the key {shorten(key)} of {where}",
                type(key).__name__,
                "a string",
                "write str(key)",
            )
            for key in bad_keys
        ]
        return {
            _to_json_value(key, f"the key {shorten(key)} of {where}", faults): _to_json_value(
                value, f"{where}[{shorten(key)}]", faults
            )
            for key, value in obj.items()
            if isinstance(key, str)
        }
    if isinstance(obj, list | tuple):
        return [
            _to_json_value(value, f"{where}[{number}]", faults) for number, value in enumerate(obj)
        ]
    if isinstance(obj, str):
        try:
            obj.encode()
        except UnicodeEncodeError:
            faults.append(
                Fault(where, ascii(obj)[:80], "valid Unicode text, without unpaired surrogates")
            )
        return obj
    return _to_json_scalar(obj, where, faults)


def _to_json_scalar(obj: Any, where: str, faults: list[Fault]) -> Any:
    """Convert a value that is not a dict or list for JSON; add a fault if unsupported."""
    import numpy as np

    if obj is None or isinstance(obj, bool | int):
        return obj
    if isinstance(obj, np.bool_ | np.integer):
        return obj.item()
    if isinstance(obj, float | np.floating):
        if not math.isfinite(obj):
            faults.append(Fault(where, repr(float(obj)), "a finite number", "write None"))
        return float(obj)
    if isinstance(obj, np.datetime64) and not np.isnat(obj):
        return str(obj)
    if isinstance(obj, dt.date | dt.time) and type(obj).__name__ != "NaTType":
        return obj.isoformat()
    kind = type(obj).__name__
    advice = _ADVICE.get(kind, "convert it first")
    faults.append(Fault(where, f"a {kind}, {shorten(obj)}", f"{_JSON} (JSON)", advice))
    return None


def shorten(value: object) -> str:
    """Return the repr of a value, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def encode_lines(items: Sequence[Any], form: str) -> bytes:
    r"""Return the items of a bag partition, one per line, in the format "jsonl" or "text".

    Raises
    ------
    WrongType
        If an item cannot be written as one line; names the item.

    Examples
    --------
    >>> encode_lines([{"n": 1}, {"n": 2}], "jsonl")
    b'{"n": 1}\n{"n": 2}\n'
    """
    lines = [_encode_line(item, number, form) for number, item in enumerate(items)]
    return "".join(f"{line}\n" for line in lines).encode()


def _encode_line(item: Any, number: int, form: str) -> str:
    """Return one item as a line of text or JSON."""
    if form == "text":
        if not isinstance(item, str):
            raise item_error(
                "item", item, number, "lines of text must be strings; save it as jsonl, or map(str)"
            )
        if "\n" in item:
            wrong = "it contains a line break and would be loaded as two items; save it as jsonl"
            raise item_error("item", item, number, wrong)
    try:
        return _check_unicode(item) if form == "text" else to_json(item, "item")
    except RequestError as error:
        fault = error.faults[0]
        wrong = f"expected {fault.allowed}; {fault.advice or 'convert it first'}"
        raise WrongType(
            fault.where,
            fault.asked,
            f"item {number}",
            f"item {number} (counted from 0): {fault.where} is {fault.asked}; {wrong}",
        ) from error


def _check_unicode(text: str) -> str:
    """Return a text that can be encoded as UTF-8, or raise."""
    faults: list[Fault] = []
    _to_json_value(text, "item", faults)
    check(faults)
    return text


def item_error(field: str, value: Any, number: int, message: str) -> WrongType:
    """Return the error of a bag item that the format does not support."""
    shown = shorten(value)
    text = f"item {number} (counted from 0): {field} is {shown}: {message}"
    return WrongType(field, shown, f"item {number}", text)


@contextmanager
def name_part_in_errors(number: int) -> Iterator[None]:
    """Prefix data errors raised in this block with the number of the part.

    Examples
    --------
    >>> with name_part_in_errors(7):
    ...     encode_lines([{1, 2}], "jsonl")
    Traceback (most recent call last):
    hyperplane.errors.WrongType: part 7, item 0 (counted from 0): item is a set, {1, 2}; ...
    """
    try:
        yield
    except (WrongType, DataError) as error:
        error.args = (f"part {number}, {error}",)
        raise
