"""Registries of the engines and of their frameworks, which are imported on first use.

CONTRIBUTING.md, *Add a platform*, lists the other files of a new engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hyperplane.clusters.engine import Engine
from hyperplane.clusters.framework import Framework
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.registry import Registry
from hyperplane.spec.engine_names import DASK, framework_of, platform_of

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
        "ray:ssh": "hyperplane.clusters.ray.ssh.engine:SshRayEngine",
        "ray:slurm": "hyperplane.clusters.ray.slurm.engine:SlurmRayEngine",
        "ray:kubernetes": "hyperplane.clusters.ray.kubernetes.engine:KubernetesRayEngine",
        "spark:local": "hyperplane.clusters.spark.local.engine:LocalSparkEngine",
        "spark:ssh": "hyperplane.clusters.spark.ssh.engine:SshSparkEngine",
        "spark:slurm": "hyperplane.clusters.spark.slurm.engine:SlurmSparkEngine",
        "spark:kubernetes": "hyperplane.clusters.spark.kubernetes.engine:KubernetesSparkEngine",
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


def name_engine(framework: str, engine: str) -> str:
    """Return the name of a framework's engine, which may be given by its platform; or ``"auto"``.

    Raises
    ------
    RequestError
        If the engine is one of another framework, or if the framework has none on the platform.

    Examples
    --------
    >>> name_engine("ray", "local"), name_engine("dask", "slurm"), name_engine("ray", "auto")
    ('ray:local', 'slurm', 'auto')
    """
    names = [name for name in ENGINES.names() if framework_of(name) == framework]
    if not names:
        raise RequestError([Fault("framework", repr(framework), "a framework that has an engine")])
    if engine == "auto" or engine in names:
        return engine
    by_platform = {platform_of(name): name for name in names}
    if ":" not in engine and engine in by_platform:
        return by_platform[engine]
    allowed = f"an engine of the framework {framework}: {', '.join(['auto', *names])}"
    raise RequestError([Fault("engine", repr(engine)[:80], allowed)])


def select_engines(framework: str, preferred: Iterable[str]) -> list[str]:
    """Return the engines of a framework that ``engine="auto"`` tries, in order.

    They are those on the platforms of the preferred engines, or else all of the framework.
    """
    names = {platform_of(name): name for name in ENGINES.names() if framework_of(name) == framework}
    platforms = dict.fromkeys(platform_of(name) for name in preferred)
    return [names[each] for each in platforms if each in names] or list(names.values())
