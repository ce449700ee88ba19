"""``hyperplane.load``."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeVar

import dask.bag as db
import dask.dataframe as dd
import pyarrow as pa
from dask import config
from dask.dataframe.utils import clear_known_categories
from dask.delayed import delayed
from pyarrow import parquet

from hyperplane.errors import Fault, HyperplaneError, ReadError, RequestError, StorageError
from hyperplane.storage.arrays import load_array
from hyperplane.storage.avro import read_avro
from hyperplane.storage.commits import FOREIGN
from hyperplane.storage.decoding import decoded
from hyperplane.storage.formats import PARTS, SUFFIXES
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import suffix_of
from hyperplane.storage.retrying import attempt, passes
from hyperplane.storage.shelf import Shelf
from hyperplane.storage.target import Target, check_options, target_of
from hyperplane.stores.places import Store
from hyperplane.stores.secrets import said

_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
#: Looks at a place before it is said that nothing, or not all, is there.
_LOOKS = 5
_GONE = "is gone: somebody has replaced it; load it again"
T = TypeVar("T")
#: What a file of a format is loaded as.
_KINDS = {
    "parquet": "table", "csv": "table", "tsv": "table", "jsonl": "table", "avro": "table",
    "json": "json", "npy": "numpy", "text": "text", "skops": "model", "joblib": "model",
}  # fmt: skip


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
    target = target_of(url, storage_options, options)
    check_options(target, options)
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
        raise StorageError(target.url, "there is nothing; check the name, or save it first")
    if manifest.format == FOREIGN:
        manifest = _guessed(target, manifest)
    if manifest.format == "files":
        raise StorageError(target.url, "is a folder of files; load each by its own URL")
    if manifest.format == "zarr":
        return load_array(commits, manifest)
    paths = commits.where(manifest)
    units = [
        Unit(target.store, path, part, manifest.format, f"{target.path}/{part.name}")
        for path, part in zip(paths, manifest.parts, strict=True)
    ]
    if manifest.kind == "bag":
        return db.from_delayed([delayed(read_records)(unit) for unit in units])
    # Text without rows does not say what its columns are.
    like = next((unit for unit in units if unit.part.rows != 0), units[0]).like()
    with config.set({"dataframe.convert-string": False}):
        return dd.from_map(ReadPart(like), units, meta=like, label="load")


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


@dataclass(frozen=True)
class Unit:
    """A part and where it lies."""

    store: Store
    path: str
    part: Part
    format: str
    published: str

    @property
    def url(self) -> str:
        """The part, for messages."""
        return Target(self.store, self.path).url

    def data(self) -> bytes:
        """All bytes of it.

        Raises
        ------
        ReadError
            When it is gone, or is not what was written, by its size and its checksum.
        """
        shelf = Shelf(self.store)
        found = shelf.get(self.path)
        if found is None and self.path != self.published:  # copied since, to where all look
            found = shelf.get(self.published)
        if found is None:
            raise ReadError(self.url, _GONE)
        if len(found) != self.part.size:
            raise ReadError(self.url, f"has {len(found)} bytes, and {self.part.size} were saved")
        if self.part.sha256 and hashlib.sha256(found).hexdigest() != self.part.sha256:
            raise ReadError(self.url, "is damaged: other bytes were saved; save it again")
        return found

    def _read(self, read: Callable[[Any], T]) -> T:
        def once() -> T:
            path = self.path
            if path != self.published and not self.store.system.exists(path):
                path = self.published  # copied since, to where all look
            with self.store.system.open(path, "rb") as opened:
                return read(opened)

        try:
            return attempt(once, self.url, options=self.store.options)
        except (OSError, pa.ArrowException) as error:
            cause = error.__cause__ or error
            if passes(cause):
                raise
            if isinstance(cause, FileNotFoundError):
                raise ReadError(self.url, _GONE) from error
            raise ReadError(self.url, f"is damaged ({said(cause, self.store.options)})") from error

    def table(self, columns: Sequence[str] | None) -> pa.Table:
        """Some columns of Parquet, their checksums compared."""
        names = None if columns is None else list(columns)
        return self._read(
            lambda opened: parquet.read_table(
                opened,
                columns=names,
                use_threads=False,
                use_pandas_metadata=True,  # the index, too
                page_checksum_verification=True,
            )
        )

    def like(self) -> Any:
        """A frame without rows, of the columns and types that it has."""
        if self.format == "parquet":
            empty = self._read(parquet.read_schema).empty_table().to_pandas()
            return clear_known_categories(empty)
        return decoded(self.data(), "table", self.format).iloc[:0]


@dataclass(frozen=True, repr=False)
class ReadPart:
    """Makes the frame of a part; Dask pushes the needed columns into it.

    Parameters
    ----------
    columns_like : pandas.DataFrame
        No rows; the columns and types of the first part.
    """

    columns_like: Any

    def __call__(self, unit: Unit, columns: Sequence[str] | None = None) -> Any:
        """Read a part."""
        text = unit.format != "parquet"
        frame = self._of_text(unit) if text else unit.table(columns).to_pandas()
        return frame if columns is None else frame[list(columns)]

    def _of_text(self, unit: Unit) -> Any:
        frame = decoded(unit.data(), "table", unit.format)
        if not len(frame):
            return self.columns_like
        try:
            return frame.astype(self.columns_like.dtypes)
        except (KeyError, TypeError, ValueError) as error:
            wrong = f"has other columns or types than the first part ({said(error)})"
            raise ReadError(unit.url, wrong) from error


def read_records(unit: Unit) -> list[Any]:
    """The items of a part of a bag."""
    if unit.format == "parquet":
        return list(unit.table(None).to_pylist())
    data = unit.data()
    if unit.format == "avro":
        return list(read_avro(data).to_pylist())
    # Not splitlines: JSON may hold other ends of lines as they are.
    lines = data.decode().split("\n")[:-1]
    return lines if unit.format == "text" else [json.loads(line) for line in lines]
