"""Registry of the engines, which are imported on first use."""

from __future__ import annotations

from typing import Any

from hyperplane.clusters.engine import Engine
from hyperplane.core.registry import Registry

#: Engines by name; other packages register theirs in the entry-point group.
ENGINES: Registry[Engine] = Registry(
    argument="engine",
    group="hyperplane.engines",
    built_in={
        "local": "hyperplane.clusters.dask.local.engine:LocalEngine",
        "ssh": "hyperplane.clusters.dask.ssh.engine:SshEngine",
        "slurm": "hyperplane.clusters.dask.slurm.engine:SlurmEngine",
        "kubernetes": "hyperplane.clusters.dask.kubernetes.engine:KubernetesEngine",
        "gateway": "hyperplane.clusters.dask.gateway.engine:GatewayEngine",
        "cuda": "hyperplane.clusters.dask.cuda.engine:CudaEngine",
    },
    other_values=("auto",),
)


def load(name: Any) -> Engine:
    """Return the engine of a name; raise a RequestError with similar names if there is none."""
    return ENGINES.load(name)()
