"""Parquet files that Dask would read, read by Polars in the tasks of a helper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import pandas as pd
from fsspec.implementations.local import LocalFileSystem

from hyperplane.collections.frames.filter_pushdown import extract_filters
from hyperplane.collections.frames.read import read
from hyperplane.core.dask_internals.frames import ReadParquetFSSpec, new_collection
from hyperplane.core.errors import HyperplaneError
from hyperplane.formats.reader import make_collection

#: Characters of names that would be patterns of several files.
_GLOB = re.compile(r"[*?\[]")
#: Arguments of ``dd.read_parquet`` that change which rows or types are read, and their defaults.
_DEFAULTS = {"filters": None, "categories": None, "index": None, "_partitions": None}


def replace_parquet_reads(df: dd.DataFrame) -> dd.DataFrame:
    """Return the same rows and columns, read from Parquet by Polars instead of Dask.

    Rows are in the same order, in other partitions and with another index. The collection itself
    is returned if it has other steps than filters and column selections after one
    ``dd.read_parquet`` of local files with default arguments, or if Polars would return values of
    other types.
    """
    reads = {step._name: step for step in df.expr.find_operations(ReadParquetFSSpec)}
    if len(reads) != 1:
        return df
    (step,) = reads.values()
    files = _list_files(step)
    if files is None or step.operand("_series"):
        return df
    like = step._meta.iloc[:0]
    try:
        found = read(files, columns=list(like.columns), format="parquet")
    except HyperplaneError:  # Dask reads files whose columns differ
        return df
    if not _have_equal_types(found._meta, like):
        return df
    # The declared type of text may be another one.
    same = make_collection(found.expr.iterables[0], like, "read")
    replaced = df.expr.substitute(step, same.expr)
    if extract_filters(replaced) is None:
        return df
    result: dd.DataFrame = new_collection(replaced)
    return result


def _list_files(step: Any) -> list[str] | None:
    """Return the files in the order of their rows; None if Dask reads more than all their rows."""
    info = step._dataset_info
    if (
        any(step.operand(name) != default for name, default in _DEFAULTS.items())
        or {name: value for name, value in step.kwargs.items() if value is not None}
        or step.storage_options
        or type(info["fs"]) is not LocalFileSystem
        or info["has_metadata_file"]
        or info["partitions"]  # columns of the names of folders
        or not isinstance(step._meta.index, pd.RangeIndex)
        or not len(step._meta.columns)
    ):
        return None
    pieces = [piece for part in step._plan["parts"] for piece in _list_pieces(part)]
    names = [name for name, _, _ in pieces]
    files = list(dict.fromkeys(names))
    # Files given twice are read twice by Dask; a file may be divided into row groups.
    whole = [name for name, row_groups, _ in pieces if row_groups in (None, [None])]
    changes = 1 + sum(one != other for one, other in pairwise(names))
    is_each_once = changes == len(files) and len(set(whole)) == len(whole)
    return files if is_each_once and not any(_GLOB.search(name) for name in files) else None


def _list_pieces(part: Any) -> Sequence[Any]:
    """Return the file, row groups and keys of each piece of a partition of Dask."""
    return [each["piece"] for each in (part if isinstance(part, list) else [part])]


def _have_equal_types(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether all columns have the same type, or are text."""
    pairs = zip(one.dtypes, other.dtypes, strict=True)
    return list(one.columns) == list(other.columns) and all(
        mine == declared or (_is_text(mine) and _is_text(declared)) for mine, declared in pairs
    )


def _is_text(dtype: Any) -> bool:
    return isinstance(dtype, pd.StringDtype)
