"""Hive partition keys: values in names of folders, such as ``year=2024``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

import polars as pl

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")

PartitionKeys = tuple[tuple[str, Any], ...]


def parse_hive_keys(
    paths: Sequence[str], columns: Collection[str]
) -> tuple[dict[str, PartitionKeys], dict[str, pl.DataType], set[str]]:
    """Return the keys of each path, their types, and the keys that some paths lack.

    The type of a key is int64 if all its values are integers of 64 bits, else text. Keys that are
    also columns of the files are left out.

    Examples
    --------
    >>> parse_hive_keys(["a/year=2023/0.parquet", "a/year=2024/0.parquet"], [])[0]
    {'a/year=2023/0.parquet': (('year', 2023),), 'a/year=2024/0.parquet': (('year', 2024),)}
    """
    pairs_by_path = {path: _parse_path(path) for path in paths}
    names = dict.fromkeys(name for pairs in pairs_by_path.values() for name in pairs)
    kinds: dict[str, pl.DataType] = {}
    missing = set()
    for name in names:
        if name in columns:
            continue
        values_seen = {pairs.get(name) for pairs in pairs_by_path.values()}
        values = [value for value in values_seen if value is not None]
        kinds[name] = pl.Int64() if values and all(map(_is_int64, values)) else pl.String()
        if None in values_seen:
            missing.add(name)
    keys_by_path = {
        path: tuple((name, _convert(pairs.get(name), kind)) for name, kind in kinds.items())
        for path, pairs in pairs_by_path.items()
    }
    return keys_by_path, kinds, missing


def _is_int64(value: str) -> bool:
    """Whether the text is the canonical form of an int64; ``01`` and ``-0`` are not."""
    return _WHOLE.fullmatch(value) is not None and -(2**63) <= int(value) < 2**63


def _convert(text: str | None, kind: pl.DataType) -> Any:
    return int(text) if text is not None and kind.is_integer() else text


def _parse_path(path: str) -> dict[str, str | None]:
    """Return the key-value pairs in the folders of a path; None for a missing value."""
    pairs: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if name and equals:
            pairs[name] = None if value == _MISSING else unquote(value)
    return pairs
