"""`hyperplane.dataframe.read`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hyperplane.core.errors import Fault, check
from hyperplane.core.flags import is_one_of
from hyperplane.core.public_calls import check_call
from hyperplane.formats import partition_sizes, suffixes, types
from hyperplane.formats.arguments import find_urls_faults
from hyperplane.formats.avro import plan as avro_plan
from hyperplane.formats.csv import plan as csv_plan
from hyperplane.formats.jsonl import plan as jsonl_plan
from hyperplane.formats.parquet import plan as parquet_plan
from hyperplane.formats.reader import make_collection
from hyperplane.formats.request import OnError, ReadPlan, ReadRequest
from hyperplane.formats.text_plan import TextOptions
from hyperplane.objectstore import listing
from hyperplane.objectstore.locations import File

if TYPE_CHECKING:
    import dask.dataframe as dd

    from hyperplane.formats.schemas import SchemaMode

#: Format -> the arguments for text files that it supports.
_TEXT_ARGUMENTS = {
    "parquet": (),
    "avro": (),
    "jsonl": ("dtypes", "parse_dates"),
    "csv": ("dtypes", "parse_dates", "separator", "encoding", "names", "multiline", "na_values"),
}


@check_call
def read(
    urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    format: Literal["parquet", "csv", "jsonl", "avro"] | None = None,  # noqa: A002
    storage_options: Mapping[str, Any] | None = None,
    partition_size: str | int | None = None,
    schema: SchemaMode = "strict",
    decimals: types.Decimals = "float",
    on_error: OnError = "raise",
    dtypes: Mapping[str, Any] | None = None,
    parse_dates: Sequence[str] | Mapping[str, str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
    multiline: bool | None = None,
    na_values: Any = None,
) -> dd.DataFrame:
    """Read Parquet, CSV, JSON lines or Avro files as a lazy Dask dataframe.

    The call itself reads only metadata: footers of Parquet, headers of Avro, samples of text. All
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
        one list must hold. Operators are ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``,
        ``not in``, ``is null`` and ``not null``. Files and row groups are skipped by their
        statistics, and other rows are filtered. As in ``pandas.read_parquet`` null satisfies
        ``not in`` but no comparison, not even ``!=``.
    format : {"parquet", "csv", "jsonl", "avro"}, optional
        Format of the files; by default inferred from their suffix.
    storage_options : dict, optional
        Options for fsspec: keys, projects, timeouts. They are never shown in messages.
    partition_size : str or int, optional
        Memory of a partition, in bytes or as text; small files are then joined. By default each
        file is a separate partition, and files of more than 100 MB are divided. Partitions are
        smaller, down to 10 MB, if threads of the cluster would be idle otherwise.
    schema : {"strict", "union"}
        Whether files with different columns are an error, or missing columns are filled and
        numbers and times widened.
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
        CSV: UTF-8 by default.
    names : list of str, optional
        CSV: the columns of files without a header.
    multiline : bool, optional
        CSV: whether quoted values contain line breaks; by default inferred from samples. Such files
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
        With everything that is wrong with the request: missing files, unknown columns, filters of
        the wrong type, files whose columns differ.
    ReadError
        When files are damaged, at the call or when a partition is computed. It has ``url``.
    MissingPackage
        For Avro, when fastavro is not installed (extra ``avro``).

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
    faults += find_urls_faults(urls)
    faults += _find_choice_faults(schema=schema, decimals=decimals, on_error=on_error)
    check(faults)
    files = listing.find_files(urls, storage_options)
    kind = suffixes.format_of(files, format, urls)
    one_file_each = partition_size is None
    request = ReadRequest(columns, filters, size, schema, decimals, on_error, one_file_each)
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
    return make_collection(table.parts, table.like, "read")


def plan_table(files: Sequence[File], kind: str, request: ReadRequest, **text: Any) -> ReadPlan:
    """Plan the partitions of files of one format; raises what :func:`read` raises.

    ``text`` has the arguments of :func:`read` for text files, None for those not given.
    """
    given = {name: value for name, value in text.items() if value is not None}
    check(_find_unused_faults(kind, given) or _find_text_faults(given))
    if kind == "parquet":
        return parquet_plan.plan(files, request)
    if kind == "avro":
        return avro_plan.plan_files(files, request)
    plan_text = csv_plan.plan if kind == "csv" else jsonl_plan.plan
    return plan_text(files, request, TextOptions(**given))


def _find_choice_faults(**given: Any) -> list[Fault]:
    allowed = {
        "schema": ("strict", "union"),
        "decimals": ("float", "exact"),
        "on_error": ("raise", "skip"),
    }
    return [
        Fault(name, repr(value)[:80], " or ".join(map(repr, allowed[name])))
        for name, value in given.items()
        if not is_one_of(value, allowed[name])
    ]


def _find_unused_faults(kind: str, given: Mapping[str, Any]) -> list[Fault]:
    return [
        Fault(name, repr(value)[:80], f"nothing for {kind} files", "leave it out")
        for name, value in given.items()
        if name not in _TEXT_ARGUMENTS[kind]
    ]


def _find_text_faults(given: Mapping[str, Any]) -> list[Fault]:
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "separator": (_is_one_ascii, "one ASCII character"),
        "encoding": (_is_like_ascii, "an encoding that includes ASCII, such as 'latin-1'"),
        "names": (_are_unique_names, "a list of unique names"),
        "multiline": (lambda v: isinstance(v, bool), "True or False"),
    }
    return [
        Fault(name, repr(given[name])[:80], allowed)
        for name, (holds, allowed) in checks.items()
        if name in given and not holds(given[name])
    ]


def _is_one_ascii(separator: Any) -> bool:
    return isinstance(separator, str) and len(separator) == 1 and separator.isascii()


def _is_like_ascii(encoding: Any) -> bool:
    try:
        return "\n,".encode(encoding) == b"\n,"
    except (LookupError, TypeError, ValueError):
        return False


def _are_unique_names(names: Any) -> bool:
    listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return listed and 0 < len(set(names)) == len(names)
