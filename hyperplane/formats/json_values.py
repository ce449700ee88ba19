"""Convert dicts, lists and values to JSON; a value that JSON does not support is an error."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

from hyperplane.core.errors import Fault, check

_JSON = "text, numbers, True, False, None, lists, and dicts with text as keys"
_ADVICE = {
    "set": "write sorted(...)",
    "frozenset": "write sorted(...)",
    "bytes": "decode it, or save bytes as they are",
    "ndarray": "write .tolist()",
    "NAType": "write None",
    "NaTType": "write None",
}


def to_json(obj: Any, where: str, **dumps_options: Any) -> str:
    """Return an object as JSON; NumPy numbers as numbers, and times in ISO 8601.

    ``where`` is the name of the object in faults.

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
        text = json.dumps(obj, ensure_ascii=False, allow_nan=False, **dumps_options)
        text.encode()
        # json.dumps also accepts keys that are not text, which would be loaded as text.
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
    return json.dumps(converted, ensure_ascii=False, **dumps_options)


def _to_json_value(obj: Any, where: str, faults: list[Fault]) -> Any:
    """Convert a value for JSON; add a fault for each value that JSON does not support."""
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


def check_unicode(text: str) -> str:
    """Return a text that can be encoded as UTF-8, or raise a RequestError about ``"item"``."""
    faults: list[Fault] = []
    _to_json_value(text, "item", faults)
    check(faults)
    return text


def shorten(value: object) -> str:
    """Return the repr of a value, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
