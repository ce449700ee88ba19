"""``hyperplane.load``."""

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
from hyperplane.collections.frames.sources import hive_partitions
from hyperplane.collections.frames.sources.footers import READER_THREADS
from hyperplane.errors import (
    DataError,
    Fault,
    HyperplaneError,
    ReadError,
    RequestError,
    StorageError,
)
from hyperplane.public_calls import check_call
from hyperplane.storage.arrays import load_array
from hyperplane.storage.commits import FOREIGN
from hyperplane.storage.decoding import decoded
from hyperplane.storage.formats import PARTS, SUFFIXES
from hyperplane.storage.manifest import Manifest
from hyperplane.storage.part_files import FrameReader, PartFile, read_records
from hyperplane.storage.part_schemas import restored_schema, unified
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import suffix_of
from hyperplane.storage.shelf import Shelf
from hyperplane.storage.target import Target, check_options, target_of
from hyperplane.stores.secrets import said

_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
#: Looks at a place before it is said that nothing, or not all, is there.
_LOOKS = 5
#: What a file of a format is loaded as.
_KINDS = {
    "parquet": "table", "csv": "table", "tsv": "table", "jsonl": "table", "avro": "table",
    "json": "json", "npy": "numpy", "text": "text", "skops": "model", "joblib": "model",
}  # fmt: skip


@check_call
def load(
    url: str | PathLike[str],
    *,
    trusted: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Load what :func:`save` saved: one whole version of it.

    Parameters
    ----------
    url : str or path
        Where it was saved.
    trusted : bool
        Whether a model saved with joblib may be opened: that runs code which whoever wrote the
        file has chosen. Models saved with skops need no trust.
    storage_options : mapping, optional
        For the file system.
    **options
        More of them.

    Returns
    -------
    object
        A folder of parts is a lazy Dask dataframe or bag, which checks the size and the checksum
        of what it reads; of Parquet those of the pages. One file is what it holds: a pandas
        frame, a NumPy array, a dict, text, a model, or bytes.

    Raises
    ------
    RequestError
        When it is a pickle and ``trusted`` is not set.
    StorageError
        When there is nothing, or parts of it are missing.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> flights = pd.DataFrame({"carrier": ["UA", "AA"], "delay": [12, 30]})
    >>> result = hyperplane.save(flights, "memory://docs/late.parquet")
    >>> hyperplane.load("memory://docs/late.parquet")["delay"].sum()
    np.int64(42)
    """
    check_options(url, options, load)
    target = target_of(url, storage_options, options)
    shelf = Shelf(target.store)
    if shelf.is_file(target.path):
        return _file(target, shelf, trusted)
    if target.store.protocol in ("http", "https"):  # which has no folders
        wrong = "there is no file, or nothing answers at that address; check the URL and its server"
        raise StorageError(target.url, wrong)
    commits = commits_of(target)
    for _ in range(_LOOKS):
        manifest = commits.state().manifest
        if manifest is not None and not manifest.details.get("missing"):
            break
        time.sleep(0.02)  # somebody may be replacing it just now
    if manifest is None:
        advice = "check the name, or save it first"
        if "{" in target.path:
            several = re.sub(r"{[^{}]*}", "*", target.url)
            advice = (
                "of files saved under a template load each by its name, or all of them with "
                f"hyperplane.dataframe.read({several!r})"
            )
        raise StorageError(target.url, f"there is nothing; {advice}")
    if manifest.format == FOREIGN:
        manifest = _guessed(target, manifest)
    if manifest.format == "files":
        raise StorageError(target.url, "is a folder of files; load each by its own URL")
    if manifest.format == "zarr":
        return load_array(commits, manifest)
    paths = commits.where(manifest)
    files = [
        PartFile(target.store, path, part, manifest.format, f"{target.path}/{part.name}")
        for path, part in zip(paths, manifest.parts, strict=True)
    ]
    if manifest.kind == "bag":
        return db.from_delayed([delayed(read_records)(file) for file in files])
    return _frame(target, manifest, files)


def _frame(target: Target, manifest: Manifest, files: Sequence[PartFile]) -> Any:
    """A Dask dataframe of parts, of types that hold the values of all of them."""
    if manifest.format != "parquet" and not all(file.part.schema for file in files):
        # Another program wrote some of them: the types are in the files, if anywhere.
        urls = [target.address(file.path) for file in files]
        form: Any = "csv" if manifest.format == "tsv" else manifest.format
        separator = "\t" if manifest.format == "tsv" else None
        options = dict(target.store.options)
        return read(urls, format=form, schema="union", separator=separator, storage_options=options)
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        found = list(pool.map(_schema, files))
    files, schemas = _with_keys(files, found)
    urls = [file.url for file in files]
    like = unified(schemas, [file.part.rows for file in files], urls)
    with config.set({"dataframe.convert-string": False}):
        meta = clear_known_categories(like)
        return dd.from_map(FrameReader(like), files, meta=meta, label="load")


def _with_keys(
    files: Sequence[PartFile], schemas: Sequence[pa.Schema]
) -> tuple[Sequence[PartFile], Sequence[pa.Schema]]:
    """Parts and their schemas with the columns that are in the names of folders."""
    columns = {name for schema in schemas for name in schema.names}
    keys, kinds, lacking = hive_partitions.parse_hive_keys(
        [file.part.name for file in files], columns
    )
    if not kinds:
        return files, schemas
    types = {name: pa.int64() if kind.is_integer() else pa.string() for name, kind in kinds.items()}
    more = [pa.field(name, kind, nullable=name in lacking) for name, kind in types.items()]
    return (
        [replace(file, keys=keys[file.part.name]) for file in files],
        [pa.schema([*schema, *more], schema.metadata) for schema in schemas],
    )


def _schema(file: PartFile) -> pa.Schema:
    return restored_schema(file.part.schema) if file.part.schema else file.schema()


def _file(target: Target, shelf: Shelf, trusted: bool) -> Any:
    form = SUFFIXES.get(suffix_of(target), "bytes")
    if form == "joblib" and not trusted:
        allowed = "True, for a file from somebody whom you trust: to open it runs code in it"
        raise RequestError([Fault("trusted", "False", allowed, "or save models as .skops")])
    data = shelf.get(target.path)
    if data is None:
        raise StorageError(target.url, "it was removed just now")
    try:
        return decoded(data, _KINDS.get(form, "bytes"), form)
    except DataError as error:
        raise ReadError(target.url, str(error)) from error
    except (HyperplaneError, MemoryError):
        raise
    except Exception as error:  # each library of a format has errors of its own for damage
        raise ReadError(target.url, f"is damaged, or not what its name says ({said(error)})") from (
            error
        )


def _guessed(target: Target, manifest: Manifest) -> Manifest:
    """What another program wrote, by the ends of the names."""
    missing, added = (manifest.details.get(what, []) for what in ("missing", "added"))
    if missing or added:
        raise StorageError(
            target.url,
            "is not as it was saved: "
            + "; ".join(
                f"{len(names)} files {what} ({', '.join(names[:3])}{', ...' * (len(names) > 3)})"
                for names, what in ((missing, "are missing"), (added, "were added"))
                if names
            )
            + ". Save it again, or read it with another tool",
        )
    if any(part.name.rpartition("/")[2] in _ZARR_MARKS for part in manifest.parts):
        return Manifest("zarr", "dataset", manifest.parts)
    forms = {SUFFIXES.get(_suffix(part.name), "") for part in manifest.parts}
    if len(forms) != 1 or not forms <= set(PARTS["dataframe"]):
        raise StorageError(
            target.url,
            "is a folder that hyperplane did not save, with files of several kinds; read it with "
            "hyperplane.dataframe.read or hyperplane.bag.read_records",
        )
    return Manifest(forms.pop(), "dataframe", manifest.parts)


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2].lower()
