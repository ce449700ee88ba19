"""Former module of :func:`~hyperplane.jobs.definition.dependencies.waves`, which was documented."""

from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.definition.dependencies import waves

__all__ = ["waves"]

warn_caller(
    "hyperplane.jobs.definition.order is now hyperplane.jobs.definition.dependencies", FutureWarning
)
