"""The documented names of the notebook API; ``from hyperplane import notebook_common as nc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.cluster import get_cluster, initialize_cluster, quickstart
from hyperplane.utils import is_jhub

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster

    from hyperplane.spec.pool import PoolSpec

    #: The pools that there are now.
    daskpool_candidates: list[PoolSpec]

__all__ = [
    "daskpool_candidates",
    "get_dask_cluster",
    "initialize__dask_cluster",
    "initialize_cluster",
    "initialize_dask_cluster",
    "is_jhub",
    "quickstart_dask",
]

initialize_dask_cluster = initialize_cluster
# The documentation's second example has two underscores, on every version of the page.
initialize__dask_cluster = initialize_cluster


def quickstart_dask(num_workers: int, size: str) -> tuple[Client, Cluster]:
    """Start so many nodes of one t-shirt size.

    Parameters
    ----------
    num_workers : int
        Nodes.
    size : str
        T-shirt name, such as ``"hyperplane-med-high-mem"``, or a pool.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster

    Raises
    ------
    UnknownPool
        With the sizes that there are.
    """
    return quickstart(num_workers, size)


def get_dask_cluster(dask_cluster_name: str) -> Client:
    """Connect to a running cluster that any process of this user started.

    Parameters
    ----------
    dask_cluster_name : str
        Its name, ``dask-cluster-<uuid4>``.

    Returns
    -------
    distributed.Client
        ``client.shutdown()`` or ``client.cluster.close()`` ends the cluster for everybody.

    Raises
    ------
    EngineError
        When no such cluster runs.
    """
    return get_cluster(dask_cluster_name).client


def __getattr__(name: str) -> Any:
    # Read afresh each time, as the configuration is.
    if name == "daskpool_candidates":
        return list(config.pools().values())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
