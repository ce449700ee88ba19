"""Worker plugin that tells the scheduler what the process of a worker has taken.

Processes without this package receive this module by value, so it imports no other module of it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import WorkerPlugin

if TYPE_CHECKING:
    from distributed import Worker

_STATUS, _IO = Path("/proc/self/status"), Path("/proc/self/io")


def read_process_usage() -> dict[str, float]:
    """Return what this process has taken since its start.

    ``memory`` is its memory at ``time``, in seconds since 1970, and ``peak`` the largest one, in
    bytes, as the kernel has recorded them, ``cpu`` its CPU seconds, and ``read`` and ``written``
    the bytes that it has read from files and written to files. What this system does not record is
    missing.
    """
    usage: dict[str, float] = {"cpu": time.process_time(), "time": time.time()}
    with suppress(OSError, ValueError):
        status = _STATUS.read_bytes()
        usage["peak"] = _find_number(status, b"VmHWM:") * 1024
        usage["memory"] = _find_number(status, b"VmRSS:") * 1024
    with suppress(OSError, ValueError):
        counts = _IO.read_bytes()
        usage["read"] = _find_number(counts, b"rchar:")
        usage["written"] = _find_number(counts, b"wchar:")
    return usage


def _find_number(content: bytes, label: bytes) -> int:
    """Return the number after a label.

    Raises
    ------
    ValueError
        If the content does not have it.
    """
    start = content.index(label) + len(label)
    return int(content[start:].split(None, 1)[0])


class ProcessUsage(WorkerPlugin):
    """Worker plugin that adds the usage of the process to heartbeats, and returns it on request."""

    name = "hyperplane-process-usage"
    #: A cluster of this package has it already when a block of code adds it.
    idempotent = True
    #: Name of the metric in heartbeats, and of the handler of workers that returns it at once.
    metric = "hyperplane_process"

    @classmethod
    def as_metrics(cls, told: dict[str, float]) -> dict[str, Any]:
        """Return what a worker has told as metrics of its heartbeats, which are older."""
        fresh = {name: told[name] for name in ("memory", "time") if "memory" in told}
        return {**fresh, cls.metric: told}

    def setup(self, worker: Worker) -> None:
        """Add the metric and the handler."""
        worker.metrics[self.metric] = lambda worker: read_process_usage()
        worker.handlers[self.metric] = read_process_usage

    def teardown(self, worker: Worker) -> None:
        """Remove both."""
        worker.metrics.pop(self.metric, None)
        worker.handlers.pop(self.metric, None)
