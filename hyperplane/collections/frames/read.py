"""Files as a Dask dataframe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import dask.config
import dask.dataframe as dd
import pandas as pd

from hyperplane.collections.frames.sources import csv_plan, jsonl, listing, parquet_plan, plan, types
from hyperplane.collections.frames.sources.reader import PartReader
from hyperplane.collections.frames.sources.request import OnError, Request, Table
from hyperplane.collections.frames.sources.text_plan import TextOptions
from hyperplane.errors import Fault, check

if TYPE_CHECKING:
    from hyperplane.collections.frames.sources.schemas import Mixing


def read(
    urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    format: Literal["parquet", "csv", "jsonl", "avro"] | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    partition_size: str | int = "100MB",
    schema: Mixing = "strict",
    decimals: types.Decimals = "float",
    on_error: OnError = "raise",
    dtypes: Mapping[str, Any] | None = None,
    parse_dates: Sequence[str] | Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
    multiline: bool | None = None,
) -> dd.DataFrame:
    """Read."""
    size, faults = plan.size_of(partition_size)
    faults += _choices(schema=schema, decimals=decimals, on_error=on_error)
    check(faults)
    files = listing.find(urls, storage_options)
    kind = listing.format_of(files, format)
    request = Request(columns, filters, size, schema, decimals, on_error)
    given = {
        "dtypes": dtypes,
        "parse_dates": parse_dates,
        "separator": separator,
        "encoding": encoding,
        "names": names,
        "multiline": multiline,
    }
    given = {name: value for name, value in given.items() if value is not None}
    check(_unused(kind, given))
    if kind == "parquet":
        return _collection(parquet_plan.plan(files, request))
    if kind == "csv":
        return _collection(csv_plan.plan(files, request, TextOptions(**given)))
    return _collection(jsonl.plan(files, request, TextOptions(**given)))


def _unused(kind: str, given: Mapping[str, Any]) -> list[Fault]:
    """Arguments that this format has no use for."""
    used = {
        "csv": ("dtypes", "parse_dates", "separator", "encoding", "names", "multiline"),
        "jsonl": ("dtypes", "parse_dates"),
    }.get(kind, ())
    allowed = f"nothing; {kind} files say it themselves"
    return [
        Fault(name, repr(value)[:80], allowed) for name, value in given.items() if name not in used
    ]


def _choices(**given: Any) -> list[Fault]:
    allowed = {
        "schema": ("strict", "union"),
        "decimals": ("float", "exact"),
        "on_error": ("raise", "skip"),
    }
    return [
        Fault(name, repr(value), " or ".join(map(repr, allowed[name])))
        for name, value in given.items()
        if value not in allowed[name]
    ]


def _collection(table: Table) -> dd.DataFrame:
    like = pd.DataFrame(
        {
            name: pd.Series(dtype=types.in_pandas(kind, name in table.optional))
            for name, kind in table.columns.items()
        }
    )
    # Dask would otherwise convert text that is Arrow text already, and hide the reader.
    with dask.config.set({"dataframe.convert-string": False}):
        made = dd.from_map(PartReader(like), list(table.parts), meta=like, label="read")
    return cast("dd.DataFrame", made)
