"""Tasks of shards: lazy calls, results that workers hold, and their even distribution."""

from __future__ import annotations

import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dask.base import compute as compute_collections
from dask.base import persist
from dask.delayed import Delayed, delayed
from dask.utils import funcname

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.ml.shards.nested_arrays import copy_shard, is_frame, split_bounds
from hyperplane.ml.shards.shared_value import check_lost, check_unpersisted

__all__ = [
    "EAGER",
    "as_part",
    "call",
    "call_with_list",
    "compute",
    "get_item",
    "get_length",
    "get_position",
    "get_sequence_length",
    "hold",
    "make_pair",
    "map_parts",
    "split_bounds",
]

#: Set by ``OrcaContext._eager_mode``: new shards are computed at once.
EAGER = threading.Event()


def call(function: Callable[..., Any], title: str, *args: Any) -> Delayed:
    """Return a lazy call of a function, as a task with a title."""
    key = _make_key(function, title)
    lazy: Delayed = delayed(function, pure=False, traverse=False)(*args, dask_key_name=key)
    return lazy


def _make_key(function: Callable[..., Any], title: str) -> str:
    """Return a unique key; the dashboard and errors about lost workers show it."""
    return f"{title}-{funcname(function)}-{uuid.uuid4().hex}"


def call_with_list(function: Callable[..., Any], title: str, parts: Sequence[Delayed]) -> Delayed:
    """Return a lazy call of a function with the list of the results of several lazy objects.

    Each is an argument of the task: Dask optimizes the graphs of lists at once, and removes futures
    from them, so that shards of workers could be released before they are used.
    """
    run = delayed(_pass_list, pure=False, traverse=False)
    lazy: Delayed = run(function, *parts, dask_key_name=_make_key(function, title))
    return lazy


def _pass_list(function: Callable[..., Any], *values: Any) -> Any:
    return function(list(values))


def map_parts(
    parts: Sequence[Delayed],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    title: str,
    copies: bool = False,
    needed: Sequence[Delayed] = (),
) -> list[Delayed]:
    """Return lazy calls of a function with each shard, or with copies of them.

    ``needed`` are lazy objects that the workers must have during the calls.
    """
    run = delayed(_run_function, pure=False, traverse=False)
    return [
        run(
            part,
            _Call(function, title, number, len(parts), copies, len(args)),
            *args,
            *needed,
            dask_key_name=_make_key(function, title),
        )
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True, eq=False)
class _Call:
    """A function, and the number of its shard for error messages."""

    function: Callable[..., Any]
    title: str
    number: int
    total: int
    copies: bool
    #: Number of further arguments; the values after these are only needed on the worker.
    arguments: int


def _run_function(shard: Any, task: _Call, *values: Any) -> Any:
    args = values[: task.arguments]
    try:
        return task.function(copy_shard(shard) if task.copies else shard, *args)
    except Exception as error:
        error.add_note(
            f"in shard {task.number} of {task.total}, {task.title} of {funcname(task.function)}"
        )
        raise


def compute(parts: Sequence[Delayed]) -> list[Any]:
    """Compute lazy objects."""
    with _explain_lost_shards(parts):
        _check_cluster(parts)
        return list(compute_collections(*parts))


def _check_cluster(parts: Sequence[Delayed]) -> None:
    """Raise CancelledError for shards that workers held, if there is no cluster any more.

    Raises RequestError for shared values that are unpersisted.
    """
    check_unpersisted(parts)
    distributed = sys.modules.get("distributed")
    if distributed is None or get_active_client() is not None:
        return
    if distributed.futures_of(list(parts)):
        raise CancelledError


@contextmanager
def _explain_lost_shards(parts: Sequence[Delayed]) -> Iterator[None]:
    """Replace Dask's error about a lost result by one that says which shards can be lost."""
    try:
        yield
    except CancelledError as error:
        check_lost(parts)
        raise HyperplaneError(
            "shards were lost: a worker has ended that held shards of XShards.partition, which "
            "exist only there, or the cluster was closed. Create the shards again; shards of "
            "files (save_pickle, load_pickle, read_csv) are computed again instead"
        ) from error


def hold(parts: Sequence[Delayed]) -> list[Delayed]:
    """Compute lazy objects and keep them on the workers, evenly distributed."""
    with _explain_lost_shards(parts):
        _check_cluster(parts)
    held = list(persist(*parts))
    client = get_active_client()
    if client is None:
        return held
    from distributed import futures_of, wait

    futures = [futures_of(part)[0] for part in held]
    with _explain_lost_shards(parts):
        wait(futures)
        for future in futures:
            if future.status in ("error", "cancelled", "lost"):
                future.result()
    return _distribute_evenly(client, futures)


def as_part(future: Any) -> Delayed:
    """Return a future as a lazy object."""
    return Delayed(future.key, {future.key: future})


def _distribute_evenly(client: Any, futures: Sequence[Any]) -> list[Delayed]:
    """Copy shards from workers with too many to those with too few."""
    placed: defaultdict[str, list[int]] = defaultdict(list)
    holders = client.who_has(futures)
    for number, future in enumerate(futures):
        for worker in holders.get(future.key, ())[:1]:
            placed[worker].append(number)
    workers = sorted(client.nthreads())
    futures = list(futures)
    most = -(-len(futures) // max(1, len(workers)))
    excess = [number for worker in workers for number in placed[worker][most:]]
    moved = []
    for worker in sorted(workers, key=lambda name: len(placed[name])):
        room = most - len(placed[worker])
        for number in excess[: max(0, room)]:
            futures[number] = client.submit(
                _return_shard,
                futures[number],
                workers=[worker],
                allow_other_workers=True,
                pure=False,
                key=f"move-{futures[number].key}",
            )
            moved.append(futures[number])
        excess = excess[max(0, room) :]
    if moved:
        from distributed import wait

        wait(moved)
    return [as_part(future) for future in futures]


def _return_shard(shard: Any) -> Any:
    return shard


def get_length(shard: Any) -> int:
    """Return the length of a shard; 1 if it has none."""
    return len(shard) if hasattr(shard, "__len__") else 1


def get_sequence_length(shard: Any) -> int:
    """Return the length of a list or tuple; 1 for other shards."""
    return len(shard) if isinstance(shard, (list, tuple)) else 1


def make_pair(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two shards as one."""
    return first, second


def get_position(shard: Any, number: int) -> Any:
    """Return an item of a list or tuple."""
    return shard[number]


def get_item(shard: Any, key: Any) -> Any:
    """Return ``shard[key]``, or raise an error that lists the columns or keys."""
    if not hasattr(shard, "__getitem__"):
        allowed = "No selection operation available for this XShards; its shards are of type "
        check([Fault("key", "", allowed + type(shard).__name__)])
    try:
        return shard[key]
    except (KeyError, IndexError, TypeError, ValueError):
        known = ""
        if is_frame(shard) or isinstance(shard, dict):
            names = shard.columns if is_frame(shard) else shard
            known = "; a shard has " + ", ".join(map(repr, list(names)[:30]))
        check([Fault("key", "", f"Invalid key for this XShards: {key!r:.80}{known}")])
