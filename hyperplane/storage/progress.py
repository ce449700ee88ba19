"""Tasks with a bar, when they take long and somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dask import threaded
from dask.base import get_scheduler
from dask.callbacks import Callback

from hyperplane.collections.active_cluster import get_active_client

#: Seconds after which a bar appears.
AFTER = 2.0


def run(tasks: Sequence[Any], what: str) -> list[Any]:
    """The results of tasks of one graph, in their order.

    When one fails, the others are not waited for.
    """
    if not tasks:
        return []
    client = get_active_client()
    # One graph holds all tasks; to compute them as so many objects would merge it with itself.
    graph, keys = tasks[0].dask, [task.key for task in tasks]
    with bar(what, len(tasks)) as advance:
        if client is None:
            get = get_scheduler() or threaded.get
            with _Counter(set(keys), advance):
                return list(get(graph, keys))
        from distributed import as_completed

        futures = client.get(graph, keys, sync=False)
        places = {future.key: place for place, future in enumerate(futures)}
        results: list[Any] = [None] * len(futures)
        try:
            for future, result in as_completed(futures, with_results=True):
                results[places[future.key]] = result
                advance()
        except BaseException:
            client.cancel(futures)
            raise
        return results


class _Counter(Callback):
    def __init__(self, keys: set[Any], advance: Any) -> None:
        def posttask(key: Any, *rest: object) -> None:
            if key in keys:
                advance()

        super().__init__(posttask=posttask)


@contextmanager
def bar(what: str, total: int) -> Iterator[Any]:
    """A way to count, shown on a terminal or in a notebook once it takes long."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield lambda: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=total)
    begin = threading.Timer(AFTER, progress.start)
    begin.daemon = True
    begin.start()
    try:
        yield lambda: progress.advance(task)
    finally:
        begin.cancel()
        begin.join()  # a bar that starts just now would stay after it is stopped
        progress.stop()
