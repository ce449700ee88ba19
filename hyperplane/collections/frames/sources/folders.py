"""Values that stand in the names of folders, such as ``year=2024``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

import polars as pl

_MISSING = "__HIVE_DEFAULT_PARTITION__"

Keys = tuple[tuple[str, Any], ...]


def keys(
    paths: Sequence[str], columns: Collection[str]
) -> tuple[dict[str, Keys], dict[str, pl.DataType]]:
    """The values in the folders of each path, and the types of these columns.

    Whole numbers where all are; text otherwise. Only names that all paths have, and no file.

    Examples
    --------
    >>> keys(["a/year=2023/0.parquet", "a/year=2024/0.parquet"], [])[0]["a/year=2024/0.parquet"]
    (('year', 2024),)
    """
    found = {path: _pairs(path) for path in paths}
    first = next(iter(found.values()), {})
    names = [n for n in first if n not in columns and all(n in pairs for pairs in found.values())]
    kinds: dict[str, pl.DataType] = {}
    for name in names:
        values = {pairs[name] for pairs in found.values()} - {None}
        whole = all(value.isdecimal() and str(int(value)) == value for value in values if value)
        kinds[name] = pl.Int64() if whole and values else pl.String()
    return {
        path: tuple((n, _value(p[n], kinds[n])) for n in names) for path, p in found.items()
    }, kinds


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
