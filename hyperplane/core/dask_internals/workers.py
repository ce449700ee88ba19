"""Private names of distributed: the worker of this process, also outside of its tasks."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

#: Bytes of a result up to which it is spilled after all others: one file for each frees little.
_MAX_SMALL_BYTES = 10_000


def find_worker_folder() -> str | None:
    """Return the folder of the worker in this process; None without one, or if there are several.

    ``distributed.get_worker`` only works in tasks, not while results of others are unpickled.
    """
    worker = _find_worker()
    return None if worker is None else str(worker.local_directory)


class ResultsFolder(NamedTuple):
    """A folder for files with results, and whether it belongs to one worker.

    That of a worker is private and is removed with it. The other one is the parent of the folders
    of all workers in this process.
    """

    path: str
    is_of_worker: bool


def find_results_folder() -> ResultsFolder | None:
    """Return the folder for files with results of the worker, as :func:`find_worker_folder`.

    Workers in one process pass results on without copies of them, and the folder of a worker is
    removed when it is closed.
    """
    worker = _find_worker()
    if worker is None:
        return None
    folder = str(worker.local_directory)
    if worker.address.startswith("inproc://"):
        return ResultsFolder(str(Path(folder).parent), is_of_worker=False)
    return ResultsFolder(folder, is_of_worker=True)


def keep_filed_results(is_filed: Callable[[Any], bool]) -> None:
    """Let the worker of this process not spill results whose data is in files already.

    ``is_filed`` returns whether a result is one.
    """
    data = getattr(_find_worker(), "data", None)
    if data is None:
        return
    # Loaded already, because there is a worker.
    from distributed.spill import SpillBuffer

    if isinstance(data, SpillBuffer):  # a dict if the worker does not spill
        keep_filed_results_of(data, is_filed)


def keep_filed_results_of(data: Any, is_filed: Callable[[Any], bool]) -> None:
    """Let a SpillBuffer count results in files as empty, and spill small results last.

    If the process has little memory left, Dask spills all results from the least recently used
    one, of any size. Those in files were read for this and written once more, for each task that
    needed them again: 586 MB in a drop_duplicates of four times the memory.
    """
    fast = data.fast
    with fast.lock:
        if isinstance(fast.order, _SpillOrder):
            return
        fast.order = order = _SpillOrder(fast, is_filed)
        fast.weight = order.weigh
        evict_result = data.evict

        def evict_or_fail() -> int:
            try:
                return int(evict_result())
            except KeyError:  # all results are in files
                return -1  # as if the disk was full: the memory monitor stops

        data.evict = evict_or_fail


class _SpillOrder:
    """Order in which the LRU of a SpillBuffer spills results, in place of its ``order``.

    Large results are first, then small ones, each from the least recently used one. Results in
    files have the size 0, and are never spilled.
    """

    def __init__(self, fast: Any, is_filed: Callable[[Any], bool]) -> None:
        self._sizes, self._compute_size, self._is_filed = fast.weights, fast.weight, is_filed
        self._new_sizes: dict[Any, int] = {}  # of results that the LRU has weighed, but not added
        # Not dicts: the first key of one that was emptied from its front is found slowly.
        self._large: OrderedDict[Any, None] = OrderedDict()
        self._small: OrderedDict[Any, None] = OrderedDict()
        for key in fast.order:
            self.add(key)

    def weigh(self, key: Any, value: Any) -> int:
        """Return the size of a result that the LRU then adds."""
        size = self._new_sizes[key] = 0 if self._is_filed(value) else self._compute_size(key, value)
        return size

    def add(self, key: Any) -> None:
        """Add a result as the most recently used one."""
        size = self._new_sizes.pop(key, None)
        if size is None:  # the LRU moves a result that was used
            size = self._sizes[key]
        if size:
            (self._large if size > _MAX_SMALL_BYTES else self._small)[key] = None

    def remove(self, key: Any) -> None:
        """Remove a result, if it can be spilled."""
        self._large.pop(key, None)
        self._small.pop(key, None)

    def __iter__(self) -> Iterator[Any]:
        return chain(self._large, self._small)


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
