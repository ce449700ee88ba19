"""``take``: the first records, computing as few partitions as needed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import dask.base
from dask.bag import Bag
from dask.base import tokenize

from hyperplane.collections.bags.graph import find_bag_faults, make_graph
from hyperplane.core.active_cluster import count_threads
from hyperplane.core.dask_internals.tasks import Task, TaskRef, cull
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import whole_number


@check_call
def take(bag: Bag, n: int) -> tuple[Any, ...]:
    """Compute the first ``n`` records, from as many partitions as needed.

    The method ``take`` of a bag reads only the first partition by default. This function
    computes one partition, then two, four and so on, up to one for each thread of the cluster,
    and stops as soon as it has enough records, also within a partition. If partitions share
    tasks, as after a shuffle, all remaining ones are computed together, so that shared tasks run
    at most twice.

    Without a cluster or a configured scheduler it runs in threads of this process.

    Parameters
    ----------
    bag : dask.bag.Bag
        A bag of any items.
    n : int
        Maximum number of records, from 0.

    Returns
    -------
    tuple
        The records in the order of the bag.

    Raises
    ------
    RequestError
        If ``bag`` is not a bag, or ``n`` is not a whole number of at least 0.
    BadLines, ReadError
        As for :func:`read_records`.

    Examples
    --------
    >>> import dask.bag as db
    >>> bag = db.from_sequence(range(100), npartitions=10)
    >>> take(bag.filter(lambda number: number > 50), 3)
    (51, 52, 53)
    """
    faults = find_bag_faults(bag)
    count = whole_number(n)
    if count is None or count < 0:
        faults.append(Fault("n", repr(n)[:80], "a whole number from 0"))
    check(faults)
    wanted = min(count or 0, sys.maxsize)  # the largest bound that islice accepts
    if not wanted or not bag.npartitions:
        return ()
    tasks, name = make_heads(bag, wanted)
    shared = _is_shared(tasks, name)
    records: list[Any] = []
    computed, batch, max_batch = 0, 1, count_threads()
    while len(records) < wanted and computed < bag.npartitions:
        keys = [(name, i) for i in range(computed, min(computed + batch, bag.npartitions))]
        records += chain.from_iterable(compute_heads(tasks, keys))
        computed += len(keys)
        batch = bag.npartitions if shared else min(2 * batch, max_batch)
    return tuple(records[:wanted])


def make_heads(bag: Bag, count: int) -> tuple[dict[Any, Any], str]:
    """Return an optimized graph of the first records of each partition, and its key name."""
    name = f"take-{tokenize(bag, count)}"
    tasks = {
        (name, i): Task((name, i), _take_first, TaskRef((bag.name, i)), count)
        for i in range(bag.npartitions)
    }
    heads = Bag(make_graph(name, tasks, [bag]), name, bag.npartitions)
    return dict(heads.__dask_optimize__(heads.dask, heads.__dask_keys__())), name


def compute_heads(tasks: dict[Any, Any], keys: list[Any]) -> list[list[Any]]:
    """Compute some keys of a graph of :func:`make_heads`, each as a list."""
    name = f"{keys[0][0]}-batch-{keys[0][1]}"
    needed = dict(cull(tasks, keys))
    for i, key in enumerate(keys):
        needed[name, i] = Task((name, i), _wrap_in_list, TaskRef(key))
    heads: list[list[Any]] = Bag(needed, name, len(keys)).compute(**choose_scheduler())
    return heads


def _take_first(part: Iterable[Any], count: int) -> list[Any]:
    return list(islice(part, count))


def _wrap_in_list(part: list[Any]) -> list[list[Any]]:
    """Return a partition whose only item is the list."""
    return [part]


def _is_shared(tasks: dict[Any, Any], name: str) -> bool:
    """Whether two partitions depend on the same task."""
    users: Counter[Any] = Counter()
    for head in tasks:
        if head[0] == name:
            users.update(key for key, task in cull(tasks, [head]).items() if isinstance(task, Task))
    return any(count > 1 for count in users.values())


def choose_scheduler() -> dict[str, Any]:
    """Return arguments of ``compute``: threads, unless the user has set a scheduler.

    By default a bag starts a process pool for each computation, which takes longer than reading a
    few records.
    """
    return {} if dask.base.get_scheduler() else {"scheduler": "threads"}
