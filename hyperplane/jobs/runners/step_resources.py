"""Resources that a step requests of a scheduler, and the grace period of its end."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane import config
from hyperplane.core.units import gb_to_bytes, parse_seconds
from hyperplane.jobs.definition.step import Step


class ResourceRequest(NamedTuple):
    """Resources that one process of a step requests; memory in bytes, None where none is set."""

    cores: float | None
    memory: int | None
    gpus: int


def resource_request(step: Step) -> ResourceRequest:
    """Return the request of a step; for a pool, its allocatable cores and memory.

    Examples
    --------
    >>> from hyperplane.jobs import Resources
    >>> step = Step(name="a", kind="command", argv=("a",), resources=Resources(ram_gb=1.5))
    >>> resource_request(step)
    ResourceRequest(cores=None, memory=1500000000, gpus=0)
    """
    resources = step.resources
    if resources.pool is not None:
        pool = config.get_pool(resources.pool)
        memory = gb_to_bytes(pool.allocatable_ram_gb)
        return ResourceRequest(pool.allocatable_cores, memory, resources.gpus or pool.gpus)
    requested = None if resources.ram_gb is None else gb_to_bytes(resources.ram_gb)
    return ResourceRequest(resources.cores, requested, resources.gpus)


def grace_seconds() -> float:
    """Return the seconds between SIGTERM and SIGKILL."""
    return float(parse_seconds(config.jobs().grace))
