"""Objects in a folder with the semantics of an object store: atomic, and without folders."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import time
import uuid
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any


class Objects:
    """The objects in ``root/objects``; several processes may change them at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def counter(self, what: str) -> Path:
        """Return the file whose length is the value of a counter."""
        return self.root / "counts" / hashlib.sha1(what.encode()).hexdigest()

    def _file(self, path: str) -> Path:
        if {"", ".", ".."} & set(path.split("/")):
            raise OSError(errno.EINVAL, "not the name of an object", path)
        return self.root / "objects" / path

    def put(self, path: str, value: bytes, *, create: bool) -> None:
        """Write an object; with ``create`` only if it does not exist, and only one writer wins."""
        file = self._file(path)
        draft = self.root / "drafts" / uuid.uuid4().hex
        draft.write_bytes(value)
        if not file.exists():
            self.counter(f"new {path}").touch()  # its time stamp is the creation time of the object
        try:
            while True:
                file.parent.mkdir(parents=True, exist_ok=True)
                # Another process may remove the empty folder at this moment.
                with contextlib.suppress(FileNotFoundError):
                    if create:
                        file.hardlink_to(draft)
                    else:
                        draft.replace(file)
                    return
        finally:
            draft.unlink(missing_ok=True)

    def read(self, path: str) -> bytes:
        """Return the bytes of an object."""
        try:
            return self._file(path).read_bytes()
        except IsADirectoryError:
            raise FileNotFoundError(errno.ENOENT, "No such object", path) from None

    def size(self, path: str) -> int:
        """Return the length of an object."""
        file = self._file(path)
        if not file.is_file():
            raise FileNotFoundError(errno.ENOENT, "No such object", path)
        return file.stat().st_size

    def remove(self, path: str, *, silent: bool) -> None:
        """Remove an object, and folders that this leaves empty."""
        file = self._file(path)
        try:
            file.unlink()
        except (FileNotFoundError, IsADirectoryError):
            if not silent:
                raise FileNotFoundError(errno.ENOENT, "No such object", path) from None
            return
        bucket = self.root / "objects"
        with contextlib.suppress(OSError):
            for folder in file.parents:
                if folder.parent == bucket:
                    break
                folder.rmdir()

    def info(self, path: str, like: str, delay: float) -> dict[str, Any]:
        """Return the metadata of an object, or of a folder that contains listed objects."""
        file = self._file(path)
        if file.is_file() and self._shown(path, delay):
            return self._entry(path, file, like)
        if file.is_dir() and next(self._below(file, delay), None):
            return {"name": path, "size": 0, "type": "directory"}
        if "/" not in path:
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(errno.ENOENT, "No such object", path)

    def list(self, path: str, like: str, delay: float) -> list[dict[str, Any]]:
        """Return the metadata of everything in a folder."""
        folder = self._file(path)
        if not folder.is_dir():
            return [self.info(path, like, delay)] if "/" in path else []
        found = []
        for file in sorted(folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                found.append(self.info(f"{path}/{file.name}", like, delay))
        if not found and "/" in path:
            raise FileNotFoundError(errno.ENOENT, "No such folder", path)
        return found

    def all(self) -> dict[str, bytes]:
        """Return every object with its bytes, listed or not."""
        top = self.root / "objects"
        return {self._name(file): file.read_bytes() for file in self._below(top, 0.0)}

    def _name(self, file: Path) -> str:
        return file.relative_to(self.root / "objects").as_posix()

    def _below(self, folder: Path, delay: float) -> Iterator[Path]:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and self._shown(self._name(file), delay):
                yield file

    def _shown(self, path: str, delay: float) -> bool:
        if not delay:
            return True
        since = self.counter(f"new {path}").stat().st_mtime
        return time.time() - since >= delay

    @staticmethod
    def _entry(path: str, file: Path, like: str) -> dict[str, Any]:
        """Return a listing entry with the checksums under the names that the store uses."""
        stat = file.stat()
        entry = {"name": path, "size": stat.st_size, "type": "file", "mtime": stat.st_mtime}
        if like == "plain":
            return entry
        md5 = _md5(file, stat.st_ino, stat.st_mtime_ns)
        if like == "s3":
            return {**entry, "ETag": f'"{md5.hex()}"'}
        text = base64.b64encode(md5).decode()
        return {**entry, "md5Hash": text, "etag": text, "generation": str(stat.st_mtime_ns)}


@lru_cache(maxsize=65536)
def _md5(file: Path, inode: int, changed: int) -> bytes:
    del inode, changed  # they differ for other content
    return hashlib.md5(file.read_bytes()).digest()
