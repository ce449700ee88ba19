"""The last steps of every start elsewhere: a client, all workers, one environment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from distributed import Client
from distributed.deploy.cluster import Cluster

from hyperplane.engines import interrupts, versions
from hyperplane.engines.dask_settings import apply_client_settings
from hyperplane.errors import EngineError, StartFailed, StartTimeout
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RemoteSettings
from hyperplane.units import plural

#: Seconds between looks at what keeps the workers away.
POLL_INTERVAL = 2.0
_NO_ANSWER = (OSError, TimeoutError, asyncio.TimeoutError)


def connect_client(
    cluster: Cluster,
    plan: ClusterPlan,
    settings: RemoteSettings,
    began: float,
    explain_wait: Callable[[], str],
) -> Client:
    """A client for a cluster whose workers are on their way; returns when all are there.

    Parameters
    ----------
    cluster : Cluster
        It runs; whoever calls closes it when this raises.
    plan : ClusterPlan
        What was asked.
    settings : RemoteSettings
        The settings of the engine.
    began : float
        When the start began, by ``time.monotonic``.
    look : callable
        Says in one line what keeps the workers away; raises an EngineError for what does not
        pass by itself.

    Returns
    -------
    Client
        With every worker of the plan, in the same environment as this process.

    Raises
    ------
    StartTimeout
        When the workers were not there in time, with what :func:`look` says.
    StartFailed
        When the versions of the cluster are others, or the scheduler does not answer.
    """
    apply_client_settings(plan.name, plan.tuning.client)  # taken back as the cluster closes
    client = None
    try:
        client = Client(cluster)
        with interrupts.allow_interrupts():
            _wait_for_workers(client, plan, began, explain_wait)
            versions.check(client, plan.engine, settings)
    except BaseException as error:
        if client is not None:
            client.close()
        # Timeouts of ours are OSErrors, too, and say what is wrong already.
        if isinstance(error, EngineError) or not isinstance(error, _NO_ANSWER):
            raise
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise StartFailed(
            plan.engine,
            f"the scheduler {cluster.scheduler_address} does not answer from here ({said}); "
            "everything was closed again",
        ) from error
    return client


def _wait_for_workers(
    client: Client, plan: ClusterPlan, began: float, explain_wait: Callable[[], str]
) -> None:
    deadline = began + plan.request.timeout
    while True:
        left = deadline - time.monotonic()
        try:
            client.wait_for_workers(plan.dask_workers, timeout=max(0.1, min(POLL_INTERVAL, left)))
            return
        except TimeoutError as error:
            why = explain_wait()
            if time.monotonic() > deadline:
                here = len(client.scheduler_info(n_workers=-1)["workers"])
                raise StartTimeout(
                    plan.engine,
                    f"{here} of {plural(plan.dask_workers, 'worker process')} came within "
                    f"{plan.request.timeout:g} s (timeout); everything was closed again. {why}",
                ) from error
