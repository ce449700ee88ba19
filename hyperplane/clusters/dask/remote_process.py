"""Dask settings, environment variables and TLS keys of processes on other machines.

Workers are started with these settings and variables, so every restart and every later worker has
them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed.scheduler import WorkerState
from distributed.security import Security

from hyperplane.clusters.dask.guarded_cluster import scheduler_settings
from hyperplane.clusters.dask.settings import drop_overridden, drop_overridden_variables
from hyperplane.clusters.dask.worker_memory import select_variables
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import StartupSettings

#: Fields of a Security object with one key pair for all roles -> keys of Dask's configuration.
_TLS = {
    "ca_file": ("ca-file",),
    "cert": ("client.cert", "scheduler.cert", "worker.cert"),
    "key": ("client.key", "scheduler.key", "worker.key"),
}


def server_settings(plan: ClusterPlan, settings: StartupSettings) -> dict[str, Any]:
    """Return the dotted Dask settings for the scheduler, nannies and workers of a plan.

    Settings that the user has set in Dask's configuration are left out and stay in force, except
    the memory thresholds, which are always those of the plan.
    """
    options = DaskOptions.of(plan.options)
    return {
        **scheduler_settings(plan, settings),
        **drop_overridden(options.tuning.client),
        **options.memory.as_config(),
    }


def worker_variables(plan: ClusterPlan) -> dict[str, str]:
    """Return the environment variables to set before worker processes start on Linux nodes."""
    environ = DaskOptions.of(plan.options).tuning.environ
    return select_variables(environ, drop_overridden_variables(environ), linux=True)


def as_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted Dask settings as the environment variables that Dask reads them from.

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
    """Return the node, or job of Slurm, of a worker process: ``node-1`` for ``node-1-0``.

    Names have the suffix of a process only if nodes have several processes (``grouped``). As the
    ``worker_key`` of adaptive scaling, this function makes the scheduler retire all worker
    processes of a node together.
    """
    name = str(worker.name)
    return name.rpartition("-")[0] if grouped else name


def as_settings(tls: Mapping[str, str]) -> dict[str, Any]:
    """Return a key pair from :func:`key_pair` as dotted Dask settings."""
    settings: dict[str, Any] = {"distributed.comm.require-encryption": True}
    for field, names in _TLS.items():
        settings.update({f"distributed.comm.tls.{name}": tls[field] for name in names})
    return settings


def key_pair(security: Security) -> dict[str, str]:
    """Return the key pair of a temporary Security object as text; empty without TLS.

    It is a secret: it permits running code on the cluster.
    """
    if not security.require_encryption:
        return {}
    tls = security.get_tls_config_for_role("client")
    return {field: tls[field] for field in _TLS}


def make_security(tls: Mapping[str, str]) -> Security:
    """Return the Security object of a key pair; one without TLS if there is no key pair."""
    if not tls:
        return Security()
    roles = {
        f"tls_{role}_{field}": tls[field]
        for role in ("client", "scheduler", "worker")
        for field in ("cert", "key")
    }
    return Security(require_encryption=True, tls_ca_file=tls["ca_file"], **roles)
