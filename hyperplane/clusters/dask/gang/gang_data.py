"""Data of a gang: each rank gets a share of the partitions, which never pass through the client."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault

_ALLOWED = "a Dask dataframe, bag or array, XShards, or a list of futures or delayed objects"


def find_data_faults(data: Any, n: Any) -> list[Fault]:
    """Return the fault of data that cannot be divided among n ranks."""
    where = "data.npartitions"
    if isinstance(data, list | tuple):
        if not data or not all(isinstance(part, Future | Delayed) for part in data):
            return [Fault("data", describe_value(data), _ALLOWED)]
        where, count = "len(data)", len(data)
    elif (
        isinstance(data, Delayed)  # which has every attribute
        or not is_dask_collection(data)
        or not hasattr(data, "npartitions")
    ):
        return [Fault("data", describe_value(data), _ALLOWED)]
    else:
        blocks = getattr(data, "numblocks", None)
        if blocks is not None and any(size > 1 for size in blocks[1:]):
            advice = "rechunk it: data.rechunk({0: 'auto', 1: -1})"
            return [Fault("data", f"an array of {blocks} blocks", "chunks of whole rows", advice)]
        count = data.npartitions
    if isinstance(n, Integral) and count < int(n):
        allowed = f"at least one partition for each of the {n} ranks"
        return [Fault(where, str(count), allowed, "repartition it, or use fewer ranks")]
    return []


def submit_partitions(client: Client, data: Any) -> list[Future[Any]] | None:
    """Return the partitions as futures, in order; compute those that are lazy."""
    if data is None:
        return None
    if not isinstance(data, list | tuple):
        delayed = data.to_delayed()
        data = list(delayed.ravel() if hasattr(delayed, "ravel") else delayed)
    lazy = [part for part in data if isinstance(part, Delayed)]
    computed = iter(client.compute(lazy) if lazy else ())
    return [next(computed) if isinstance(part, Delayed) else part for part in data]


def has_unfinished_partitions(client: Client, partitions: Sequence[Future[Any]] | None) -> bool:
    """Return whether partitions are still computed, at first or after the loss of a worker.

    A rank must not start before: it would occupy a thread that may be needed to compute the
    partitions of another rank, and wait for that rank.
    """
    if not partitions:
        return False
    if any(future.status in ("pending", "lost") for future in partitions):
        return True
    unfinished: bool = client.run_on_scheduler(_has_unfinished, [each.key for each in partitions])
    return unfinished


def _has_unfinished(keys: Sequence[Any], dask_scheduler: Any = None) -> bool:
    tasks = map(dask_scheduler.tasks.get, keys)  # the client learns of lost partitions later
    return any(task is not None and task.state not in ("memory", "erred") for task in tasks)


def get_share(partitions: Sequence[Any] | None, rank: int, n: int) -> list[Any] | None:
    """Return the consecutive partitions of a rank; the shares differ by at most one.

    Examples
    --------
    >>> [get_share("abcde", rank, 2) for rank in range(2)]
    [['a', 'b'], ['c', 'd', 'e']]
    """
    if partitions is None:
        return None
    count = len(partitions)
    return list(partitions[rank * count // n : (rank + 1) * count // n])
