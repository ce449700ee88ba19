"""Ask the scheduler of a running cluster what it takes, without a client of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.core import rpc
from distributed.security import Security

from hyperplane.clusters.dask.local_process import LOOPBACK
from hyperplane.clusters.dask.remote_process import make_security
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError
from hyperplane.guard.same_user import same_user_security

#: Seconds that a scheduler may take to answer.
ANSWER_SECONDS = 5.0


def find_client_security(record: ClusterRecord) -> Security:
    """Return the security of connections to the scheduler of a cluster of this machine."""
    if record.scheduler.startswith(f"tcp://{LOOPBACK}:"):
        # The scheduler may have ended, and another user may use its port.
        return same_user_security()
    return make_security(record.security)


def read_usage(record: ClusterRecord) -> dict[str, Any]:
    """Return figures and plan of a running cluster, as ``UsageMonitor.report`` returns them.

    It must not be called on an event loop.

    Raises
    ------
    EngineError
        If the scheduler does not answer, or measures nothing.
    """
    try:
        return asyncio.run(_ask(record))
    except TimeoutError as error:
        reason = f"the scheduler did not answer within {ANSWER_SECONDS:g} s"
        raise EngineError(record.engine, reason) from error
    except Exception as error:  # a gateway's address, or a scheduler without the handler
        reason = f"the scheduler does not report figures: {type(error).__name__}: {error}"
        raise EngineError(record.engine, reason[:300]) from error


async def _ask(record: ClusterRecord) -> dict[str, Any]:
    arguments = find_client_security(record).get_connection_args("client")
    connection = rpc(record.scheduler, connection_args=arguments)
    try:
        return dict(await asyncio.wait_for(connection.hyperplane_usage(), ANSWER_SECONDS))
    finally:
        await connection.close_rpc()
