"""Load saved objects: ``hyperplane.load``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import PathLike
from typing import Any

import dask.bag as db
import dask.dataframe as dd
import pyarrow as pa
from dask import config
from dask.dataframe.utils import clear_known_categories
from dask.delayed import delayed

from hyperplane.collections.frames.read import read
from hyperplane.core.errors import (
    DataError,
    Fault,
    HyperplaneError,
    ReadError,
    RequestError,
    StorageError,
    check,
)
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import plural
from hyperplane.formats import hive_partitions
from hyperplane.formats.base import SupportsColumnLoad
from hyperplane.formats.pandas_frames.from_arrow import to_frame
from hyperplane.formats.reader import READER_THREADS
from hyperplane.formats.registry import load as load_format
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.save_target import Target, check_options, resolve_target
from hyperplane.objectstore.special_files import is_special_file
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.arrays import load_array
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.manifest import Manifest
from hyperplane.storage.object_encoding import decode_object
from hyperplane.storage.object_kinds import (
    find_format,
    is_format_of,
    list_loaded_formats,
    loaded_kind,
)
from hyperplane.storage.part_reading import FrameReader, PartFile, read_records
from hyperplane.storage.part_schemas import unify_schemas
from hyperplane.storage.published_state import FOREIGN
from hyperplane.storage.replaced_files import ZARR_METADATA_NAMES
from hyperplane.storage.request import target_suffix
from hyperplane.storage.shard_saving import describe_incomplete_runs

#: Reads of the published state before the output counts as missing or incomplete.
_STATE_READS = 5


@check_call
def load(
    url: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    trusted: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Load one complete version of a saved output.

    Parameters
    ----------
    url : str or path
        The saved output, or files that another program wrote.
    format : str, optional
        Name of the format of a single file, such as ``"parquet"``; by the suffix of the URL if
        omitted. A folder has a recorded format.
    trusted : bool
        Whether to load a model saved with joblib, which runs code chosen by the author of the
        file. A model saved with skops needs it only if it has types that skops does not trust,
        such as the trees of forests, or classes of the user.
    storage_options : mapping, optional
        Options of the file system.
    **options
        More options of the file system.

    Returns
    -------
    object
        A folder of parts is loaded as a lazy Dask dataframe or bag, which checks the size and
        checksum of each part that it reads, or of each page for Parquet. A Zarr store is loaded
        as a lazy Dask array or xarray object. A single file is loaded as the object in it: a
        pandas dataframe, a NumPy array, a dict, text, a model, or bytes.

    Raises
    ------
    RequestError
        With every fault of the call, such as a joblib model without ``trusted=True``.
    StorageError
        If nothing is saved there, parts are missing, or the store refuses a request.
    ReadError
        If a file is damaged or was replaced since it was loaded, also when a lazy object is
        computed.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> flights = pd.DataFrame({"carrier": ["UA", "AA"], "delay": [12, 30]})
    >>> result = hyperplane.save(flights, "memory://docs/late.parquet")
    >>> hyperplane.load("memory://docs/late.parquet")["delay"].sum()
    np.int64(42)
    """
    check_options(url, options, load)
    if format is not None:
        _check_format_name(format)
    target = resolve_target(url, storage_options, options)
    if target.store.local and is_special_file(target.path):
        raise StorageError(target.url, "it is a device, pipe or socket; load a file or folder")
    store_files = StoreFiles(target.store)
    if store_files.is_file(target.path):
        return _load_file(target, store_files, format, trusted)
    if target.store.protocol in ("http", "https"):  # HTTP has no folders
        problem = "the file does not exist, or its server does not answer; check the URL"
        raise StorageError(target.url, problem)
    commits = commit_protocol_for(target)
    for _ in range(_STATE_READS):
        manifest = commits.read_state().manifest
        if manifest is not None and not manifest.details.get("missing"):
            break
        time.sleep(0.02)  # another process may be replacing it
    if manifest is None:
        shards = describe_incomplete_runs(commits)
        if shards:
            raise StorageError(target.url, f"nothing is saved there yet: {shards}")
        advice = "check the URL, or save it first"
        if "{" in target.path:
            pattern = re.sub(r"{[^{}]*}", "*", target.url)
            advice = (
                "load files saved with a template one by one, or all of them with "
                f"hyperplane.dataframe.read({pattern!r})"
            )
        raise StorageError(target.url, f"nothing is saved there; {advice}")
    if format is not None:
        allowed = f"None, as {target.url} is a folder"
        check([Fault("format", repr(format), allowed, "omit format=")])
    if manifest.format == FOREIGN:
        manifest = _infer_foreign_format(target, manifest)
    if manifest.format == "files":
        raise StorageError(target.url, "is a folder of files; load each file by its URL")
    if manifest.format == "zarr":
        return load_array(commits, manifest)
    _check_format(target, manifest)
    paths = commits.part_paths(manifest)
    files = [
        PartFile(target.store, path, part, manifest.format, f"{target.path}/{part.name}")
        for path, part in zip(paths, manifest.parts, strict=True)
    ]
    if manifest.kind == "bag":
        return db.from_delayed([delayed(read_records)(file) for file in files])
    return _load_frame(target, manifest, files)


def _check_format_name(name: Any) -> None:
    """Raise RequestError unless single files can be loaded in a format of a name."""
    known = list_loaded_formats()
    if not isinstance(name, str) or name not in known:
        check([Fault("format", repr(name)[:80], f"one of {', '.join(known)}, or None")])


def _check_format(target: Target, manifest: Manifest) -> None:
    """Raise if the parts have a format of a package that cannot be imported here."""
    try:
        load_format(manifest.format)
    except RequestError as error:
        problem = f"its parts have the format {manifest.format!r}, which is not installed here"
        advice = "install the package that it was saved with"
        raise StorageError(target.url, f"{problem}; {advice}") from error


def _load_frame(target: Target, manifest: Manifest, files: Sequence[PartFile]) -> Any:
    """Return a Dask dataframe of the parts, with types that hold the values of all parts."""
    file_format: Any = load_format(manifest.format)
    has_schemas = all(file.part.schema for file in files)
    if not isinstance(file_format, SupportsColumnLoad) and not has_schemas:
        # Another program wrote some parts, so their types are not recorded.
        urls = [Location(target.store, file.path).address for file in files]
        options = dict(target.store.options)
        return read(urls, schema="union", storage_options=options, **file_format.read_arguments)
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        part_schemas = list(pool.map(PartFile.read_schema, files))
    files, schemas = _add_partition_keys(files, part_schemas)
    urls = [file.url for file in files]
    like = unify_schemas(schemas, [file.part.rows for file in files], urls)
    with config.set({"dataframe.convert-string": False}):
        meta = clear_known_categories(like)
        return dd.from_map(FrameReader(like), files, meta=meta, label="load")


def _add_partition_keys(
    files: Sequence[PartFile], schemas: Sequence[pa.Schema]
) -> tuple[Sequence[PartFile], Sequence[pa.Schema]]:
    """Return files and schemas with the columns of folder names such as ``key=value``."""
    columns = {name for schema in schemas for name in schema.names}
    keys, kinds, lacking = hive_partitions.parse_hive_keys(
        [file.part.name for file in files], columns
    )
    if not kinds:
        return files, schemas
    types = {name: pa.int64() if kind.is_integer() else pa.string() for name, kind in kinds.items()}
    added = [pa.field(name, kind, nullable=name in lacking) for name, kind in types.items()]
    return (
        [replace(file, keys=keys[file.part.name]) for file in files],
        [pa.schema([*schema, *added], schema.metadata) for schema in schemas],
    )


def _load_file(
    target: Target, store_files: StoreFiles, given_format: str | None, trusted: bool
) -> Any:
    """Return the object in a single file."""
    format_name = given_format or find_format(target_suffix(target)) or "bytes"
    if format_name == "joblib" and not trusted:
        allowed = "True if you trust the author of the file, as loading it runs code in it"
        raise RequestError([Fault("trusted", "False", allowed, "or save the model as .skops")])
    data = store_files.get(target.path)
    if data is None:
        raise StorageError(target.url, "was removed while it was loaded; load it again")
    try:
        kind = loaded_kind(format_name)
        if kind == "table":
            return _decode_table(data, format_name)
        return decode_object(data, kind, format_name, trusted=trusted)
    except DataError as error:
        raise ReadError(target.url, str(error)) from error
    except (HyperplaneError, MemoryError):
        raise
    except Exception as error:  # each format's library raises its own exceptions
        reason = " ".join(describe_error(error).split())  # of some in several lines
        raise ReadError(
            target.url,
            f"is damaged, or its content does not match its suffix ({reason}); save it again, or "
            "correct its suffix",
        ) from error


def _decode_table(data: bytes, format_name: str) -> Any:
    """Return the dataframe in a file."""
    file_format: Any = load_format(format_name)
    table = file_format.decode_table(data, None)
    return to_frame(table) if isinstance(table, pa.Table) else table


def _infer_foreign_format(target: Target, manifest: Manifest) -> Manifest:
    """Return a manifest of another program's files with the format of their suffixes."""
    missing, added = (manifest.details.get(key, []) for key in ("missing", "added"))
    if missing or added:
        raise StorageError(
            target.url,
            "has changed since it was saved: "
            + "; ".join(
                f"{plural(len(names), 'file')} {change} ({_list_some(names)})"
                for names, change in ((missing, "missing"), (added, "added"))
                if names
            )
            + ". Save it again, or read its files as they are with hyperplane.dataframe.read or "
            "another library",
        )
    if any(part.name.rpartition("/")[2] in ZARR_METADATA_NAMES for part in manifest.parts):
        return Manifest("zarr", "dataset", manifest.parts)
    formats = {find_format(suffix) for suffix in {_suffix(part.name) for part in manifest.parts}}
    if len(formats) != 1 or not is_format_of("dataframe", min(formats)):
        raise StorageError(
            target.url,
            "is a folder that hyperplane did not save, and its files do not all have one format of "
            f"tables: {_list_some([part.name for part in manifest.parts])}. Load each file by its "
            "URL, or read some of them with hyperplane.dataframe.read or "
            "hyperplane.bag.read_records",
        )
    return Manifest(formats.pop(), "dataframe", manifest.parts)


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2].lower()
