"""Clusters in the pane of dask-labextension, in JupyterLab.

The factory of that extension is set to this module, in Dask's configuration::

    labextension:
      factory:
        module: hyperplane.lab
        class: start_cluster
        kwargs: {num_workers: 1, nprocs: 4, ram_gb_per_proc: 2}

The pane then starts clusters with :func:`start_cluster`, and an extension of the Jupyter server,
this module too, lists the clusters that notebooks and other programs of the user have started.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from hyperplane.clusters.dask.attach import AttachedCluster
    from hyperplane.lab.other_clusters import OtherCluster

__all__ = ["start_cluster"]


async def start_cluster(*args: Any, **arguments: Any) -> AttachedCluster | OtherCluster:
    """Start a cluster in this process; return an object for it on the running event loop.

    dask-labextension awaits it when the user clicks *+ NEW*.

    Parameters
    ----------
    *args
        ``num_workers``, as for :func:`~hyperplane.plan_cluster`.
    **arguments
        Further arguments of :func:`~hyperplane.plan_cluster`, and ``asynchronous=True``, which
        dask-labextension adds.

    Returns
    -------
    distributed.deploy.cluster.Cluster
        Its methods ``scale`` and ``close`` are awaited. The cluster ends when it is closed, or
        with this process.

    Raises
    ------
    RequestError
        With every fault of the arguments; nothing was started.
    EngineUnavailable
        If the engine cannot be used here.
    StartFailed, StartTimeout
        If the cluster did not start; no process or job of it keeps running.

    Examples
    --------
    >>> cluster = await start_cluster(nprocs=2)  # doctest: +SKIP
    """
    # Imported here: the Jupyter server imports this module when it starts.
    from hyperplane.lab.factory import create_cluster

    return await create_cluster(args, {"asynchronous": True, **arguments})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the extension of the Jupyter server in this package."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server_app: ServerApp) -> None:
    """List the clusters of this user in the pane, if its factory is that of this module."""
    if importlib.util.find_spec("dask_labextension") is None:
        return
    import dask.config

    if dask.config.get("labextension.factory.module", default=None) != __name__:
        return
    from dask_labextension.manager import manager

    from hyperplane.lab.pane import ClusterPane

    server_app.io_loop.add_callback(ClusterPane(manager, server_app.log).run)
