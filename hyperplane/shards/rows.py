"""A share of the rows of files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.convert import column_to_pandas
from hyperplane.collections.frames.read import plan_table
from hyperplane.collections.frames.sources import formats
from hyperplane.collections.frames.sources.parquet import ParquetPart
from hyperplane.collections.frames.sources.plan import UNDIVIDED
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.collections.frames.sources.request import Request
from hyperplane.collections.frames.sources.spans import SpanPart
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.shards import parquet_rows, text_rows
from hyperplane.shards.identity import found
from hyperplane.stores import listing


@check_call
def shard_rows(
    url: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    n_machines: int | None = None,
    idx: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    format: Literal["parquet", "csv", "jsonl"] | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    parse_dates: Sequence[str] | Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
    multiline: bool | None = None,
    na_values: Any = None,
) -> pd.DataFrame:
    r"""A shard's share of the rows of Parquet, CSV or JSON lines, from its own bytes only.

    The shares one after the other are the whole, in order. All have the same columns and types,
    also a share without rows: those of :func:`hyperplane.dataframe.read`.

    - Parquet: shares of ``numpy.array_split``, the first ones a row longer. The footers are read,
      and the row groups that hold rows of the share.
    - CSV and JSON lines: shares of equal bytes, moved to the next beginning of a record, so that
      the numbers of rows differ as the lengths of rows do. What is read besides: the samples in
      which all shards find the types, and at both ends of a share the bytes up to a record.
      A packed file, such as ``.csv.gz``, goes to one shard whole; a single one cannot be shared.

    Parameters
    ----------
    url : str, path, or list of these
        Files, globs, folders, or URLs that fsspec opens; several files are one table.
    n_machines, idx : int, optional
        How many shards there are, and the number of this one, from 0; :func:`shard` says it when
        they are not given.
    columns : list of str, optional
        The columns, in this order; all when not given.
    format : {"parquet", "csv", "jsonl"}, optional
        By the suffix of the files when not given.
    storage_options : dict, optional
        For fsspec. They are never shown.
    dtypes, parse_dates : optional
        CSV, JSON lines: types and columns of times, as in :func:`hyperplane.dataframe.read`.
    separator, encoding, names, na_values : optional
        CSV: as in :func:`hyperplane.dataframe.read`.
    multiline : bool, optional
        CSV: whether values in quotes go over several lines. When not given, quotes near each end
        of a share tell whether a line ends a record, and those in the share must be even. True
        counts all quotes before the share instead, for which the file is read from its
        beginning; for False every line is a record, whatever quotes it has.

    Returns
    -------
    pandas.DataFrame
        In memory; with a RangeIndex of its own.

    Raises
    ------
    RequestError
        With everything that is wrong with the request.
    ReadError
        When a file is damaged, or a value is not of the type that the samples have.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "sold.csv"
    >>> _ = file.write_text('city,price\nRome,9.5\n"Oslo\n(centre)",20\nBonn,12\n')
    >>> [shard_rows(file, n_machines=2, idx=idx).city.to_list() for idx in range(2)]
    [['Rome', 'Oslo\n(centre)'], ['Bonn']]
    """
    share, faults = found(idx, n_machines, ("idx", "n_machines"))
    check(faults)
    files = listing.find(url, storage_options)
    kind = formats.format_of(files, format, url)
    if kind == "avro":
        advice = "deal out whole files with shard_files"
        check([Fault("format", "'avro'", "'parquet', 'csv' or 'jsonl'", advice)])
    # Parquet comes as single row groups, text as whole files.
    request = Request(columns, partition_size=1 if kind == "parquet" else UNDIVIDED)
    table = plan_table(
        files,
        kind,
        request,
        dtypes=dtypes,
        parse_dates=parse_dates,
        separator=separator,
        encoding=encoding,
        names=names,
        multiline=multiline,
        na_values=na_values,
    )
    part: ParquetPart | SpanPart | None
    if kind == "parquet":
        part = parquet_rows.share(cast("Sequence[ParquetPart]", table.parts), share)
    else:
        part = text_rows.share(cast(SpanPart, table.parts[0]), share, multiline)
    return table.like if part is None else _in_pandas(part, table.like)


def _in_pandas(part: ParquetPart | SpanPart, like: pd.DataFrame) -> pd.DataFrame:
    """The rows; each column is given up when pandas has it, so that few are there twice."""
    with reading(part):
        frame = part.collected([str(name) for name in like.columns])
    index, columns = pd.RangeIndex(frame.height), {}
    for name, dtype in like.dtypes.items():
        columns[name] = column_to_pandas(frame.drop_in_place(str(name)), dtype)
        pa.default_memory_pool().release_unused()  # which it would keep for later reads
    return pd.DataFrame(columns, index=index, copy=False)
