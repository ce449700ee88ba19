"""Interface of runners, which run the steps of a job, and base classes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import Demand, ResourceAllocator
from hyperplane.jobs.notebook_steps import notebook_checks
from hyperplane.jobs.store.job_records import Job


class StepProcess(Protocol):
    """Process of one attempt at a step, wherever it runs."""

    command: AttemptCommand

    async def wait_until_running(self) -> None:
        """Return when it runs or has ended; until then it is queued."""
        ...

    async def wait(self) -> int | None:
        """Wait for the exit code, negative for a signal; None if it left none."""
        ...

    def exit_code(self) -> int | None:
        """Return the exit code, None if it is not known (yet)."""
        ...

    def end_time(self) -> float:
        """Return when a reattached process ended; 0 while that is unknown."""
        ...

    async def end(self, grace: float) -> int | None:
        """Terminate it, kill it after ``grace`` seconds, and return its exit code."""
        ...


class Runner(Protocol):
    """Interface to the system that runs the steps of a job."""

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None: ...

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the options of a submission; the result is stored with the job.

        Raises RequestError with every fault of the options.
        """
        ...

    def unavailable_reason(self) -> str:
        """Return why the runner is unavailable and what to do; empty if it is available."""
        ...

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return everything in a pipeline that the runner does not support."""
        ...

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with the folders and interpreter that its steps have."""
        ...

    def demand(self, capacity: ResourceAllocator, step: Step, memory_factor: float) -> Demand:
        """Return the resources of this machine that an attempt takes."""
        ...

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the maximum number of concurrent chunks of a step."""
        ...

    async def start(self, command: AttemptCommand, step: Step, memory_factor: float) -> StepProcess:
        """Start an attempt with ``memory_factor`` times the step's memory.

        Raises OSError, whose message is shown to the user, if it cannot start.
        """
        ...

    def reattach(self, command: AttemptCommand) -> StepProcess:
        """Return the process of an attempt that an earlier supervisor started."""
        ...


class SharedFilesystemMixin:
    """Base of runners whose steps access the files of this machine."""

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        del environment, options

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse all options."""
        wrong = f"unknown option; the runner {cls.name} has none"
        check(Fault(f"runner_options.{name}", "", wrong) for name in options)
        return {}

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return faults for kernels that are not installed."""
        return notebook_checks.kernel_faults(pipeline)

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job unchanged."""
        return job


class RemoteQueueMixin:
    """Base of runners whose steps wait in the queue of a scheduler."""

    #: Maximum chunks of a step in the queue, unless the step states one.
    at_once: ClassVar[int]

    def demand(self, capacity: ResourceAllocator, step: Step, memory_factor: float) -> Demand:
        """Return no demand: steps run elsewhere."""
        del capacity, step, memory_factor
        return Demand()

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the step's limit, or that of the runner."""
        del capacity, usual
        return step.max_parallel or self.at_once


#: Former names in this module -> present names in ``exporters.base``.
_MOVED = {"Document": "Document", "Renderer": "Exporter"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hyperplane.jobs.exporters import base

    present = f"{base.__name__}.{_MOVED[name]}"
    warn_caller(f"{__name__}.{name} is now {present}", FutureWarning)
    return getattr(base, _MOVED[name])
