"""Import dask-jobqueue's classes without its SIGINT handler.

Importing dask-jobqueue also imports its runners, which install a SIGINT handler that ends the
process: interrupting a notebook would end its kernel. In threads other than the main one, Python
does not permit that, and the import would fail.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Ignore calls of ``signal.signal`` for SIGINT in this thread during the block."""
    original, this_thread = signal.signal, threading.get_ident()

    def set_handler(number: int, handler: Any) -> Any:
        if number == signal.SIGINT and threading.get_ident() == this_thread:
            return signal.getsignal(number)
        return original(number, handler)

    signal.signal = cast(Any, set_handler)
    try:
        yield
    finally:
        signal.signal = original


with _keep_sigint_handler():
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob

__all__ = ["SLURMCluster", "SLURMJob"]
