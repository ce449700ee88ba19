"""What the processes of a cluster are told that start on other machines.

Workers are started there with these settings and variables in force, so that every restart and
every later worker has them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed.scheduler import WorkerState
from distributed.security import Security

from hyperplane.engines.dask_settings import drop_overridden, drop_overridden_variables
from hyperplane.engines.guarded_cluster import scheduler_settings
from hyperplane.engines.worker_memory import select_variables
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import StartupSettings

#: Fields of a Security object of one key pair for all roles -> keys of Dask's configuration.
_TLS = {
    "ca_file": ("ca-file",),
    "cert": ("client.cert", "scheduler.cert", "worker.cert"),
    "key": ("client.key", "scheduler.key", "worker.key"),
}


def server_settings(plan: ClusterPlan, settings: StartupSettings) -> dict[str, Any]:
    """Dotted settings of Dask for the scheduler, the nannies and the workers of a plan.

    What the user has set otherwise in Dask's configuration stays out, and so holds.
    """
    return {
        **scheduler_settings(plan, settings),
        **drop_overridden(plan.tuning.client),
        **plan.memory.as_config(),
    }


def worker_variables(plan: ClusterPlan) -> dict[str, str]:
    """Variables for worker processes on nodes with Linux; they are to be set before these start."""
    asked = plan.tuning.environ
    return select_variables(asked, drop_overridden_variables(asked), linux=True)


def as_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Dotted settings of Dask as the variables that it reads them from.

    Examples
    --------
    >>> as_variables({"distributed.worker.memory.max-spill": None})
    {'DASK_DISTRIBUTED__WORKER__MEMORY__MAX_SPILL': 'None'}
    """
    return {
        "DASK_" + key.replace(".", "__").replace("-", "_").upper(): str(value)
        for key, value in settings.items()
    }


def node_name(worker: WorkerState, grouped: bool) -> str:
    """The node of a worker process, by its name: ``node-1-0`` and ``node-1-1`` are on ``node-1``.

    The scheduler calls it, wherever that is: nodes are ended when all their processes may go.
    """
    name = str(worker.name)
    return name.rpartition("-")[0] if grouped else name


def as_settings(tls: Mapping[str, str]) -> dict[str, Any]:
    """A key pair, as :func:`key_pair` gives it, as dotted settings of Dask: keys as texts."""
    found: dict[str, Any] = {"distributed.comm.require-encryption": True}
    for field, names in _TLS.items():
        found.update({f"distributed.comm.tls.{name}": tls[field] for name in names})
    return found


def key_pair(security: Security) -> dict[str, str]:
    """The one key pair of a temporary Security object, as texts; empty without TLS.

    It is a secret: whoever has it can run code on the cluster.
    """
    if not security.require_encryption:
        return {}
    tls = security.get_tls_config_for_role("client")
    return {field: tls[field] for field in _TLS}


def make_security(tls: Mapping[str, str]) -> Security:
    """The Security object of a key pair; one without TLS of none."""
    if not tls:
        return Security()
    roles = {
        f"tls_{role}_{field}": tls[field]
        for role in ("client", "scheduler", "worker")
        for field in ("cert", "key")
    }
    return Security(require_encryption=True, tls_ca_file=tls["ca_file"], **roles)
