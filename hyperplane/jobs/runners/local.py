"""Runner for this machine: each attempt is a process, within the machine's capacity."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hyperplane.clusters.free_memory import STEP_MEMORY
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand, LocalProcess
from hyperplane.jobs.execution.resource_allocator import (
    Demand,
    ResourceAllocator,
    find_step_memory,
)
from hyperplane.jobs.runners.base import SharedFilesystemMixin
from hyperplane.jobs.runners.cluster_command import add_cluster_program
from hyperplane.jobs.runners.gang_command import add_gang_program


class LocalRunner(SharedFilesystemMixin):
    """Runs steps as processes of this machine."""

    name: ClassVar[str] = "local"
    runs_gangs: ClassVar[bool] = True
    #: Whether it starts the clusters of steps whose framework is not Dask.
    starts_clusters: ClassVar[bool] = True
    #: Whether those clusters are on the machine of the submission.
    uses_this_machine: ClassVar[bool] = True

    def unavailable_reason(self) -> str:
        """Return an empty text: this machine is always available."""
        return ""

    def demand(self, capacity: ResourceAllocator, step: Step, memory_factor: float) -> Demand:
        """Return cores, memory and GPUs, or one slot for steps that set none."""
        return capacity.demand(step, memory_factor)

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return how many chunks of a step fit on this machine."""
        return capacity.chunks_at_once(step, usual)

    async def start(
        self, command: AttemptCommand, step: Step, memory_factor: float
    ) -> LocalProcess:
        """Start an attempt, which knows the memory that it has asked for."""
        if memory := find_step_memory(step, memory_factor):
            # Only in the environment: a container or a batch job has a limit.
            environment = {**command.environment, STEP_MEMORY: str(memory)}
            command = replace(command, environment=environment)
        # One cluster for all processes of a gang.
        return LocalProcess.start(
            add_cluster_program(add_gang_program(command, step, "local"), step)
        )

    def reattach(self, command: AttemptCommand) -> LocalProcess:
        """Return the process of an attempt that an earlier supervisor started."""
        return LocalProcess(command)
