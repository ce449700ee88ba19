"""Intrinsic functions by name; invalid arguments raise ValueError."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import random
import re
import uuid
from collections.abc import Callable
from typing import Any

from hyperplane.asl.path_lookup import json_equal
from hyperplane.asl.strict_json import is_number, json_type, parse_json

#: Limits of the language.
MAX_TEXT_LENGTH = 10_000
MAX_RANGE_LENGTH = 1_000
SMALLEST_INT, LARGEST_INT = -(2**31), 2**31 - 1

_HASHES = {
    "MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512",
}  # fmt: skip
_PIECE = re.compile(r"\\(.)|\{\}|[^\\{}]+", re.DOTALL)


def split_template(template: str, values: int) -> list[str | None]:
    r"""Split a template of ``States.Format``; None marks a placeholder.

    Examples
    --------
    >>> split_template(r"{} is \{\}", 1)
    [None, ' is ', '{', '}']
    """
    parts: list[str | None] = []
    position = 0
    while position < len(template):
        piece = _PIECE.match(template, position)
        if not piece or (piece.group(1) or "{") not in "'{}\\":
            raise ValueError(
                f"{template[position]!r} at character {position + 1} of the template: "
                r"write {} for a placeholder, \{ and \} for braces, \\ for a backslash"
            )
        parts.append(None if piece.group() == "{}" else piece.group(1) or piece.group())
        position = piece.end()
    if parts.count(None) != values:
        raise ValueError(f"the template has {parts.count(None)} {{}} for {values} values")
    return parts


def _format(template: Any, *values: Any) -> str:
    parts = split_template(_require_text(template, "the template"), len(values))
    remaining = iter(values)
    return "".join(_format_value(next(remaining)) if part is None else part for part in parts)


def _format_value(value: Any) -> str:
    """Format a value as ``States.Format`` does: an object as ``{key=value}``, not as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return json.dumps(value)


def _require_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {json_type(value)}, not a text")
    return value


def _require_array(value: Any, name: str = "the first argument") -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {json_type(value)}, not an array")
    return value


def _require_integer(value: Any, name: str) -> int:
    """Return a number rounded to the nearest integer, as the language specifies."""
    if not is_number(value):
        raise ValueError(f"{name} is {json_type(value)}, not a number")
    return value if isinstance(value, int) else math.floor(value + 0.5)


def _require_int32(value: Any, name: str) -> int:
    number = _require_integer(value, name)
    if not SMALLEST_INT <= number <= LARGEST_INT:
        raise ValueError(f"{name} is {number}, not from {SMALLEST_INT} to {LARGEST_INT}")
    return number


def _string_to_json(text: Any) -> Any:
    return parse_json(_require_text(text, "the argument"))


def _json_to_string(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _array_partition(array: Any, size: Any) -> list[Any]:
    items, step = _require_array(array), _require_integer(size, "the size")
    if step < 1:
        raise ValueError(f"the size is {step}, not 1 or more")
    return [items[start : start + step] for start in range(0, len(items), step)]


def _array_contains(array: Any, value: Any) -> bool:
    return any(json_equal(item, value) for item in _require_array(array))


def _array_range(first: Any, last: Any, step: Any) -> list[int]:
    start = _require_integer(first, "the first number")
    stop = _require_integer(last, "the last number")
    by = _require_integer(step, "the step")
    if by == 0:
        raise ValueError("the step is 0")
    count = max(0, (stop - start) // by + 1)  # len() of such a range may overflow
    if count > MAX_RANGE_LENGTH:
        raise ValueError(f"{count} numbers, more than {MAX_RANGE_LENGTH}")
    return list(range(start, stop + (1 if by > 0 else -1), by))


def _array_get_item(array: Any, index: Any) -> Any:
    items, at = _require_array(array), _require_integer(index, "the index")
    if not 0 <= at < len(items):
        raise ValueError(f"the index is {at}, and the array has {len(items)} items")
    return items[at]


def _array_unique(array: Any) -> list[Any]:
    unique: dict[str, Any] = {}
    for item in _require_array(array):
        unique.setdefault(_equality_key(item), item)
    return list(unique.values())


def _equality_key(value: Any) -> str:
    """Text that is equal for equal values, for fast comparison of many values."""
    if isinstance(value, list):
        return "[" + ",".join(map(_equality_key, value)) + "]"
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_equality_key(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _require_short_text(value: Any) -> str:
    text = _require_text(value, "the text")
    if len(text) > MAX_TEXT_LENGTH:
        raise ValueError(f"the text has {len(text)} characters, more than {MAX_TEXT_LENGTH}")
    return text


def _base64_encode(text: Any) -> str:
    return base64.b64encode(_encode_utf8(_require_short_text(text))).decode()


def _base64_decode(text: Any) -> str:
    try:
        return base64.b64decode(_require_short_text(text), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the text is not Base64 of UTF-8 text: {error}") from None


def _encode_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half a surrogate pair") from None


def _hash_text(text: Any, algorithm: Any) -> str:
    name = _HASHES.get(_require_text(algorithm, "the algorithm"))
    if name is None:
        raise ValueError(f"the algorithm is {algorithm!r}, not one of {', '.join(_HASHES)}")
    return hashlib.new(
        name, _encode_utf8(_require_short_text(text)), usedforsecurity=False
    ).hexdigest()


def _json_merge(first: Any, second: Any, deep: Any) -> Any:
    if deep is not False:
        raise ValueError("the third argument must be false: deep merges are not supported")
    for value in (first, second):
        if not isinstance(value, dict):
            raise ValueError(f"{json_type(value)} cannot be merged; expected an object")
    return {**first, **second}


def _math_random(start: Any, end: Any, *seed: Any) -> int:
    low, high = _require_int32(start, "the start"), _require_int32(end, "the end")
    if low >= high:
        raise ValueError(f"the start {low} is not less than the end {high}")
    generator = random.Random(*(_require_integer(value, "the seed") for value in seed))  # noqa: S311
    return generator.randrange(low, high)


def _math_add(first: Any, second: Any) -> int:
    return _require_int32(first, "the first number") + _require_int32(second, "the second number")


def _string_split(text: Any, marks: Any) -> list[str]:
    """Split a text at each character of ``marks``, without empty parts."""
    whole, at = _require_text(text, "the text"), _require_text(marks, "the splitter")
    if not at:
        return [whole] if whole else []
    return [part for part in re.split(f"[{re.escape(at)}]", whole) if part]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Format": _format,
    "StringToJson": _string_to_json,
    "JsonToString": _json_to_string,
    "Array": lambda *values: list(values),
    "ArrayPartition": _array_partition,
    "ArrayContains": _array_contains,
    "ArrayRange": _array_range,
    "ArrayGetItem": _array_get_item,
    "ArrayLength": lambda array: len(_require_array(array)),
    "ArrayUnique": _array_unique,
    "Base64Encode": _base64_encode,
    "Base64Decode": _base64_decode,
    "Hash": _hash_text,
    "JsonMerge": _json_merge,
    "MathRandom": _math_random,
    "MathAdd": _math_add,
    "StringSplit": _string_split,
    "UUID": lambda: str(uuid.uuid4()),
}

#: Minimum and maximum number of arguments; None for no limit.
COUNTS: dict[str, tuple[int, int | None]] = {
    "Format": (1, None), "StringToJson": (1, 1), "JsonToString": (1, 1), "Array": (0, None),
    "ArrayPartition": (2, 2), "ArrayContains": (2, 2), "ArrayRange": (3, 3),
    "ArrayGetItem": (2, 2), "ArrayLength": (1, 1), "ArrayUnique": (1, 1),
    "Base64Encode": (1, 1), "Base64Decode": (1, 1), "Hash": (2, 2), "JsonMerge": (3, 3),
    "MathRandom": (2, 3), "MathAdd": (2, 2), "StringSplit": (2, 2), "UUID": (0, 0),
}  # fmt: skip
