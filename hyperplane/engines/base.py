"""Former module of the interface of engines, which other packages implement."""

from hyperplane.clusters.engine import (
    Availability,
    Engine,
    Feature,
    StartedCluster,
    SupportedDeployMode,
    SupportsLayout,
    SupportsNodeFit,
    SupportsRender,
    SupportsStartLine,
)
from hyperplane.core.public_calls import warn_caller

__all__ = [
    "Availability",
    "Engine",
    "Feature",
    "LaysOut",
    "Renders",
    "SchedulerPlace",
    "Started",
    "StartedCluster",
    "SupportsLayout",
    "SupportsNodeFit",
    "SupportsRender",
    "SupportsStartLine",
]

SchedulerPlace, Started = SupportedDeployMode, StartedCluster
LaysOut, Renders = SupportsLayout, SupportsRender

warn_caller("hyperplane.engines.base is now hyperplane.clusters.engine", FutureWarning)
