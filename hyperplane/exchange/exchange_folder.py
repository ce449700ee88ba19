"""Folders of Parquet files through which workers of two frameworks exchange rows."""

from __future__ import annotations

import atexit
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hyperplane.collections.frames.read import read
from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.process_folders import remove_folder
from hyperplane.formats.schemas import is_unnamed_index
from hyperplane.objectstore.listing import find_files, resolve_location
from hyperplane.objectstore.locations import File
from hyperplane.storage.saving import save

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import pyarrow as pa

LOCAL_HOSTS = ("", "127.0.0.1", "localhost", "::1")


def find_folder_faults(
    folder: Any, storage_options: Any, hosts: set[str]
) -> tuple[str, list[Fault]]:
    """Return the URL of a new folder below ``folder``, and faults; nothing is created.

    ``hosts`` are those of the workers that write or read; without a folder they must be this
    machine, because the files are then in its temporary directory.
    """
    faults = []
    if storage_options is not None and not isinstance(storage_options, Mapping):
        given = describe_value(storage_options)
        faults.append(Fault("storage_options", given, "a dict of options for fsspec, or None"))
    if folder is None:
        others = sorted(hosts.difference(LOCAL_HOSTS))
        if others:
            allowed = "a folder or URL that all workers read and write"
            advice = f"workers are on other machines: {', '.join(others[:3])}"
            faults.append(Fault("folder", "None", allowed, advice))
        return "", faults
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        faults.append(Fault("folder", describe_value(folder), "a folder, a URL, or None"))
    elif not faults:
        try:
            resolve_location(os.fspath(folder), storage_options)
        except RequestError as error:
            faults += [replace(fault, where="folder") for fault in error.faults]
    if faults:
        return "", faults
    return f"{os.fspath(folder).rstrip('/')}/{uuid.uuid4().hex}", faults


def find_dataframe_faults(df: Any) -> list[Fault]:
    """Return faults if an argument is no Dask dataframe, or has columns that Parquet has not."""
    import dask.dataframe as dd

    if isinstance(df, dd.DataFrame):
        names = find_name_faults("df", list(df.columns))
        return names or _find_unstorable_columns(df._meta.dtypes)
    advice = "dask.dataframe.from_pandas makes one of a pandas DataFrame"
    given = f"an object of type {type(df).__name__}"
    return [Fault("df", given, "a Dask dataframe", advice)]


def find_name_faults(argument: str, names: Sequence[Any]) -> list[Fault]:
    """Return a fault if columns have no names that files of Parquet keep.

    Columns named as an index without a name are read as one, and left out.
    """
    texts = all(isinstance(each, str) for each in names)
    if not names or not texts or len({*names}) < len(names):
        allowed = "columns with separate names, which are texts"
        return [Fault(argument, f"columns {list(names)}", allowed, "rename them")]
    return [
        Fault(argument, f"the column {name!r}", "names other than those of an index", "rename it")
        for name in names
        if is_unnamed_index(name)
    ]


def _find_unstorable_columns(dtypes: pd.Series) -> list[Fault]:
    """Return a fault for each column with a type of Arrow that Parquet does not have."""
    import pandas as pd

    allowed, advice = "types that Parquet can store", "convert it with .astype, or drop it"
    return [
        Fault("df", f"the column {name!r} of type {dtype}", allowed, advice)
        for name, dtype in dtypes.items()
        if isinstance(dtype, pd.ArrowDtype) and has_type(dtype.pyarrow_dtype, is_unstorable)
    ]


def has_type(kind: pa.DataType, is_searched: Callable[[pa.DataType], bool]) -> bool:
    """Return whether an Arrow type, or one in its lists, structs and maps, is a searched one."""
    import pyarrow as pa

    if is_searched(kind):
        return True
    if pa.types.is_dictionary(kind):
        return has_type(kind.value_type, is_searched)
    return any(has_type(kind.field(number).type, is_searched) for number in range(kind.num_fields))


def is_unstorable(kind: pa.DataType) -> bool:
    """Return whether Parquet does not have a type, apart from the types in it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> is_unstorable(pa.month_day_nano_interval()), is_unstorable(pa.struct([("x", pa.int8())]))
    (True, False)
    """
    import pyarrow as pa

    is_empty = pa.types.is_struct(kind) and not kind.num_fields
    others = pa.types.is_interval, pa.types.is_union, pa.types.is_run_end_encoded
    return is_empty or any(is_kind(kind) for is_kind in others)


def make_partition_fault(name: str, kinds: Iterable[Any]) -> Fault:
    """Return the fault of a column whose type differs among partitions."""
    return Fault(
        "df",
        f"the column {name!r} of type {' and '.join(map(str, kinds))} in partitions",
        "one type in all partitions",
        f'convert it, such as df.astype({{{name!r}: "float64"}})',
    )


def create_temporary_folder() -> str:
    """Return a new folder that only this user can read, removed when this process exits."""
    folder = tempfile.mkdtemp(prefix="hyperplane-exchange-")
    atexit.register(remove_folder, folder, os.getpid())
    return folder


def list_dask_hosts() -> set[str]:
    """Return the hosts of the workers of the default client; empty without a cluster."""
    client = get_active_client()
    if client is None:
        return set()
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {urlsplit(address).hostname or "" for address in workers if "inproc" not in address}


def save_rows(
    df: dd.DataFrame, url: str, storage_options: Mapping[str, Any] | None = None
) -> list[File]:
    """Save a Dask dataframe as Parquet files below ``url``, and return them in their order.

    Faults name the arguments of a conversion, in place of those of :func:`hyperplane.save`.
    """
    target = f"{url}/rows.parquet"
    try:
        save(df, target, storage_options=storage_options)
    except RequestError as error:
        names = {"obj": "df", "url": "folder"}
        raise RequestError(
            [replace(each, where=names.get(each.where, each.where)) for each in error.faults]
        ) from error
    return find_files(target, storage_options)


def read_rows(
    url: str, names: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> dd.DataFrame:
    """Return the Parquet files of a folder as a Dask dataframe with these columns.

    The names are given, because folders of the user such as ``day=3`` would be columns, too.
    """
    return read(
        url, list(names), format="parquet", storage_options=storage_options, decimals="exact"
    )
