"""Renew the lease of a cluster from the program that owns it.

A client's heartbeats renew the lease too, but a program may close its client and connect another
one later, as ``hyperplane cluster start`` does for other programs.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Any

from tornado.ioloop import PeriodicCallback

from hyperplane.guard.lease import HANDLER

#: Seconds between renewals, like those between the heartbeats of Dask's clients.
RENEWAL_INTERVAL = 5.0


def create_renewal(cluster: Any, lease: float) -> PeriodicCallback:
    """Return a callback, not started, that renews a lease of some seconds.

    Its event loop is that of the cluster object's ``scheduler_comm``. It does not keep the cluster
    object alive.
    """
    reference = weakref.ref(cluster)

    async def renew() -> None:
        owner = reference()
        scheduler = owner.scheduler_comm if owner is not None else None
        del owner
        if scheduler is not None:
            with suppress(OSError, asyncio.TimeoutError):  # the next renewal connects again
                await asyncio.wait_for(getattr(scheduler, HANDLER)(), lease)

    return PeriodicCallback(renew, min(RENEWAL_INTERVAL, lease / 4) * 1000)
