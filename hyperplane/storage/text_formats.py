"""Items of bags, dicts and lists as JSON and as lines: what fits, and what does not.

What cannot come back as it was is an error that names it, and not something else in its place.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hyperplane.errors import DataError, Fault, RequestError, WrongType, check

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
    """An object as JSON. NumPy's numbers become numbers, and times text in the form of ISO 8601.

    Parameters
    ----------
    obj : object
        The object.
    where : str
        What faults call it.
    **how
        For ``json.dumps``.

    Returns
    -------
    str

    Raises
    ------
    RequestError
        With a fault for each thing inside that JSON has no form for.

    Examples
    --------
    >>> json_text({"n": [1, None]}, "obj")
    '{"n": [1, null]}'
    """
    try:
        text = json.dumps(obj, ensure_ascii=False, allow_nan=False, **how)
        text.encode()
        # Otherwise it has keys that are no text, or tuples.
        if json.loads(text) == obj:
            return text
    except (TypeError, ValueError, RecursionError):
        pass  # the slow way says what it is
    faults: list[Fault] = []
    try:
        made = _to_json_value(obj, where, faults)
    except RecursionError:
        faults = [Fault(where, "nested too deep, or within itself", _JSON)]
    check(faults)
    return json.dumps(made, ensure_ascii=False, **how)


def _to_json_value(obj: Any, where: str, faults: list[Fault]) -> Any:
    """What JSON has a form for; else a fault."""
    if isinstance(obj, dict):
        wrong = [key for key in obj if not isinstance(key, str)]
        faults += [
            Fault(
                f"the key {shorten(key)} of {where}", type(key).__name__, "text", "write str(key)"
            )
            for key in wrong
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
            faults.append(Fault(where, ascii(obj)[:80], "text of whole Unicode characters"))
        return obj
    return _to_json_scalar(obj, where, faults)


def _to_json_scalar(obj: Any, where: str, faults: list[Fault]) -> Any:
    """A value that holds no others."""
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
    """A value as a message may show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def encode_lines(items: Sequence[Any], form: str) -> bytes:
    r"""Items of a bag, one on each line.

    Parameters
    ----------
    items : sequence
        The items of a partition.
    form : {"jsonl", "text"}
        As JSON, or as the text that they are.

    Returns
    -------
    bytes

    Raises
    ------
    WrongType
        When an item cannot be a line; it names the item.

    Examples
    --------
    >>> lines_of([{"n": 1}, {"n": 2}], "jsonl")
    b'{"n": 1}\n{"n": 2}\n'
    """
    lines = [_encode_line(item, number, form) for number, item in enumerate(items)]
    return "".join(f"{line}\n" for line in lines).encode()


def _encode_line(item: Any, number: int, form: str) -> str:
    if form == "text":
        if not isinstance(item, str):
            raise item_error("item", item, number, "a line is text; save it as jsonl, or map(str)")
        if "\n" in item:
            wrong = "there is a line break in it, so it would come back as two; save it as jsonl"
            raise item_error("item", item, number, wrong)
    try:
        return _check_unicode(item) if form == "text" else to_json(item, "item")
    except RequestError as error:
        fault = error.faults[0]
        wrong = f"allowed is {fault.allowed}; {fault.advice or 'convert it first'}"
        raise WrongType(
            fault.where,
            fault.asked,
            f"item {number}",
            f"item {number} (counted from 0): {fault.where} is {fault.asked}; {wrong}",
        ) from error


def _check_unicode(text: str) -> str:
    faults: list[Fault] = []
    _to_json_value(text, "item", faults)
    check(faults)
    return text


def item_error(field: str, value: Any, number: int, message: str) -> WrongType:
    """The error of an item of a bag that does not fit."""
    shown = shorten(value)
    said = f"item {number} (counted from 0): {field} is {shown}: {message}"
    return WrongType(field, shown, f"item {number}", said)


@contextmanager
def name_part_in_errors(number: int) -> Iterator[None]:
    """Have errors of what is in a part say which part it is.

    Examples
    --------
    >>> with in_part(7):
    ...     lines_of([{1, 2}], "jsonl")
    Traceback (most recent call last):
    hyperplane.errors.WrongType: part 7, item 0 (counted from 0): item is a set, {1, 2}; ...
    """
    try:
        yield
    except (WrongType, DataError) as error:
        error.args = (f"part {number}, {error}",)
        raise
