"""Values that stand in the names of folders, such as ``year=2024``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

import polars as pl

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")

Keys = tuple[tuple[str, Any], ...]


def keys(
    paths: Sequence[str], columns: Collection[str]
) -> tuple[dict[str, Keys], dict[str, pl.DataType], set[str]]:
    """The values in the folders of each path, the types of these columns, and which lack values.

    Whole numbers of 64 bits where all are; text otherwise. A path without a name that others have
    lacks its value. Names of columns that files have are left out.

    Examples
    --------
    >>> keys(["a/year=2023/0.parquet", "a/year=2024/0.parquet"], [])[0]["a/year=2024/0.parquet"]
    (('year', 2024),)
    """
    found = {path: _pairs(path) for path in paths}
    names = dict.fromkeys(name for pairs in found.values() for name in pairs)
    kinds: dict[str, pl.DataType] = {}
    missing = set()
    for name in names:
        if name in columns:
            continue
        every = {pairs.get(name) for pairs in found.values()}
        values = [value for value in every if value is not None]
        kinds[name] = pl.Int64() if values and all(map(_is_whole, values)) else pl.String()
        if None in every:
            missing.add(name)
    fixed = {
        path: tuple((name, _value(pairs.get(name), kind)) for name, kind in kinds.items())
        for path, pairs in found.items()
    }
    return fixed, kinds, missing


def _is_whole(value: str) -> bool:
    """Whether a number of 64 bits has this very text; ``01`` and ``-0`` are text."""
    return _WHOLE.fullmatch(value) is not None and -(2**63) <= int(value) < 2**63


def _value(text: str | None, kind: pl.DataType) -> Any:
    return int(text) if text is not None and kind.is_integer() else text


def _pairs(path: str) -> dict[str, str | None]:
    """The pairs in the folders of a path; None for a value that is missing."""
    pairs: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if name and equals:
            pairs[name] = None if value == _MISSING else unquote(value)
    return pairs
