"""Methods and names that Dask has removed and that published programs still use."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from distributed import Client


def add_removed_names() -> None:
    """Add ``delayed`` to ``dask.distributed``, which no longer imports it."""
    import dask.distributed as namespace
    from dask.delayed import delayed

    if not hasattr(namespace, "delayed"):
        vars(namespace)["delayed"] = delayed


def add_removed_methods(client: Client) -> None:
    """Add ``register_worker_plugin``, which distributed removed in 2024, to one client.

    The class of the client is not changed.
    """
    # A bound method would be a reference cycle; a client is closed when its last reference goes.
    reference = weakref.ref(client)

    def register_worker_plugin(
        plugin: Any = None, name: str | None = None, nanny: bool | None = None
    ) -> Any:
        """Register a plugin; use ``client.register_plugin`` in new programs."""
        del nanny  # register_plugin derives it from the type of the plugin
        return cast("Client", reference()).register_plugin(plugin, name=name)

    add_removed_names()
    if not hasattr(client, "register_worker_plugin"):
        vars(client)["register_worker_plugin"] = register_worker_plugin
