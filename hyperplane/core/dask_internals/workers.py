"""Private names of distributed: the worker of this process, also outside of its tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

#: Bytes of a result up to which it is not spilled: that would free no memory.
_MIN_SPILLED_BYTES = 10_000


def find_worker_folder() -> str | None:
    """Return the folder of the worker in this process; None without one, or if there are several.

    ``distributed.get_worker`` only works in tasks, not while results of others are unpickled.
    """
    worker = _find_worker()
    return None if worker is None else str(worker.local_directory)


def find_results_folder() -> str | None:
    """Return the folder for files with results of the worker, as :func:`find_worker_folder`.

    Workers in one process pass results on without copies of them, and the folder of a worker is
    removed when it is closed. Their files are beside their folders.
    """
    worker = _find_worker()
    if worker is None:
        return None
    folder = str(worker.local_directory)
    return str(Path(folder).parent) if worker.address.startswith("inproc://") else folder


def keep_filed_results(is_filed: Callable[[Any], bool]) -> None:
    """Let the worker of this process not spill results whose data is in files already.

    ``is_filed`` returns whether a result is one.
    """
    data = getattr(_find_worker(), "data", None)
    if data is None or "evict" in vars(data):
        return
    # Loaded already, because there is a worker.
    from distributed.spill import SpillBuffer

    if isinstance(data, SpillBuffer):
        keep_filed_results_of(data, is_filed)


def keep_filed_results_of(data: Any, is_filed: Callable[[Any], bool]) -> None:
    """Let a SpillBuffer count results in files as empty, and spill no small results.

    If the process has little memory left, Dask spills all results from the least recently used
    one, of any size. Those in files were read for this and written once more, for each task that
    needed them again: 586 MB in a drop_duplicates of four times the memory.
    """
    fast = data.fast
    evict_any, evict_result, weigh = fast.evict, data.evict, fast.weight

    def evict(*key: Any) -> Any:
        if not key and not fast.heavy:
            large = (each for each in fast.order if fast.weights[each] > _MIN_SPILLED_BYTES)
            key = tuple(islice(large, 1))
            if not key:
                raise KeyError("no result is large enough")
        return evict_any(*key)

    def evict_or_fail() -> int:
        try:
            return int(evict_result())
        except KeyError:
            return -1  # as if the disk was full: the memory monitor stops

    fast.weight = lambda key, value: 0 if is_filed(value) else weigh(key, value)
    fast.evict, data.evict = evict, evict_or_fail


def _find_worker() -> Any:
    """Return the worker of this process; None without one, or if there are several."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        pass
    running = [
        worker
        for worker in list(distributed.Worker._instances)
        if worker.status in (distributed.Status.running, distributed.Status.paused)
    ]
    return running[0] if len(running) == 1 else None
