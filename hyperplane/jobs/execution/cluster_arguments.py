"""Environment variable with the arguments of a step's Dask cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hyperplane.spec.request import ClusterArguments, read_request

if TYPE_CHECKING:
    from hyperplane.jobs.definition.step import Step

#: Arguments of ``initialize_cluster``, as JSON.
CLUSTER = "HYPERPLANE_CLUSTER"


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
