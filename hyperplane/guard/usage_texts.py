"""Texts about the memory of workers, and the memory that would do.

Schedulers without this package receive this module by value, so it imports no other module of the
package.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Fraction of its limit that a process may use in what is proposed; Dask spills above it.
COMFORT = 0.6


def propose_ram(demand: int, comfort: float = COMFORT) -> float:
    """Return the memory in GB of a process of which a number of bytes takes at most a fraction.

    Rounded up to 0.1 GB, from 10 GB on to 1 GB.

    Examples
    --------
    >>> propose_ram(380_000_000), propose_ram(2_000_000_000), propose_ram(9_000_000_000)
    (0.7, 3.4, 15)
    """
    proposed = demand / comfort / 1e9
    return math.ceil(proposed) if proposed >= 10 else max(1, math.ceil(proposed * 10)) / 10


def describe_memory(used: int, limit: int) -> str:
    """Return a number of bytes and a limit in GB; a limit of 0 is unknown.

    Examples
    --------
    >>> describe_memory(1_740_000_000, 2_000_000_000), describe_memory(1_740_000_000, 0)
    ('1.7 of 2 GB', '1.7 GB, limit unknown')
    """
    if not limit:
        return f"{round_gb(used)} GB, limit unknown"
    return f"{round_gb(used)} of {round_gb(limit)} GB"


def round_gb(size: int) -> str:
    """Return bytes in GB, with two digits.

    Examples
    --------
    >>> round_gb(1_740_000_000), round_gb(42_000_000), round_gb(128_000_000_000)
    ('1.7', '0.042', '128')
    """
    gigabytes = size / 1e9
    return f"{gigabytes:.0f}" if gigabytes >= 10 else f"{gigabytes:.2g}"


def describe_grown(limit: int, first: int) -> str:
    """Return that limits have grown; empty if they have not, or the first ones are unknown.

    Examples
    --------
    >>> describe_grown(3_000_000_000, 1_000_000_000), describe_grown(10**9, 10**9)
    ('limit grown from 1 GB', '')
    """
    return f"limit grown from {round_gb(first)} GB" if first and limit > first else ""


def describe_pressure(
    worker: str,
    used: int,
    limit: int,
    *,
    paused: bool,
    seconds: float,
    operation: str,
    held: int,
    nthreads: int,
) -> str:
    """Return the warning about a worker whose memory stays near its limit.

    Parameters
    ----------
    worker : str
        Name of the worker.
    used, limit : int
        Memory of its process and its limit, in bytes.
    paused : bool
        Whether it starts no new task.
    seconds : float
        How long this has lasted.
    operation : str
        The operation whose results fill the memory, or whose tasks run; empty if unknown.
    held : int
        Bytes of those results, in memory and on disk; 0 if running tasks need the memory.
    nthreads : int
        Threads of the worker, which is the number of tasks that can run together.
    """
    state = "paused for" if paused else "above its spill threshold for"
    ram = f"ram_gb_per_proc={_propose_more(max(used, held), limit):g}"
    if held:
        cause = f"results of {operation!r} fill it ({round_gb(held)} GB, some perhaps on disk)"
        remedy = f"ask for {ram} or more workers, or keep fewer results (save them, reduce them)"
    else:
        cause = f"{operation!r} is running" if operation else "no task is running"
        threads = f"nthreads=1 (now {nthreads}), " if nthreads > 1 else ""
        remedy = f"ask for {threads}{ram} or smaller partitions"
        if not operation:
            remedy = f"call client.restart() if memory leaks, or ask for {ram}"
    memory = describe_memory(used, limit)
    return f"worker {worker} is {state} {seconds:.0f} s, at {memory}: {cause}; {remedy}"


def _propose_more(demand: int, limit: int) -> float:
    """Return the memory in GB that leaves room for a number of bytes, and is above the limit."""
    # A grown limit, or a low threshold of the memory policy: the worker lacks memory with it.
    return propose_ram(demand if demand > COMFORT * limit else limit)


def find_cause(worker: WorkerState, memory: int) -> tuple[str, int]:
    """Return the operation that needs the memory of a worker, and the bytes of its results, or 0.

    ``memory`` is that of its process, with its results on disk.
    """
    held: Counter[str] = Counter()
    for task in worker.has_what:
        held[task.prefix.name] += max(0, task.nbytes)
    executing = max(worker.executing.items(), key=lambda item: item[1], default=None)
    # Results of tasks that wait for more of them; fewer than half leave the running tasks.
    if held and (sum(held.values()) > memory / 2 or executing is None):
        [(operation, size)] = held.most_common(1)
        return operation, size
    return ("" if executing is None else executing[0].prefix.name), 0
