"""Operations on whole files of a store or local disk, with retries and a concurrency limit."""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib
import mimetypes
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fsspec.spec import AbstractFileSystem

from hyperplane.core.errors import StorageError
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.redaction import redact_url
from hyperplane.objectstore.retrying import call_with_retries
from hyperplane.objectstore.special_files import is_special_file

T = TypeVar("T")

_CONTENT_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".jsonl": "application/x-ndjson",
    ".ndjson": "application/x-ndjson",
    ".avro": "application/avro",
    ".npy": "application/octet-stream",
}
#: Initial and maximum number of concurrent requests to a store.
INITIAL_LIMIT, MAX_LIMIT = 4, 64


class Throttle:
    """Adaptive concurrency limit (additive increase, multiplicative decrease).

    Examples
    --------
    >>> limit = Throttle()
    >>> with limit.acquire():
    ...     limit.limit
    4
    """

    def __init__(self) -> None:
        self.limit = INITIAL_LIMIT
        self._busy = 0
        self._successes = 0
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait until a request may start, and count it as running in this block."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy < self.limit)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._successes += 1
                if self._successes >= self.limit:
                    self.limit, self._successes = min(MAX_LIMIT, self.limit + 1), 0
                self._changed.notify_all()

    def reduce(self) -> None:
        """Halve the limit, because a request has failed and is repeated."""
        with self._changed:
            self.limit, self._successes = max(1, self.limit // 2), 0


#: Protocol -> the limit that all its stores share.
_throttles: dict[str, Throttle] = {}


def guess_content_type(name: str) -> str:
    """Return the content type of a file by its name."""
    suffix = Path(name).suffix.lower()
    return _CONTENT_TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def content_type_options(system: Any, path: str) -> dict[str, Any]:
    """Return the file system's options that set the content type of a file."""
    protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
    kind = guess_content_type(path)
    if protocol in ("gs", "gcs"):
        return {"content_type": kind}
    if protocol in ("s3", "s3a"):
        return {"ContentType": kind}
    if protocol in ("abfs", "az", "abfss"):
        settings = importlib.import_module("azure.storage.blob").ContentSettings
        return {"content_settings": settings(content_type=kind)}
    return {}


class StoreFiles:
    """Operations on whole files of one store.

    Parameters
    ----------
    store : Store
        The store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.throttle = _throttles.setdefault(store.protocol, Throttle())

    def put(self, path: str, data: Any) -> None:
        """Write a file atomically, replacing an existing one."""
        self.call(path, partial(_write_replacing if self.store.local else self._upload, path, data))

    def put_new(self, path: str, data: bytes) -> None:
        """Write a file atomically, unless it exists.

        Raises
        ------
        FileExistsError
            If it exists with other content.
        """
        try:
            self.call(
                path, partial(_write_new if self.store.local else self._upload_new, path, data)
            )
            return
        except FileExistsError as error:
            refused = error
        # If a response was lost, this process may have written the file itself. This is not in the
        # handler, because a transient error of get() would then have the refusal as its context and
        # not be retried.
        if self.get(path) != data:
            raise refused

    def get(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        if self.store.local and is_special_file(path):
            # Reading a pipe would wait, and some devices have no end.
            raise StorageError(path, "it is a device, pipe or socket; choose another name")
        try:
            data: bytes = self.call(path, partial(self.store.system.cat_file, path))
            return data
        except (FileNotFoundError, StorageError) as error:
            if self.is_missing(error):
                return None
            raise

    def list_files(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return the store's information on all files below a folder, by relative path."""
        system = self.store.system
        system.invalidate_cache()
        # fsspec's generic find() ignores folders that it cannot read.
        is_generic = type(system).find is AbstractFileSystem.find
        list_below = self._walk if is_generic else partial(self._find, system)
        try:
            files = list_below(folder)
        except (FileNotFoundError, StorageError) as error:
            if self.is_missing(error):
                return {}
            raise
        prefix = folder.rstrip("/") + "/"
        inside = {path: info for path, info in files.items() if path.startswith(prefix)}
        return {path.removeprefix(prefix): info for path, info in inside.items()}

    def _find(self, system: Any, folder: str) -> dict[str, dict[str, Any]]:
        """Return all files below a folder by path, with the file system's own find()."""
        files: dict[str, dict[str, Any]] = self.call(
            folder, partial(system.find, folder, detail=True)
        )
        return files

    def _walk(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return all files below a folder by path; each folder's listing is retried."""
        files, pending = {}, [folder]
        while pending:
            current = pending.pop()
            try:
                entries = self.call(current, partial(self.store.system.ls, current, detail=True))
            except (FileNotFoundError, StorageError) as error:
                if current == folder or not self.is_missing(error):
                    raise
                continue  # the folder was removed meanwhile
            for info in entries:
                if info["type"] != "directory":
                    files[info["name"]] = info
                elif info["name"].rstrip("/") != current:
                    pending.append(info["name"].rstrip("/"))
        return dict(sorted(files.items()))

    def is_file(self, path: str) -> bool:
        """Return whether a path is an existing file."""
        # Not fsspec's isfile, which returns False for any error.
        self.store.system.invalidate_cache()
        try:
            info = self.call(path, partial(self.store.system.info, path))
        except (FileNotFoundError, StorageError) as error:
            if self.is_missing(error):
                return False
            raise
        return bool(info["type"] == "file")

    def verify(self, path: str, data: bytes) -> None:
        """Check that the store has the size and checksum of the data that was written.

        Raises
        ------
        StorageError
            If the size differs, or the MD5 if the store reports one.
        """
        self.store.system.invalidate_cache()
        info = self.call(path, partial(self.store.system.info, path))
        if int(info["size"] or 0) != len(data) or _reported_md5(info) not in ("", _md5(data)):
            raise StorageError(
                redact_url(self._get_url(path)),
                f"has {info['size']} bytes in the store, but {len(data)} bytes were written, or "
                "its checksum differs; save again",
            )

    def copy(self, path: str, to: str) -> None:
        """Copy a file within the store, on the server's side; on local disk make a hard link."""
        copy = _link_or_copy if self.store.local else self.store.system.cp_file
        self.call(to, partial(copy, path, to))

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""
        self.map_concurrently(self._remove, list(paths))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and all files below it."""
        if self.store.local:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self.remove(f"{folder}/{name}" for name in self.list_files(folder))

    def map_concurrently(self, work: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Call a function for each item in threads, and return the results in order."""
        if not items:
            return []
        with ThreadPoolExecutor(min(MAX_LIMIT, len(items))) as pool:
            return list(pool.map(work, items))

    def is_missing(self, error: BaseException) -> bool:
        """Return whether an error means that a file does not exist."""
        return isinstance(error, FileNotFoundError) or isinstance(
            error.__cause__, FileNotFoundError
        )

    def call(self, path: str, work: Callable[[], T]) -> T:
        """Call a function that uses a path, under the concurrency limit and with retries."""

        def throttled() -> T:
            with self.throttle.acquire():
                return work()

        return call_with_retries(
            throttled,
            self._get_url(path),
            store=self.store,
            before_retry=self.throttle.reduce,
        )

    def _get_url(self, path: str) -> str:
        """Return a path as a URL, which may contain secrets."""
        return path if self.store.local else str(self.store.system.unstrip_protocol(path))

    def _remove(self, path: str) -> None:
        try:
            self.call(path, partial(self.store.system.rm_file, path))
        except (FileNotFoundError, StorageError) as error:
            if not self.is_missing(error):
                raise

    def _upload(self, path: str, data: Any, **options: Any) -> None:
        system = self.store.system
        kind = content_type_options(system, path)
        if "content_type" in kind:  # gcsfs: verify the checksum, as S3 does anyway
            options["consistency"] = "md5"
        system.pipe_file(path, bytes(data), **kind, **options)

    def _upload_new(self, path: str, data: bytes) -> None:
        self._upload(path, data, mode="create")


def _reported_md5(info: Mapping[str, Any]) -> str:
    """Return the MD5 of a file as hexadecimal digits; empty if the store does not report it."""
    if info.get("md5Hash"):
        return base64.b64decode(info["md5Hash"]).hex()
    # The ETag of a multipart upload is not the MD5 of the file.
    etag = str(info.get("ETag", "")).strip('"')
    return etag if re.fullmatch("[0-9a-f]{32}", etag) else ""


def _md5(data: Any) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def choose_draft_path(path: str) -> Path:
    """Return the path of a new temporary file in the folder of a path; create the folder."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.with_name(f".{file.name[:200]}.{secrets.token_hex(6)}.part")


def _write_draft(path: str, data: Any) -> Path:
    """Write data to a temporary file in the folder of a path."""
    draft = choose_draft_path(path)
    try:
        with draft.open("xb") as opened:
            opened.write(data)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _link_or_copy(path: str, to: str) -> None:
    """Hard link a file, or copy it if the disk has no hard links."""
    Path(to).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, to)
    except FileNotFoundError:
        raise
    except FileExistsError:
        if not Path(path).samefile(to):
            shutil.copy2(path, to)
    except OSError:  # a disk without hard links
        shutil.copy2(path, to)


def _write_replacing(path: str, data: Any) -> None:
    """Write a file by renaming a temporary file to its path."""
    if is_special_file(path):
        raise FileExistsError(errno.EEXIST, "it is a device, pipe or socket", path)
    draft = _write_draft(path, data)
    try:
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _write_new(path: str, data: bytes) -> None:
    """Write a file by linking a temporary file to its path."""
    draft = _write_draft(path, data)
    try:
        os.link(draft, path)  # unlike a rename it fails when the name is taken
    finally:
        draft.unlink(missing_ok=True)
