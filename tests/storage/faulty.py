"""An object store with injected faults: ``faulty://`` URLs, shared by several processes.

It is a folder that processes share: ``objects`` has the objects, ``faults.json`` the configured
faults, and ``journal.jsonl`` every call. The fault of a call is drawn from the seed, the
operation, the path and the number of the attempt, so that neither the order of threads nor the
number of processes changes it.

As on a real store, objects appear complete or not at all, there are no folders and no renames, and
a file that is closed after an error in its ``with`` block is published with the data so far.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import fsspec
import store_errors
from faulty_objects import Objects
from faulty_store import WRITES, Call, Faults, Store
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

__all__ = ["Call", "Faults", "FaultyFileSystem", "Store", "register"]


class FaultyFileSystem(AbstractFileSystem):
    """The file system; ``root`` is the folder of a :class:`Store`."""

    protocol = "faulty"

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(**options)
        self.root = Path(root)
        self.data = Objects(self.root)
        self._read: tuple[int, Faults] = (-1, Faults())

    @property
    def faults(self) -> Faults:
        """The faults that are configured now."""
        path = self.root / "faults.json"
        stamp = path.stat().st_ino  # each version is a new file
        if self._read[0] != stamp:
            settings = json.loads(path.read_text())
            kill = tuple(settings.pop("kill") or ()) or None
            self._read = (
                stamp,
                Faults(**{**settings, "kinds": tuple(settings["kinds"]), "kill": kill}),
            )
        return self._read[1]

    def _call(self, op: str, path: str, act: Callable[[], Any], size: int = 0) -> Any:
        """Perform an operation on the store, or fail as configured; record it in the journal."""
        faults, began, attempt = self.faults, time.time(), self._nth(f"{op} {path}")
        hit = fnmatchcase(path, faults.only)
        writes = hit and op in WRITES
        number = self._nth("writes") if writes else 0
        dice = random.Random(f"{faults.seed} {op} {path} {attempt}")
        slow, refused, lost = dice.random(), dice.random(), dice.random()
        kind = dice.choice(faults.kinds)
        outcome, done = "ok", None

        def fail(kind: str) -> Exception:
            return store_errors.make(kind, faults.like, f"faulty://{path}", faults.retry_after)

        def note(outcome: str) -> None:
            seconds = time.time() - began
            count = len(done) if op == "read" and isinstance(done, bytes) else size
            self._journal(Call(op, path, began, seconds, outcome, count, attempt))

        def kill(moment: str) -> None:
            if faults.kill == (number, moment):
                note("killed")
                os.kill(os.getpid(), signal.SIGKILL)

        if hit and slow < faults.slow:
            time.sleep(faults.slow_seconds)
        try:
            if hit and (refusal := self._refusal(faults, writes)):
                outcome = refusal
                raise fail(refusal)
            if hit and refused < faults.transient:
                outcome = kind
                raise fail(kind)
            kill("before")
            try:
                done = act()
            except FileExistsError:
                outcome = "FileExistsError"
                raise fail("exists") from None
            except OSError as error:
                outcome = type(error).__name__
                raise
            kill("after")
            if writes and lost < faults.lost:
                outcome = "lost"
                # These libraries retry themselves, and find the object they wrote.
                again = op == "create" and faults.like in ("gcs", "s3")
                raise fail("exists" if again else kind)
            return done
        finally:
            note(outcome)

    def _refusal(self, faults: Faults, writes: bool) -> str | None:
        """Return the kind of an error that does not depend on chance."""
        if faults.permanent == "404" or (faults.permanent and writes):
            return faults.permanent
        limit = faults.writes_per_second
        if writes and limit is not None and self._nth(f"second {int(time.time())}") > limit:
            return "429"
        return None

    def _nth(self, what: str) -> int:
        """Count an operation in all processes, and return its number from 1."""
        return self._append(self.data.counter(what), b".")

    def _journal(self, call: Call) -> None:
        self._append(self.root / "journal.jsonl", json.dumps(asdict(call)).encode() + b"\n")

    @staticmethod
    def _append(path: Path, data: bytes) -> int:
        """Append to a file atomically, and return its length afterwards."""
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, data)
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path, faults = self._strip_protocol(path), self.faults
        found: dict[str, Any] = self._call(
            "info", path, lambda: self.data.info(path, faults.like, self._delay(path))
        )
        return found

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path, faults = self._strip_protocol(path), self.faults
        found = self._call(
            "list", path, lambda: self.data.list(path, faults.like, self._delay(path))
        )
        return found if detail else [entry["name"] for entry in found]

    def _delay(self, path: str) -> float:
        return self.faults.listing_delay if fnmatchcase(path, self.faults.only) else 0.0

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        found: bytes = self._call("read", path, lambda: self.data.read(path)[start:end])
        return found

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self.put_object(self._strip_protocol(path), bytes(value), create=mode == "create")

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = None, mode: str = "overwrite", **options: Any
    ) -> None:
        if not Path(lpath).is_dir():
            self.pipe_file(rpath, Path(lpath).read_bytes(), mode=mode)

    def put_object(self, path: str, value: bytes, *, create: bool) -> None:
        """Write an object in one piece."""
        act = lambda: self.data.put(path, value, create=create)  # noqa: E731
        self._call("create" if create else "put", path, act, len(value))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, path = self._strip_protocol(path1), self._strip_protocol(path2)
        act = lambda: self.data.put(path, self.data.read(source), create=False)  # noqa: E731
        self._call("copy", path, act)

    def rm_file(self, path: str) -> None:
        path, silent = self._strip_protocol(path), self.faults.like == "s3"
        self._call("remove", path, lambda: self.data.remove(path, silent=silent))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str) else path:
            for name in self.find(one, maxdepth=maxdepth) if recursive else [one]:
                self.rm_file(name)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> AbstractBufferedFile:
        kept = {key: options[key] for key in ("block_size", "autocommit") if key in options}
        size = self.data.size(path) if mode == "rb" else None
        return _File(self, path, mode, size=size, **kept)


class _File(AbstractBufferedFile):
    """A file of the store, read in ranges and written in parts."""

    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        part = self.buffer.getvalue()
        if not final:
            self.fs._call("part", self.path, lambda: None, len(part))
        self.parts.append(part)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        self.fs.put_object(self.path, b"".join(self.parts), create="x" in self.mode)

    def discard(self) -> None:
        self.parts = []

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.cat_file(self.path, start, end)
        return found


def register() -> None:
    """Register ``faulty://`` with fsspec in this process."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


register()
