"""Program of a Job that ends when a Ray cluster has been idle for some time.

Its arguments are the address of the head, the idle timeout, and the seconds that the cluster may
take to start. The pod runs this module as text, because its image may not have this package.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any


class IdleClock:
    """The time for which a cluster has not been used.

    Parameters
    ----------
    timeout : float
        Seconds without use after which it has ended.
    start : float
        Seconds in addition, until the first worker node is registered.
    now : float
        The time, by the same clock as later ones.
    """

    def __init__(self, timeout: float, start: float, now: float) -> None:
        self._timeout, self._start = timeout, start
        self._used, self._had_workers = now, False

    def update(self, now: float, workers: int | None, idle: float | None) -> bool:
        """Return whether the cluster has been idle for too long.

        Parameters
        ----------
        now : float
            The time.
        workers : int or None
            Number of registered worker nodes; None if the head does not answer.
        idle : float or None
            Seconds for which no node was used; 0 if it is in use; None if that is unknown.
        """
        if workers and not self._had_workers:
            self._had_workers, self._used = True, now
        if idle is not None and self._had_workers:
            self._used = max(self._used, now - idle)
        limit = self._timeout if self._had_workers else self._timeout + self._start
        return now - self._used >= limit


def read_status(address: str) -> tuple[int | None, float | None]:
    """Return the number of worker nodes and the idle seconds, as :meth:`IdleClock.update` needs."""
    from ray.autoscaler.v2.sdk import get_cluster_status

    try:
        status: Any = get_cluster_status(address)
    except Exception as error:  # noqa: BLE001 - of any kind: the head is busy, or has ended
        sys.stdout.write(f"no answer from {address}: {type(error).__name__}: {error}\n")
        # A head that is busy counts as used, but it may have no worker nodes yet.
        return (None, 0.0) if _accepts_connections(address) else (None, None)
    demands = status.resource_demands
    nodes = [*status.active_nodes, *status.idle_nodes]
    workers = max(0, len(nodes) - 1)  # a head that starts is not registered yet
    idle = [node.resource_usage.idle_time_ms for node in nodes if node.resource_usage]
    if demands.ray_task_actor_demand or demands.placement_group_demand or len(idle) < len(nodes):
        return workers, 0.0
    return workers, min(idle, default=0) / 1000


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10):
            return True
    except OSError:
        return False


def main(
    address: str,
    timeout: str,
    start: str,
    read: Callable[[str], tuple[int | None, float | None]] = read_status,
) -> None:
    """Return when the cluster has been idle for too long."""
    clock = IdleClock(float(timeout), float(start), time.monotonic())
    token = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    while True:
        # Without the token the process that started the cluster was killed before it was complete.
        workers, idle = read(address) if os.path.exists(token) else (None, None)  # noqa: PTH110
        if clock.update(time.monotonic(), workers, idle):
            sys.stdout.write("the cluster has been idle for too long\n")
            return
        time.sleep(min(10.0, float(timeout) / 4))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
