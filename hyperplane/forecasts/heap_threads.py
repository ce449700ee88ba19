"""Freed memory of the threads of a process."""

from __future__ import annotations

#: Share of what malloc has freed in a thread that other threads cannot use. A worker has as many
#: arenas as threads, which its further threads use, too: two threads often share one.
OWN_HEAP = 0.5


def find_heap_threads(threads: int) -> float:
    """Return how many threads have their own freed memory, of a process with some threads.

    Examples
    --------
    >>> find_heap_threads(1), find_heap_threads(2)
    (1.0, 1.5)
    """
    return 1 + OWN_HEAP * (threads - 1)
