"""Registries of the engines and of their frameworks, which are imported on first use.

CONTRIBUTING.md, *Add a platform*, lists the other files of a new engine.
"""

from __future__ import annotations

from typing import Any

from hyperplane.clusters.engine import Engine
from hyperplane.clusters.framework import Framework
from hyperplane.core.registry import Registry
from hyperplane.spec.engine_names import DASK, framework_of

#: Engines by name: that of the platform for Dask, ``<framework>:<platform>`` for others.
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
        "ray:local": "hyperplane.clusters.ray.local.engine:LocalRayEngine",
        "spark:local": "hyperplane.clusters.spark.local.engine:LocalSparkEngine",
    },
    other_values=("auto",),
)

#: Frameworks by name, which is the first part of the names of their engines.
FRAMEWORKS: Registry[Framework] = Registry(
    argument="framework",
    group="hyperplane.frameworks",
    built_in={
        DASK: "hyperplane.clusters.dask.framework:DaskFramework",
        "ray": "hyperplane.clusters.ray.framework:RayFramework",
        "spark": "hyperplane.clusters.spark.framework:SparkFramework",
    },
)


def load(name: Any) -> Engine:
    """Return the engine of a name; raise a RequestError with similar names if there is none."""
    return ENGINES.load(name)()


def load_framework(engine: str) -> Framework:
    """Return the framework of an engine; raise a RequestError if there is none of its name."""
    return FRAMEWORKS.load(framework_of(engine))()
