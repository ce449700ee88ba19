"""A store in memory that counts the bytes read from it."""

from __future__ import annotations

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class TallyStore(MemoryFileSystem):
    """Count every byte that is read, and record its position."""

    protocol = "tally"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    ranges: list = []  # noqa: RUF012
    cachable = False

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("tally://", "memory://"))

    def _open(self, path, mode="rb", **options):
        return TallyFile(self, path) if mode == "rb" else super()._open(path, mode, **options)

    def cat_file(self, path, start=None, end=None, **options):
        data = super().cat_file(path, start=start, end=end, **options)
        self.ranges.append((start or 0, (start or 0) + len(data)))
        return data


class TallyFile:
    """A file that records every read."""

    closed = False

    def __init__(self, store, path):
        self.file, self.store = MemoryFileSystem._open(store, path, "rb"), store

    def read(self, size=-1):
        start = self.file.tell()
        data = self.file.read(size)
        self.store.ranges.append((start, start + len(data)))
        return data

    def seek(self, offset, whence=0):
        return self.file.seek(offset, whence)

    def tell(self):
        return self.file.tell()

    def readable(self):
        return True

    def seekable(self):
        return True

    def writable(self):
        return False

    def flush(self):
        pass

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def fresh():
    """Return the store, registered and empty."""
    fsspec.register_implementation("tally", TallyStore, clobber=True)
    TallyStore.store.clear()
    TallyStore.pseudo_dirs[:] = [""]
    TallyStore.ranges.clear()
    return TallyStore()


def read_of(action):
    """Return the result of a function, the number of bytes it read, and their ranges."""
    TallyStore.ranges.clear()
    result = action()
    return result, sum(stop - start for start, stop in TallyStore.ranges), list(TallyStore.ranges)
