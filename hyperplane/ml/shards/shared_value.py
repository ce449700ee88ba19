"""``SharedValue``: an object that is sent to the workers once."""

from __future__ import annotations

import sys
import threading
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.errors import Fault, check
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import check_call

#: Seconds after which a worker that cannot fetch a value raises TimeoutError.
_FETCH_SECONDS = 600.0
#: First part of the keys of values on the workers.
_PREFIX = "SharedValue-"

_LOST = Fault(
    "SharedValue",
    "",
    "it was lost with its workers, or unpersisted",
    "create another one, and the shards that use it",
)

#: Futures of unpersisted values that are in the graphs of lazy shards.
_unpersisted: weakref.WeakSet[Any] = weakref.WeakSet()

_pickled = threading.local()


@check_call
class SharedValue:
    """An object that is sent to each worker once, for functions of ``transform_shard``.

    Pass it as an argument, also in a list, dict or partial function, or use it as a variable of
    the function, and read ``.value`` there. The tasks depend on it: a worker that joined later, or
    whose copy Dask has removed while no task needed it, fetches it once for all its tasks. Without
    a cluster it is the object itself.

    Parameters
    ----------
    data : object
        Any object that can be pickled. Functions must not change it.

    Raises
    ------
    RequestError
        If the object cannot be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from hyperplane.ml import XShards
    >>> names = SharedValue({1: "one", 2: "two"})
    >>> shards = XShards.partition([np.array([1, 2])], num_shards=1)
    >>> def spell(shard, names):
    ...     return [names.value[number] for number in shard[0]]
    >>> shards.transform_shard(spell, names).collect()
    [['one', 'two']]
    >>> names.unpersist()
    """

    def __init__(self, data: Any) -> None:
        client = get_active_client()
        self._future: Any = None
        self._key = ""
        self._data: Any = data
        self._released = False
        if client is not None:
            check(find_pickle_faults("data", data))
            self._key = f"{_PREFIX}{uuid.uuid4().hex}"
            self._future = client.scatter({self._key: data}, broadcast=True)[self._key]
            # Not kept twice: the client has no further use of it, and can fetch it.
            self._data = None

    @property
    def value(self) -> Any:
        """The object; in a task, the copy of its worker."""
        if self._released:
            check([Fault("SharedValue", "", "it is unpersisted", "create another one")])
        if not self._key:
            return self._data
        if self._future is not None:
            return self._future.result()
        return _find_on_worker(self._key)

    def unpersist(self) -> None:
        """Remove the object from all workers; lazy shards that use it can no longer be computed."""
        if self._future is not None:
            _unpersisted.add(self._future)
            self._future.release()  # also the reference in the graphs of lazy shards
        self._future = self._data = None
        self._released = True

    def __getstate__(self) -> dict[str, Any]:
        # The future stays with the client that created it, which decides on its lifetime.
        if self._future is not None:
            getattr(_pickled, "futures", {})[self._key] = self._future
        return {**self.__dict__, "_future": None}


@contextmanager
def record_shared_values() -> Iterator[dict[str, Any]]:
    """Yield a dict that receives key and future of each value that this thread pickles."""
    futures: dict[str, Any] = {}
    _pickled.futures = futures
    try:
        yield futures
    finally:
        del _pickled.futures


def check_unpersisted(parts: Sequence[Any]) -> None:
    """Raise RequestError if lazy objects use a value that is unpersisted.

    Dask would cancel the tasks, and results of the same tasks that the workers hold.
    """
    if _unpersisted:
        futures = sys.modules["distributed"].futures_of(list(parts))
        if not _unpersisted.isdisjoint(futures):
            check([_LOST])


def check_lost(parts: Sequence[Any]) -> None:
    """Raise RequestError if shared values are all that lazy objects have lost."""
    futures = sys.modules["distributed"].futures_of(list(parts))
    lost = [future for future in futures if future.status in ("cancelled", "lost")]
    if lost and all(str(future.key).startswith(_PREFIX) for future in lost):
        check([_LOST])


def _find_on_worker(key: str) -> Any:
    """Return the value in a task: the copy of its worker, or that of another one.

    A task that depends on the value has a copy. Others, such as those of a function that is
    imported on the workers, do not.
    """
    from distributed import Future, get_client, get_worker

    worker = get_worker()
    if key in worker.data:
        return worker.data[key]
    # With its state, of which the scheduler informs only clients that submitted the task.
    state: Any = "memory"
    future: Future[Any] = Future(key, get_client(), state=state)
    if not future.client.who_has([future]).get(key):
        check([_LOST])
    return future.result(timeout=_FETCH_SECONDS)
