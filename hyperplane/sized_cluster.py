"""``quickstart``: a cluster of nodes of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hyperplane import config
from hyperplane.cluster import initialize_cluster
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


@check_call(outcome="nothing was started")
def quickstart(num_workers: int, size: str, **arguments: Any) -> tuple[Client, Cluster]:
    """Start a number of nodes of one size, with the layout of :func:`~hyperplane.fit_workers`.

    Parameters
    ----------
    num_workers : int
        Number of nodes.
    size : str
        Name or alias of a pool, such as ``"hyperplane-med"``.
    **arguments
        Further arguments of :func:`initialize_cluster`, except ``pool``.

    Returns
    -------
    client : distributed.Client
    cluster : distributed.deploy.cluster.Cluster
        Objects of Dask. Close either or both, in any order.

    Raises
    ------
    UnknownPool
        If no pool has that name; other errors are those of :func:`initialize_cluster`.

    Examples
    --------
    >>> client, cluster = quickstart(2, "hyperplane-med")  # doctest: +SKIP
    """
    if "pool" in arguments:
        check([Fault("pool", repr(arguments["pool"])[:80], "no pool beside size")])
    return initialize_cluster(num_workers, pool=config.get_pool(size), **arguments)
