"""Machines of steps on Vertex AI."""

from __future__ import annotations

import math

from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.platforms.gcp.machine_types import (
    VertexMachine,
    attach_gpus,
    choose_machine,
    find_machine,
)
from hyperplane.platforms.task_size import TaskSize
from hyperplane.spec.settings import VertexSettings

_MIB = 1 << 20


def step_request(step: Step, settings: VertexSettings) -> TaskSize:
    """Return the cores, the memory and the GPUs that a step requests, or those of the settings."""
    request = resource_request(step)
    memory = gb_to_bytes(settings.ram_gb) if request.memory is None else request.memory
    cores = settings.cores if request.cores is None else request.cores
    return TaskSize(cores, math.ceil(memory / _MIB), request.gpus)


def step_machine(
    step: Step, memory_factor: float, settings: VertexSettings
) -> VertexMachine | None:
    """Return the machine of a step; None if there is none that is large enough.

    A container can use the whole memory of its machine, whatever the step requests. After it ran
    out of memory, the factor is therefore that of the memory of the first machine.
    """
    request = step_request(step, settings)
    machine = _first_machine(request, settings)
    if machine is None or memory_factor <= 1:
        return machine
    series = settings.series
    if settings.machine_type is not None:
        series = machine.name.partition("-")[0]  # type: ignore[assignment]
    memory = math.ceil(machine.allocatable * memory_factor)
    return choose_machine(series, request.cores, memory, request.gpus, settings.gpu_type)


def _first_machine(request: TaskSize, settings: VertexSettings) -> VertexMachine | None:
    if settings.machine_type is None:
        return choose_machine(settings.series, *request, settings.gpu_type)
    machine = find_machine(settings.machine_type)
    machine = machine and attach_gpus(machine, request.gpus, settings.gpu_type)
    if machine is None or machine.cores < request.cores:
        return None
    return machine if machine.allocatable >= request.memory else None


def task_size(step: Step, memory_factor: float, settings: VertexSettings) -> TaskSize | None:
    """Return what a container of a step has; None if there is no machine that is large enough."""
    machine = step_machine(step, memory_factor, settings)
    return None if machine is None else TaskSize(machine.cores, machine.allocatable, machine.gpus)
