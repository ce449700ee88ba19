"""Restore Dask's configuration when the last of several default clients closes.

Each default client of Dask sets ``scheduler``, saves the previous value, and restores it when it
closes. If clients do not close in reverse order, the last one to close restores the value of
another client. This module shares the value that the first client saved with all later ones.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from hyperplane.clusters.dask.settings import restore_client_settings

if TYPE_CHECKING:
    from distributed import Client


def restore_config_after(client: Client, settings_key: str = "") -> None:
    """Make the last of all clients that closes restore the configuration from before the first.

    Other clients of the program may open before and after this one. ``settings_key`` is the key of
    the settings that apply only while this client is open.
    """
    _share_saved_config()
    _restore_on_close(client, settings_key)


def _restore_on_close(client: Client, settings_key: str = "") -> None:
    """Extend the close of a client: it restores the configuration that the oldest client saved."""
    from hyperplane.core.dask_internals.clients import current_client, forget_failed_connection

    # A bound method would be a reference cycle; a client is closed when its last reference goes.
    reference = weakref.ref(client)

    async def _close(fast: bool = False) -> Any:
        _share_saved_config()  # for clients that have opened since
        restore_client_settings(settings_key)
        this = reference()
        if this is None:  # removed with a reference cycle
            return None
        forget_failed_connection(this)
        # Inside ``with client:`` Dask's default client is that client, even if it is closed, so
        # Dask restores nothing. A client that was opened in the block keeps this context after it.
        context_token = current_client.set(None)
        try:
            return await type(this)._close(this, fast=fast)
        finally:
            current_client.reset(context_token)

    vars(client)["_close"] = _close


def _share_saved_config() -> None:
    """Share the configuration that the oldest open default client saved with all of them."""
    from hyperplane.core.dask_internals.clients import global_clients

    # The keys of this mapping number the clients in the order in which they opened.
    numbered = sorted(global_clients.items(), key=lambda item: item[0])
    opened = [client for _, client in numbered if hasattr(client, "_set_config")]
    for client in opened[1:]:
        client._set_config = opened[0]._set_config
    for client in opened:
        if "_close" not in vars(client):
            _restore_on_close(client)
