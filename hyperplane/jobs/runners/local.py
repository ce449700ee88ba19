"""Steps on this machine: each attempt is a process, and together they take what it has."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.jobs.capacity import Capacity, Demand
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.processes import Command, LocalProcess
from hyperplane.jobs.runners.base import SharedFilesystemMixin


class LocalRunner(SharedFilesystemMixin):
    """Steps as processes of this machine."""

    name: ClassVar[str] = "local"

    def unavailable_reason(self) -> str:
        """Nothing."""
        return ""

    def demand(self, capacity: Capacity, step: Step, memory_factor: float) -> Demand:
        """Cores, memory and GPUs, or a place among the steps that do not say."""
        return capacity.demand(step, memory_factor)

    def chunks_at_once(self, capacity: Capacity, step: Step, usual: int) -> int:
        """As many as fit."""
        return capacity.chunks_at_once(step, usual)

    async def start(self, command: Command, step: Step, memory_factor: float) -> LocalProcess:
        """Begin an attempt."""
        del step, memory_factor
        return LocalProcess.start(command)

    def reattach(self, command: Command) -> LocalProcess:
        """The attempt that somebody else has begun."""
        return LocalProcess(command)
