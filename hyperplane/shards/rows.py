"""The share of the rows of files that one shard processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead, SupportsRowShards
from hyperplane.formats.pandas_frames.to_pandas import column_to_pandas
from hyperplane.formats.partitions import ScannablePartition
from hyperplane.formats.reader import collect_columns, translate_read_errors
from hyperplane.formats.request import ReadRequest
from hyperplane.objectstore import listing
from hyperplane.shards.current_shard import resolve_shard


@check_call
def shard_rows(
    url: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    n_machines: int | None = None,
    idx: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    format: str | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    parse_dates: Sequence[str] | Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
    multiline: bool | None = None,
    na_values: Any = None,
) -> pd.DataFrame:
    r"""Return a shard's share of the rows of files, such as Parquet or CSV.

    Concatenated by index, the shares are the whole table. All shares, also empty ones, have the
    columns and types of :func:`hyperplane.dataframe.read`. Little more than the bytes of the
    share is read.

    - Parquet: shares as ``numpy.array_split`` divides rows, so that the first ones may have one
      more row. The footers and the row groups with rows of the share are read, and one row of each
      row group if a column has ordered categories.
    - ORC: the same shares. Of the stripes up to the end of the share one column is read first, to
      count their rows, unless the share consists of whole files.
    - CSV and JSON lines: shares of equal bytes, moved to the next beginning of a record, so that
      the numbers of rows differ. The samples from which all shards infer the types are read, too,
      and the bytes up to the next record at both ends of the share. A compressed file, such as
      ``.csv.gz``, belongs to one shard as a whole; a single one cannot be divided into shards.

    Parameters
    ----------
    url : str, path, or list of these
        Files, globs, folders, or URLs that fsspec opens; several files are one table.
    n_machines, idx : int, optional
        The number of shards, and the index of this one, from 0; those of :func:`shard` if
        omitted.
    columns : list of str, optional
        The columns, in this order; all if omitted.
    format : str, optional
        Name of the format, such as ``"parquet"``; if omitted, the format of the files' suffix. The
        error of an unknown name lists all names.
    storage_options : dict, optional
        Options of the fsspec file system. Messages never show them.
    dtypes, parse_dates : optional
        CSV, JSON lines: types and datetime columns, as in :func:`hyperplane.dataframe.read`.
    separator, encoding, names, na_values : optional
        CSV: as in :func:`hyperplane.dataframe.read`.
    multiline : bool, optional
        CSV: whether quoted values may contain line breaks. If omitted, the quotes near each
        boundary of a share determine whether a line ends a record, and the number of quotes in
        the share must be even. If True, all quotes before the share are counted instead, which
        reads the file from its beginning. If False, every line is a record, regardless of quotes.

    Returns
    -------
    pandas.DataFrame
        In memory, with a RangeIndex from 0.

    Raises
    ------
    RequestError
        With every fault of the request.
    ReadError
        If a file is damaged, or a value does not fit the type inferred from the samples.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "sold.csv"
    >>> _ = file.write_text('city,price\nRome,9.5\n"Oslo\n(centre)",20\nBonn,12\n')
    >>> [shard_rows(file, n_machines=2, idx=idx).city.to_list() for idx in range(2)]
    [['Rome', 'Oslo\n(centre)'], ['Bonn']]
    """
    shard, faults = resolve_shard(idx, n_machines, ("idx", "n_machines"))
    check(faults)
    with _name_argument_url():
        files = listing.find_files(url, storage_options)
        file_format = registry.format_of(files, SupportsRead, format, url)
    if not isinstance(file_format, SupportsRowShards):
        known = [repr(name) for name in registry.list_formats(SupportsRowShards)[0]]
        allowed = f"{', '.join(known[:-1])} or {known[-1]}"
        advice = "divide whole files with shard_files"
        raise RequestError([Fault("format", repr(file_format.name), allowed, advice)])
    options = registry.check_read_options(
        file_format,
        dtypes=dtypes,
        parse_dates=parse_dates,
        separator=separator,
        encoding=encoding,
        names=names,
        multiline=multiline,
        na_values=na_values,
    )
    with _name_argument_url():
        plan = file_format.plan_shard(files, ReadRequest(columns), options, shard.idx, shard.n)
    return _to_pandas(plan.parts[0], plan.like) if plan.parts else plan.like


@contextmanager
def _name_argument_url() -> Iterator[None]:
    """Replace ``urls``, the name of the argument of ``read``, by ``url`` in faults."""
    try:
        yield
    except RequestError as error:
        if all(fault.where != "urls" for fault in error.faults):
            raise
        raise RequestError(
            [
                replace(fault, where="url") if fault.where == "urls" else fault
                for fault in error.faults
            ]
        ) from error


def _to_pandas(part: ScannablePartition, like: pd.DataFrame) -> pd.DataFrame:
    """Convert the rows to pandas; to save memory, release each column once it is converted."""
    with translate_read_errors(part):
        frame = collect_columns(part, [str(name) for name in like.columns])
    index, columns = pd.RangeIndex(frame.height), {}
    for name, dtype in like.dtypes.items():
        columns[name] = column_to_pandas(frame.drop_in_place(str(name)), dtype)
        pa.default_memory_pool().release_unused()  # Arrow would keep the memory for later reads
    return pd.DataFrame(columns, index=index, copy=False)
