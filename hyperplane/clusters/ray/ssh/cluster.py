"""The cluster object of the engine ``ray:ssh``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.ray.cluster import RemoteRayCluster
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import HostSettings, RaySshSettings

ENGINE = "ray:ssh"


class SshRayCluster(RemoteRayCluster):
    """A head of Ray on this machine and worker nodes on hosts, which this process owns.

    Parameters
    ----------
    plan, record, folder
        As those of OwnedRayCluster.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.ray.ssh.node_group:SshRayNodeGroup"

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        settings = plan.settings
        assert isinstance(settings, RaySshSettings)  # noqa: S101 - of this engine
        #: A host for each worker node that the cluster can have.
        self._places = [host for host in settings.hosts for _ in range(plan.worker.nprocs)]
        #: Worker nodes, and the numbers of their places.
        self._placed: dict[str, int] = {}
        request = {
            "dashboard": settings.dashboard,
            "hosts": list(dict.fromkeys(settings.hosts[: plan.nodes])),
            "python": settings.python or sys.executable,
            "ssh": _send_settings(settings),
        }
        super().__init__(plan, record, folder, settings.security == "tls", request)

    def place_worker(self, name: str) -> dict[str, Any]:
        """Return the host of a new worker node, its index there, and the memory of all there."""
        used = set(self._placed.values())
        place = next(number for number in range(len(self._places)) if number not in used)
        self._placed[name] = place
        host = self._places[place]
        nodes = self.plan.settings.hosts[: self.plan.nodes].count(host)  # type: ignore[attr-defined]
        ram = max(1, nodes) * self.plan.worker.total_ram
        return {"on_host": host, "index": self._places[:place].count(host), "ram": ram}

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        if event["event"] in {"not_added", "abandoned", "withdrawn"}:
            self._placed.pop(event["name"], None)
        super().handle(event)

    def check_room(self, count: int) -> None:
        """Raise a RequestError if there are too few hosts for more worker nodes."""
        free = len(self._places) - len(self._placed)
        if count > free:
            hosts = plural(len(self._places) // self.plan.worker.nprocs, "host")
            allowed = f"at most {free}: {hosts} have room for {len(self._places)} worker nodes"
            check([Fault("extra_workers", str(count), allowed)])


def _send_settings(settings: RaySshSettings) -> dict[str, Any]:
    """Return the settings of the connections for a process with another working directory."""

    def resolve(path: str) -> str:
        return str(Path(path).expanduser().absolute())

    sent = settings.model_dump(mode="json", include=set(HostSettings.model_fields))
    sent["client_keys"] = [resolve(key) for key in settings.client_keys]
    sent["known_hosts"] = settings.known_hosts and resolve(settings.known_hosts)
    return sent
