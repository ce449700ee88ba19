"""dask-jobqueue's classes, loaded without what loading them does to Ctrl-C.

Its part for runners, which is loaded with the rest, makes SIGINT end the program it is loaded in:
a notebook that somebody interrupts would lose its kernel. In any thread but the main one that is
an error, and nothing is loaded.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def _ctrl_c_as_it_is() -> Iterator[None]:
    """Let this thread set no handler of SIGINT."""
    real, here = signal.signal, threading.get_ident()

    def set_handler(number: int, handler: Any) -> Any:
        if number == signal.SIGINT and threading.get_ident() == here:
            return signal.getsignal(number)
        return real(number, handler)

    signal.signal = cast(Any, set_handler)
    try:
        yield
    finally:
        signal.signal = real


with _ctrl_c_as_it_is():
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob

__all__ = ["SLURMCluster", "SLURMJob"]
