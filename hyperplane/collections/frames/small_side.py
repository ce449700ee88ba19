"""Maximum bytes of a side of a join that all worker processes hold, for all kinds of joins."""

from __future__ import annotations

from hyperplane.core.active_cluster import count_most_processes, get_memory_per_thread

#: Maximum bytes of a side that any number of worker processes hold, and as a share of a thread's
#: memory.
MAX_SMALL_SIDE = 250 * 10**6
_SHARE_OF_SMALL_SIDE = 0.1
#: How many times as many bytes few processes may hold, and how many times the bytes of both sides
#: all of them together may read of one side.
_MORE_OF_FEW_PROCESSES, _MAX_REPEATED = 4, 2


def get_max_small_side() -> int:
    """Return the maximum bytes of a side that all worker processes hold."""
    return MAX_SMALL_SIDE if (share := _get_share()) is None else min(MAX_SMALL_SIDE, share)


def fits_in_few_processes(size: int, other: int | None) -> bool:
    """Return whether holding a side in each process takes less time than exchanging both sides.

    Each process reads and indexes all of the side, but only its part of the ``other`` one. When the
    join is computed, a cluster that adapts may have its most processes.
    """
    share = _get_share()
    if share is None or other is None:
        return False
    if size > min(_MORE_OF_FEW_PROCESSES * MAX_SMALL_SIDE, share):
        return False
    return size * count_most_processes() <= _MAX_REPEATED * (size + other)


def _get_share() -> int | None:
    """Return the bytes of a thread's memory for a side; None without a limit."""
    memory = get_memory_per_thread()
    return None if memory is None else int(memory * _SHARE_OF_SMALL_SIDE)
