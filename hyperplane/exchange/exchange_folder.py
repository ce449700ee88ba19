"""Folders of Parquet files through which workers of two frameworks exchange rows."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, RequestError
from hyperplane.objectstore.listing import find_files, resolve_location
from hyperplane.objectstore.locations import File
from hyperplane.storage.saving import save

if TYPE_CHECKING:
    import dask.dataframe as dd

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
    """Return a fault if an argument is no Dask dataframe."""
    import dask.dataframe as dd

    if isinstance(df, dd.DataFrame):
        return []
    advice = "dask.dataframe.from_pandas makes one of a pandas DataFrame"
    given = f"an object of type {type(df).__name__}"
    return [Fault("df", given, "a Dask dataframe", advice)]


def create_temporary_folder() -> str:
    """Return a new folder that only this user can read, removed when this process exits."""
    folder = tempfile.mkdtemp(prefix="hyperplane-exchange-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
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
