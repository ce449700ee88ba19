"""``take``: the first records, from as few partitions as have them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from dask._task_spec import Task, TaskRef, cull
from dask.bag import Bag
from dask.base import tokenize

from hyperplane.collections.active_cluster import count_threads
from hyperplane.collections.bags.graph import bag_faults, graph_of
from hyperplane.collections.bags.parallel import quick_scheduler
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.units import whole_number


@check_call
def take(bag: Bag, n: int) -> tuple[Any, ...]:
    """The first ``n`` records, from as many partitions as it takes to find them.

    Computes now, as the method ``take`` of a bag does; but that looks at the first partition
    only. This one looks at one partition, then at two, four and so on, up to the threads of the
    cluster at once, and stops when it has enough; inside a partition it stops there too. When
    partitions share work, as after a shuffle, all that are left are computed at once, so that
    the work is done twice at most.

    Without a cluster, and unless a scheduler is configured, it runs in threads of this process.

    Parameters
    ----------
    bag : dask.bag.Bag
    n : int
        How many, at most; fewer when the bag has no more.

    Returns
    -------
    tuple
        In the order of the bag.

    Raises
    ------
    RequestError
        When ``n`` is no whole number from 0.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence(range(100), npartitions=10)
    >>> take(bag.filter(lambda number: number > 50), 3)
    (51, 52, 53)
    """
    faults = bag_faults(bag)
    count = whole_number(n)
    if count is None or count < 0:
        faults.append(Fault("n", repr(n)[:80], "a whole number from 0"))
    check(faults)
    wanted = min(count or 0, sys.maxsize)  # a slice takes no larger number
    if not wanted or not bag.npartitions:
        return ()
    tasks, name = heads(bag, wanted)
    shared = _is_shared(tasks, name)
    found: list[Any] = []
    done, wave, most = 0, 1, count_threads()
    while len(found) < wanted and done < bag.npartitions:
        keys = [(name, i) for i in range(done, min(done + wave, bag.npartitions))]
        found += chain.from_iterable(compute_heads(tasks, keys))
        done += len(keys)
        wave = bag.npartitions if shared else min(2 * wave, most)
    return tuple(found[:wanted])


def heads(bag: Bag, count: int) -> tuple[dict[Any, Any], str]:
    """An optimized graph with the first records of each partition, and its name."""
    name = f"take-{tokenize(bag, count)}"
    tasks = {
        (name, i): Task((name, i), _first, TaskRef((bag.name, i)), count)
        for i in range(bag.npartitions)
    }
    first = Bag(graph_of(name, tasks, [bag]), name, bag.npartitions)
    return dict(first.__dask_optimize__(first.dask, first.__dask_keys__())), name


def compute_heads(tasks: dict[Any, Any], keys: list[Any]) -> list[list[Any]]:
    """Compute some partitions of what :func:`heads` gave, each as a list."""
    name = f"{keys[0][0]}-wave-{keys[0][1]}"
    needed = dict(cull(tasks, keys))
    for i, key in enumerate(keys):
        needed[name, i] = Task((name, i), _one, TaskRef(key))
    found: list[list[Any]] = Bag(needed, name, len(keys)).compute(**quick_scheduler())
    return found


def _first(part: Iterable[Any], count: int) -> list[Any]:
    return list(islice(part, count))


def _one(part: list[Any]) -> list[list[Any]]:
    """A partition with one record, the list."""
    return [part]


def _is_shared(tasks: dict[Any, Any], name: str) -> bool:
    """Whether two partitions need the same task."""
    users: Counter[Any] = Counter()
    for head in tasks:
        if head[0] == name:
            users.update(key for key, task in cull(tasks, [head]).items() if isinstance(task, Task))
    return any(count > 1 for count in users.values())
