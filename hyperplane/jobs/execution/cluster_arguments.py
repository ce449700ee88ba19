"""Arguments of a step's cluster: its framework, and the environment variable for the step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hyperplane.core.errors import Fault
from hyperplane.spec.engine_names import DASK, framework_of
from hyperplane.spec.request import ClusterArguments, read_request

if TYPE_CHECKING:
    from hyperplane.jobs.definition.step import Step

#: Arguments of ``initialize_cluster``, as JSON.
CLUSTER = "HYPERPLANE_CLUSTER"


def prestarted_framework(step: Step) -> str:
    """Return the framework of a cluster that starts before the step's program; or an empty text.

    The programs of steps start Dask clusters themselves, with ``initialize_cluster``.

    Examples
    --------
    >>> from hyperplane.jobs import Step
    >>> step = Step(name="fit", kind="python", path="fit.py", cluster={"framework": "ray"})
    >>> prestarted_framework(step)
    'ray'
    """
    cluster = step.cluster or {}
    framework = cluster.get("framework") or framework_of(str(cluster.get("engine", "")))
    return "" if framework == DASK else str(framework)


def find_framework_faults(step: Step, where: str, system: str) -> list[Fault]:
    """Return a fault if the cluster of a step has a framework that a system does not start."""
    framework = prestarted_framework(step)
    if not framework:
        return []
    allowed = f"dask, because {system} cannot start a cluster before the program of the step"
    advice = "use the local runner"
    return [Fault(f"{where}.cluster.framework", repr(framework), allowed, advice)]


def find_gang_cluster_faults(step: Step, where: str, system: str) -> list[Fault]:
    """Return a fault if the processes of a gang on several machines have one cluster."""
    if not step.gang_size or not (framework := prestarted_framework(step)):
        return []
    allowed = f"dask in a step with a gang: {system} may start its processes on several machines"
    advice = "use the local runner"
    return [Fault(f"{where}.cluster.framework", repr(framework), allowed, advice)]


def cluster_variable(step: Step, memory_faults: int) -> dict[str, str]:
    """Return the variable with the arguments of the step's cluster.

    ``memory_faults`` is the number of attempts that ran out of memory; if the step sets
    ``more_memory``, each increases the cluster's ``ram_gb_per_proc``.
    """
    if step.cluster is None:
        return {}
    cluster = dict(step.cluster)
    factor = (step.more_memory or 1.0) ** memory_faults
    if factor > 1 and {"ram_gb_per_proc", "ram_gb_proc"} & cluster.keys():
        request, _ = read_request(ClusterArguments.from_mapping(cluster))
        cluster.pop("ram_gb_proc", None)
        cluster["ram_gb_per_proc"] = request.ram_gb_per_proc * factor
    return {CLUSTER: json.dumps(cluster)}
