"""The hosts of the workers of a cluster, and the settings with which they are reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import HostSettings


class HostSlots:
    """A host for each worker that a cluster can have.

    Parameters
    ----------
    plan : ClusterPlan
        The plan, whose settings have the hosts.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        settings = plan.settings
        assert isinstance(settings, HostSettings)  # noqa: S101 - of engines with hosts
        self._plan, self._settings = plan, settings
        self._slots = [host for host in settings.hosts for _ in range(plan.worker.nprocs)]
        #: Workers, and the numbers of their slots.
        self._used: dict[str, int] = {}

    @property
    def hosts(self) -> list[str]:
        """The hosts that the plan uses, each once."""
        return list(dict.fromkeys(self._settings.hosts[: self._plan.nodes]))

    def compute_ram(self, host: str) -> int:
        """Return the memory of all workers of the plan on a host, in bytes."""
        nodes = self._settings.hosts[: self._plan.nodes].count(host)
        return max(1, nodes) * self._plan.worker.total_ram

    def assign(self, name: str) -> dict[str, Any]:
        """Return the host of a new worker, its index there, and the memory of all there."""
        used = set(self._used.values())
        slot = next(number for number in range(len(self._slots)) if number not in used)
        self._used[name] = slot
        host = self._slots[slot]
        index = self._slots[:slot].count(host)
        return {"on_host": host, "index": index, "ram": self.compute_ram(host)}

    def handle(self, event: dict[str, Any]) -> None:
        """Release the slot of a worker that an event says is not started any more."""
        if event["event"] in {"not_added", "abandoned", "withdrawn"}:
            self._used.pop(event["name"], None)

    def check_room(self, count: int, noun: str) -> None:
        """Raise a RequestError if there are too few hosts for more workers."""
        free = len(self._slots) - len(self._used)
        if count > free:
            hosts = plural(len(self._slots) // self._plan.worker.nprocs, "host")
            room = plural(len(self._slots), noun)
            allowed = f"at most {free}: {hosts} have room for {room}"
            check([Fault("extra_workers", str(count), allowed)])

    def describe_connections(self) -> dict[str, Any]:
        """Return the settings of the connections for a process with another working directory."""

        def resolve(path: str) -> str:
            return str(Path(path).expanduser().absolute())

        sent = self._settings.model_dump(mode="json", include=set(HostSettings.model_fields))
        sent["client_keys"] = [resolve(key) for key in self._settings.client_keys]
        known = self._settings.known_hosts
        sent["known_hosts"] = known and resolve(known)
        return sent
