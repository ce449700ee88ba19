"""Private names of distributed: what it imports in this process to start worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import utils


@contextmanager
def keep_forkserver_modules() -> Iterator[None]:
    """Keep Dask from replacing the modules that Python's forkserver imports when it starts.

    Otherwise, before the first worker process that is forked, Dask imports pandas in this process,
    which takes half a second of CPU time and 68 MB, only to add it to these modules.
    """
    before = utils._forkserver_preload_set
    utils._forkserver_preload_set = True
    try:
        yield
    finally:
        utils._forkserver_preload_set = before
