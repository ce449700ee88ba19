"""Values of JSON that models can use: no constants such as ``NaN``, no numbers out of range."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


class NumberOutOfRange(ValueError):
    """A number of JSON that would become infinity."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a text.

    Raises
    ------
    NumberOutOfRange
        If a number exceeds those of 64 bits.
    ValueError
        If the text is not JSON.

    Examples
    --------
    >>> parse_json("[1, 2.5]")
    [1, 2.5]
    >>> parse_json("1e400")
    Traceback (most recent call last):
    hyperplane.ml.prediction.json_values.NumberOutOfRange: the number 1e400 exceeds 1.798e+308, ...
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_float)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a value of JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        most = f"{sys.float_info.max:.4g}, the largest floating-point number"
        raise NumberOutOfRange(f"the number {text[:40]} exceeds {most}: send a smaller one")
    return value
