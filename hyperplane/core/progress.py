"""Compute tasks with a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from dask import threaded
from dask.base import get_scheduler
from dask.callbacks import Callback

from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.notebook_output import find_kernel_shell
from hyperplane.core.progress_output import is_terminal

#: Seconds before the bar appears.
BAR_DELAY = 2.0
#: Bars that are open, whether they are visible yet or not.
_open_bars: set[object] = set()
#: Seconds between two looks at futures; Dask's own iterator looks after a tenth of a second.
POLL_SECONDS = 0.05


def compute_with_progress(tasks: Sequence[Any], label: str) -> list[Any]:
    """Compute tasks of one graph and return their results in order.

    The first failure of a task is raised immediately; the other tasks are cancelled.
    """
    if not tasks:
        return []
    client = get_active_client()
    # All tasks share one graph; computing them as separate objects would merge it repeatedly.
    graph, keys = tasks[0].dask, [task.key for task in tasks]
    with show_progress(label, len(tasks)) as advance:
        if client is None:
            get = get_scheduler() or threaded.get
            with _TaskCounter(set(keys), advance):
                return list(get(graph, keys))
        futures = client.get(graph, keys, sync=False)
        for future in futures:
            future.add_done_callback(lambda _: advance())
        try:
            # Not as_completed: it waits forever if the client closes meanwhile, and returns the
            # error of a cancelled task as its result.
            results: list[Any] = client.gather(futures)
        except BaseException:
            if client.status == "running":  # a request of a closed client would wait
                client.cancel(futures)
            raise
        return results


def iterate_completed(client: Any, running: Any) -> Iterator[Any]:
    """Yield the futures of an ``as_completed`` of Dask; futures may be added meanwhile.

    Dask's own iterator waits forever if the client closes; this one raises a ``CancelledError``.
    """
    while not running.is_empty():
        if running.has_ready():
            yield next(running)
        elif client.status in ("closing", "closed"):
            raise CancelledError("the Dask client was closed before all tasks were done")
        else:
            time.sleep(POLL_SECONDS)


@contextmanager
def hide_other_progress(display: object) -> Iterator[None]:
    """Let calls of Dask that wait show nothing in the block, in which a display is shown."""
    _open_bars.add(display)
    try:
        yield
    finally:
        _open_bars.discard(display)


def has_open_bar() -> bool:
    """Return whether a call of this package shows its own bar, or will soon."""
    return bool(_open_bars)


class _TaskCounter(Callback):
    """Call ``advance`` for each finished task among the given keys."""

    def __init__(self, keys: set[Any], advance: Any) -> None:
        def posttask(key: Any, *_: object) -> None:
            if key in keys:
                advance()

        super().__init__(posttask=posttask)


@contextmanager
def show_progress(label: str, total: int | None, *, shown: bool = True) -> Iterator[Any]:
    """Yield a function that advances a progress bar, by one or by its argument.

    The bar appears after a delay, and only on a terminal or in a notebook. ``total`` is None if it
    is unknown.
    """
    if not shown or not (is_terminal(sys.stderr) or find_kernel_shell() is not None):
        yield lambda count=1: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(label, total=total)
    timer = threading.Timer(BAR_DELAY, progress.start)
    timer.daemon = True
    timer.start()
    try:
        with hide_other_progress(progress):
            yield lambda count=1: progress.advance(task, count)
    finally:
        timer.cancel()
        timer.join()  # a bar that starts concurrently would remain after stop()
        progress.stop()
