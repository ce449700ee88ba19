"""Dask's configuration, as it was before the first of several clients once all are closed.

Every default client of Dask sets ``scheduler`` and remembers what it found; the last one to close
puts that back. Unless it was also the first to open, what it found is the value of another client.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

from hyperplane.engines.dask_settings import restore_client_settings

if TYPE_CHECKING:
    from distributed import Client


def restore_after(client: Client, settings_key: str = "") -> None:
    """Let the last client to close put back what the first one to open found.

    Parameters
    ----------
    client : distributed.Client
        One that this package has opened. Other clients of the program may open before and after it.
    settings_key : str
        The name under which settings are lent to this client alone; they are taken back with it.
    """
    _share()
    _wrap(client, settings_key)


def _wrap(client: Client, settings_key: str = "") -> None:
    """Let a client, when it closes, put back what the oldest one has found."""
    from distributed.client import _current_client

    # A bound method would make a cycle, and a client is closed when its last name goes.
    reference = weakref.ref(client)

    async def _close(fast: bool = False) -> Any:
        _share()  # with clients that have opened since
        restore_client_settings(settings_key)
        this = cast("Client", reference())
        # Within ``with client:`` Dask takes that client for open, and puts back nothing. Clients
        # that were opened in there close in this context even after the end of the block.
        entered = _current_client.set(None)
        try:
            return await type(this)._close(this, fast=fast)
        finally:
            _current_client.reset(entered)

    vars(client)["_close"] = _close


def _share() -> None:
    """Give all open default clients the record of the oldest of them, and a close that uses it."""
    from distributed.client import _global_clients

    # The keys of this mapping count the clients as they open.
    numbered = sorted(_global_clients.items(), key=lambda item: item[0])
    opened = [client for _, client in numbered if hasattr(client, "_set_config")]
    for each in opened[1:]:
        each._set_config = opened[0]._set_config
    for each in opened:
        if "_close" not in vars(each):
            _wrap(each)
