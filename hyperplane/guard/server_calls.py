"""Run functions in workers and nannies from the scheduler, in processes without this package, too.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
from distributed.core import rpc

if TYPE_CHECKING:
    from distributed import Scheduler

#: Seconds that a worker or a nanny may take to answer.
ANSWER_LIMIT = 5.0


def pickle_by_value(sent: Any) -> bytes:
    """Pickle a function or an object with its code, so that the receiver needs no module."""
    module = sys.modules.get(sent.__module__)
    if module is not None:  # None in a process that received this module by value
        try:
            from hyperplane.core.by_value import pickled_by_value
        except ImportError:  # without this package nothing else pickles by value
            cloudpickle.register_pickle_by_value(module)
        else:
            with pickled_by_value(module):
                return cast(bytes, cloudpickle.dumps(sent))
    return cast(bytes, cloudpickle.dumps(sent))


async def run_in_server(
    scheduler: Scheduler,
    address: str,
    function: Callable[..., Any],
    *args: Any,
    seconds: float | None = None,
) -> Any:
    """Return the result of a function in a worker or a nanny; None if it does not answer.

    It may take ``seconds``, by default ``ANSWER_LIMIT``. Dask passes the server to the function as
    its argument ``dask_worker``.
    """
    limit = ANSWER_LIMIT if seconds is None else seconds
    try:
        async with rpc(address, connection_args=scheduler.connection_args) as server:
            call = server.run(function=pickle_by_value(function), args=cloudpickle.dumps(args))
            reply = await asyncio.wait_for(call, limit)
    except Exception:  # noqa: BLE001 - a server without a readable answer is treated as absent
        return None
    return reply.get("result")
