"""Close clusters when the kernel of a notebook is shut down or restarted.

ipykernel first ends the child processes of a kernel, with signals, and calls the functions of
``atexit`` afterwards. Nannies then start their workers again, and the resource tracker of
``multiprocessing`` ignores SIGTERM, so that this takes longer than the 2.5 s after which Jupyter
ends the kernel: Dask's own function at exit would not run. ipykernel sets the trait ``exit_now`` of
its shell before, at a shutdown, at a restart and for ``exit``.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.notebook_output import find_kernel_shell

#: Seconds that the shutdown waits for a cluster.
_CLOSE_SECONDS = 10

_clusters: weakref.WeakSet[Any] = weakref.WeakSet()

logger = logging.getLogger(__name__)


def close_with_kernel(started: StartedCluster[Any, Any]) -> None:
    """Close a cluster of this process with the kernel; do nothing outside notebooks."""
    shell = find_kernel_shell()
    if shell is None:
        return
    _clusters.add(started.cluster)
    with suppress(ValueError):  # of the first cluster
        shell.unobserve(_close_clusters, "exit_now")
    shell.observe(_close_clusters, "exit_now")


def _close_clusters(change: Mapping[str, Any]) -> None:
    """Close the clusters that end with this process, as Dask does at exit."""
    if not change["new"]:
        return
    for cluster in list(_clusters):
        try:
            ends = getattr(cluster, "shutdown_on_close", False) and not cluster.asynchronous
            if ends and cluster.status.name == "running":
                cluster.close(timeout=_CLOSE_SECONDS)
        except Exception:  # the other clusters are closed, and the kernel ends
            logger.warning("a cluster was not closed with its kernel", exc_info=True)
