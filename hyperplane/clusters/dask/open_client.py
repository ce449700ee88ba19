"""Connect a client to a cluster within a time limit.

Dask limits the time until a connection is accepted, but not the time until the scheduler answers in
it, nor a wait for an event loop that is blocked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from distributed import Client

from hyperplane.clusters.dask.start_errors import StepTimeout
from hyperplane.clusters.dask.wait_places import (
    find_blocking_call,
    is_responsive,
    wait_for_future,
)
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.core.dask_internals.actor_answers import install_actor_answers
from hyperplane.core.dask_internals.clients import find_default_clients, forget_default_client
from hyperplane.core.dask_internals.list_messages import install_list_messages

#: Seconds that a client which has not connected may take to close.
_CLOSE_SECONDS = 10.0
#: The same in another thread, if its event loop is blocked.
_LATE_CLOSE_SECONDS = 86_400.0


def open_client(create: Callable[[], Client], cluster: Any, seconds: float) -> Client:
    """Return the client that a function connects to a cluster.

    The function runs in another thread, which ends when the cluster has been closed.

    Raises
    ------
    StepTimeout
        If the client has not connected within ``seconds``; it is not Dask's default client then.
    """
    install_actor_answers()
    install_list_messages()
    opening = _Opening(create)
    thread = threading.Thread(target=opening.run, name="hyperplane-open-client", daemon=True)
    thread.start()
    try:
        with allow_interrupts():
            wait_for_future(opening.result, seconds)
    except BaseException:  # Ctrl-C, or what a signal handler of the program raises
        if opening.abandon():
            _forget(cluster, not is_responsive(cluster.loop.asyncio_loop))
        elif opening.result.exception() is None:
            _close(opening.result.result(), _CLOSE_SECONDS)
        raise
    if not opening.abandon():
        return opening.result.result()  # or its own error
    place = ""
    blocked = not is_responsive(cluster.loop.asyncio_loop)
    if blocked:
        call = find_blocking_call(getattr(cluster, "loop_thread", 0))
        place = f"the event loop of this process was blocked{call and f' in {call}'}"
    _forget(cluster, blocked)
    address = cluster.scheduler_address
    raise StepTimeout(f"the client did not connect to {address}", place)


def _forget(cluster: Any, blocked: bool) -> None:
    """Close the client that has not connected, so that it is not Dask's default client."""
    for client in find_default_clients(cluster):
        if blocked or not _close(client, _CLOSE_SECONDS):
            # Its event loop does not end before the client is closed.
            late = client, _LATE_CLOSE_SECONDS
            threading.Thread(target=_close, args=late, daemon=True).start()
        forget_default_client(client)


def _close(client: Client, seconds: float) -> bool:
    """Close a client whose cluster closes; return whether it has closed within some seconds."""
    with suppress(Exception):
        client.close(timeout=seconds)
    return client.status == "closed"


class _Opening:
    """A client that another thread connects.

    Parameters
    ----------
    create : callable
        Returns the client when it has connected.
    """

    def __init__(self, create: Callable[[], Client]) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._abandoned = False
        self.result: Future[Client] = Future()

    def run(self) -> None:
        """Connect the client; close it if nothing waits for it any more."""
        try:
            client = self._create()
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            with self._lock:
                self.result.set_exception(error)
            return
        with self._lock:
            if not self._abandoned:
                self.result.set_result(client)
                return
        _close(client, _CLOSE_SECONDS)

    def abandon(self) -> bool:
        """Close the client if it connects later; return False if it has connected or failed."""
        with self._lock:
            self._abandoned = not self.result.done()
            return self._abandoned
