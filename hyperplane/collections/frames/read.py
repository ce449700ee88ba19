"""``read``: Parquet, ORC, CSV, JSON lines and Avro files as a lazy dataframe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import is_iterable
from hyperplane.formats import column_types, partition_sizes, registry
from hyperplane.formats.base import SupportsRead
from hyperplane.formats.filters import find_form_faults
from hyperplane.formats.reader import make_collection
from hyperplane.formats.registry import check_read_options
from hyperplane.formats.request import OnError, ReadRequest, parse_columns
from hyperplane.objectstore import listing

if TYPE_CHECKING:
    import dask.dataframe as dd

    from hyperplane.formats.schemas import SchemaMode


@check_call
def read(
    urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    format: str | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    partition_size: str | int | None = None,
    schema: SchemaMode = "strict",
    decimals: column_types.Decimals = "float",
    on_error: OnError = "raise",
    dtypes: Mapping[str, Any] | None = None,
    parse_dates: Sequence[str] | Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
    multiline: bool | None = None,
    na_values: Any = None,
) -> dd.DataFrame:
    """Read files of rows, such as Parquet or CSV, as a lazy Dask dataframe.

    The call itself reads only metadata, such as the footers of Parquet, and samples of text. All
    partitions have the same columns and types.

    Parameters
    ----------
    urls : str, path, or list of these
        Files, globs, folders, or URLs that fsspec opens. Files of a glob or folder are sorted by
        name in natural order: ``part-2`` before ``part-10``. Duplicate files are read once.
    columns : list of str, optional
        The columns to read, in this order; all by default.
    filters : list of tuple, or list of list of tuple, optional
        Conditions on rows. All conditions of a list such as
        ``[("price", ">", 10), ("city", "in", ["Rome", "Oslo"])]`` must hold; of a list of lists,
        all conditions of one list must hold. Operators are ``==``, ``!=``, ``<``, ``<=``, ``>``,
        ``>=``, ``in``, ``not in``, ``is null`` and ``not null``. Files and row groups without
        matching rows are skipped by their statistics; the rows of the others are filtered. As in
        ``pandas.read_parquet`` null satisfies ``not in`` but no comparison, not even ``!=``.
    format : str, optional
        Name of the format of the files, such as ``"parquet"``; by default that of their suffix.
        A wrong name is an error that lists all.
    storage_options : dict, optional
        Options for fsspec: keys, projects, timeouts. They are never shown in messages.
    partition_size : str or int, optional
        Memory of a partition in bytes, or as text: ``"100MB"`` is 10^8 bytes. Small files are then
        joined. By default each file is a separate partition, and files of more than 100 MB are
        divided. Partitions are smaller, down to 10 MB, if threads of the cluster would be idle
        otherwise.
    schema : {"strict", "union"}
        Whether files with different columns are an error, or missing columns are filled with
        missing values, and numbers and times are widened to a common type.
    decimals : {"float", "exact"}
        Read decimals as float64, or as Arrow decimals.
    on_error : {"raise", "skip"}
        Whether a damaged file is an error, or is skipped with a warning that names it.
    dtypes : dict, optional
        CSV, JSON lines: column to pandas type, for columns whose inferred type is wrong.
    parse_dates : list of str or dict, optional
        CSV, JSON lines: columns of times in ISO 8601 or in the format of the first value; or
        column to format, such as ``"%d/%m/%Y"``.
    separator : str, optional
        CSV: one character; by default a comma, or a tab for ``.tsv``.
    encoding : str, optional
        CSV: one that includes ASCII, UTF-8 by default; a byte order mark is skipped.
    names : list of str, optional
        CSV: the columns of files without a header.
    multiline : bool, optional
        CSV: True if quoted values contain line breaks, which otherwise the samples show. Such files
        are read once in advance to find where they can be divided.
    na_values : text, number, list of these, or dict of column to these, optional
        CSV: missing values in addition to those of ``pandas.read_csv``, such as ``"-"`` or
        ``-999``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Each partition has a separate RangeIndex.

    Raises
    ------
    RequestError
        With every invalid value of an argument, and every error of the first of these steps that
        finds any: missing files; the format; its options. If there is none, with unknown columns,
        filters that do not match the columns and files whose columns differ.
    ReadError
        If files are damaged, at the call or when a partition is computed. It has ``url``.
    MissingPackage
        For Avro, if fastavro is not installed (extra ``avro``).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> folder = Path(tempfile.mkdtemp())
    >>> sold = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "price": [9.5, 20.0, 12.0]})
    >>> sold.to_parquet(folder / "sold.parquet")
    >>> frame = read(folder / "*.parquet", columns=["price"], filters=[("city", "==", "Rome")])
    >>> frame.compute().price.to_list()
    [9.5, 12.0]
    """
    size, faults = partition_sizes.parse_partition_size(
        partition_sizes.DEFAULT_PARTITION_SIZE if partition_size is None else partition_size
    )
    faults += _find_choice_faults(schema=schema, decimals=decimals, on_error=on_error)
    if columns is not None:
        columns, column_faults = parse_columns(columns)
        faults += column_faults
    faults += find_form_faults(filters)
    try:
        check(_find_urls_faults(urls))
        files = listing.find_files(urls, storage_options)
        file_format = registry.format_of(files, SupportsRead, format, urls)
        options = check_read_options(
            file_format,
            dtypes=dtypes,
            parse_dates=parse_dates,
            separator=separator,
            encoding=encoding,
            names=names,
            multiline=multiline,
            na_values=na_values,
        )
    except RequestError as error:
        raise RequestError([*faults, *error.faults]) from error.__cause__
    check(faults)
    one_file_each = partition_size is None
    request = ReadRequest(columns, filters, size, schema, decimals, on_error, one_file_each)
    plan = file_format.plan_partitions(files, request, options)
    return make_collection(plan.parts, plan.like, "read")


def _find_choice_faults(**choices: Any) -> list[Fault]:
    allowed = {
        "schema": ("strict", "union"),
        "decimals": ("float", "exact"),
        "on_error": ("raise", "skip"),
    }
    return [
        Fault(name, repr(value)[:80], " or ".join(map(repr, allowed[name])))
        for name, value in choices.items()
        if not is_one_of(value, allowed[name])
    ]


def _find_urls_faults(urls: Any) -> list[Fault]:
    """Return a fault if ``urls`` is a dataframe, array or table instead of file paths."""
    if isinstance(urls, (str, os.PathLike)) or not is_iterable(urls):
        return []
    if not (hasattr(urls, "columns") or hasattr(urls, "dtype") or hasattr(urls, "schema")):
        return []
    allowed = "a path, glob or URL, or a list of them"
    advice = (
        "it is already loaded: use it without read, or convert a pandas frame with "
        "dask.dataframe.from_pandas(df, npartitions=...)"
    )
    return [Fault("urls", f"a {type(urls).__name__}", allowed, advice)]
