"""Steps of a start on this machine that the engines local and cuda share.

Other engines use parts of it: ssh and slurm the loopback address, and ssh also the user's preloads,
:data:`PARENT_DEATH`, :data:`MESSAGE_BATCHES` and :data:`DASHBOARD_USERS`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import dask.config
from distributed import Client, system
from distributed.security import Security

from hyperplane.clusters.dask import failed_start
from hyperplane.clusters.dask.cluster_records import finish_start, reserve_record
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.dask.open_client import open_client
from hyperplane.clusters.dask.settings import apply_client_settings, user_settings
from hyperplane.clusters.dask.start_errors import StepTimeout, remaining, step_timeout
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.units import bytes_to_gb
from hyperplane.guard.same_user import same_user_security
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan

LOOPBACK = "127.0.0.1"
#: Preload: kills a worker process when its parent process dies.
PARENT_DEATH = "hyperplane.clusters.dask.parent_death"
#: Preload: applies environment variables of memory allocators.
WORKER_MEMORY = "hyperplane.clusters.dask.worker_memory"
#: Preload: lets the HTTP server of a worker refuse other users of its machine.
DASHBOARD_USERS = "hyperplane.clusters.dask.dashboard_users"
#: Preload: suppresses log messages of workers that close.
LOG_FILTERS = "hyperplane.clusters.dask.log_filters"
#: Preload: sends messages also after the clock was set back.
MESSAGE_BATCHES = "hyperplane.core.dask_internals.message_batches"
#: Last lines of Dask's log that an error shows.
LOG_LINES = 40


def user_preloads() -> list[str]:
    """Return the user's worker preloads, which a list given to a nanny would replace."""
    preloads = dask.config.get("distributed.worker.preload")
    return [preloads] if isinstance(preloads, str) else list(preloads)


def worker_preloads() -> list[str]:
    """Return the preloads of worker processes on this machine: the user's, then this package's."""
    ours = PARENT_DEATH, WORKER_MEMORY, LOG_FILTERS, MESSAGE_BATCHES
    return [*user_preloads(), *ours]


def local_security(setting: Literal["user", "none"]) -> Security:
    """Return the security of a cluster whose processes all listen on the loopback address."""
    return same_user_security() if setting == "user" else Security()


@contextmanager
def log_tail() -> Iterator[deque[str]]:
    """Collect the last lines that Dask logs in this process during the block."""
    lines: deque[str] = deque(maxlen=LOG_LINES)

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}")

    handler = Collector()
    dask_logger = logging.getLogger("distributed")
    dask_logger.addHandler(handler)
    try:
        yield lines
    finally:
        dask_logger.removeHandler(handler)


def reserve_local_record(
    plan: ClusterPlan, parent: str | None = None, **others: Any
) -> ClusterRecord:
    """Reserve the record of a cluster whose scheduler runs on this machine.

    The tuning of the plan decides whether clients fetch results from the workers directly. The
    scratch folder is created in ``parent``, by default in Dask's ``temporary-directory``.
    """
    direct = DaskOptions.of(plan.options).tuning.direct_to_workers
    nodes = plan.nodes if plan.max_nodes is None else plan.max_nodes
    # Dask limits each process to the memory of the machine.
    limit = min(plan.worker.ram_per_proc, system.MEMORY_LIMIT)
    others = {"ram_gb": bytes_to_gb(nodes * plan.worker.nprocs * limit), **others}
    with user_settings():
        spill_to = parent or dask.config.get("temporary-directory", default=None)
    return reserve_record(plan, spill_to, direct_to_workers=direct, **others)


def connect_local_client(
    cluster: GuardedCluster, record: ClusterRecord, plan: ClusterPlan, began: float
) -> StartedCluster:
    """Connect a client to a cluster whose workers run, and complete the start; close on errors.

    ``began`` is when the start began, by ``time.monotonic``.
    """
    direct = record.direct_to_workers or None
    try:
        apply_client_settings(record.name, record.client)
        client = open_client(
            lambda: Client(cluster, direct_to_workers=direct), cluster, remaining(plan, began)
        )
        return finish_start(cluster, client, record, plan)
    except BaseException as error:
        failed_start.abandon(cluster)
        if isinstance(error, StepTimeout):
            advice = "A preload of clients (distributed.client.preload) may block it"
            raise step_timeout(plan, error, advice) from error
        raise
