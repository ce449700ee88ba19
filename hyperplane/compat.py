"""Names that published programs use and Dask has since removed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from distributed import Client


def add_removed_names() -> None:
    """Give ``dask.distributed`` the ``delayed`` that it no longer imports."""
    import dask.distributed as old_home
    from dask.delayed import delayed

    if not hasattr(old_home, "delayed"):
        vars(old_home)["delayed"] = delayed


def add_removed_methods(client: Client) -> None:
    """Give a client the ``register_worker_plugin`` that distributed removed in 2024.

    It is set on this one object; the class stays as Dask made it.
    """
    # A bound method would make a cycle, and a client is closed when its last name goes.
    reference = weakref.ref(client)

    def register_worker_plugin(
        plugin: Any = None, name: str | None = None, nanny: bool | None = None
    ) -> Any:
        """Register a plugin; use ``client.register_plugin`` in new programs."""
        del nanny  # the kind of plugin says it
        return cast("Client", reference()).register_plugin(plugin, name=name)

    add_removed_names()
    if not hasattr(client, "register_worker_plugin"):
        vars(client)["register_worker_plugin"] = register_worker_plugin
