"""Faults of requests for nodes on hosts that are reached through ssh."""

from __future__ import annotations

from hyperplane.core.errors import Fault
from hyperplane.spec.node_range import most_nodes
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import HostSettings


def find_host_faults(request: ClusterRequest, settings: HostSettings) -> list[Fault]:
    """Return a fault if no hosts are set or if there are fewer hosts than nodes."""
    hosts, name = settings.hosts, settings.locate("hosts")
    if not hosts:
        advice = (
            'set it, or give engine_options={"hosts": ["a", "b"]} '
            "(on the command line --engine-options 'hosts=[a,b]')"
        )
        return [Fault(name, "nothing", "a list of host names or addresses", advice)]
    if most_nodes(request.num_workers) > len(hosts):
        allowed = f"at most {len(hosts)}, the number of {name}"
        asked = str(request.num_workers)
        # A user who has set one host may not know that the default is two nodes.
        if "num_workers" not in request.model_fields_set:
            asked += " (the default)"
        advice = (
            f"use num_workers={len(hosts)}, or add hosts: one that is listed twice takes two nodes"
        )
        return [Fault("num_workers", asked, allowed, advice)]
    return []
