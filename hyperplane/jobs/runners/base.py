"""Interface of runners, which run the steps of a job, and base classes for them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import warn_caller
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.resource_allocator import Demand, ResourceAllocator
from hyperplane.jobs.notebook_steps import notebook_checks
from hyperplane.jobs.runners.container_budget import Price, find_pool_price
from hyperplane.jobs.runners.tuning_support import find_tuning_faults
from hyperplane.jobs.store.job_records import Job


class StepProcess(Protocol):
    """Process of one attempt at a step, on this machine, in a batch job or in a pod.

    Attributes
    ----------
    command : AttemptCommand
        The command of the attempt, with the paths of its files.
    """

    command: AttemptCommand

    async def wait_until_running(self) -> None:
        """Wait while it is queued; return as soon as it runs or has ended."""
        ...

    async def wait(self) -> int | None:
        """Wait for its end.

        Returns
        -------
        int or None
            Exit code, negative for a signal. None if the process was lost and left no exit code;
            the attempt is then repeated, which does not count as a failure of the step.
        """
        ...

    def exit_code(self) -> int | None:
        """Return the exit code; None while it runs, or if there is none."""
        ...

    def end_time(self) -> float:
        """Return the end time of a reattached process in seconds since 1970; 0 if unknown."""
        ...

    async def end(self, grace: float) -> int | None:
        """Terminate it, kill it after ``grace`` seconds, and return its exit code."""
        ...


class Runner(Protocol):
    """Interface to the system that runs the steps of a job.

    Classes of other packages are registered in the entry-point group ``hyperplane.runners``.

    Parameters
    ----------
    environment : mapping of str to str
        Environment of the submission.
    options : mapping
        Result of :meth:`resolve_options`.

    Attributes
    ----------
    name : str
        The name under which it is registered, the value of ``runner=`` and ``--runner``.
    """

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None: ...

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the options of a submission from the configuration.

        Parameters
        ----------
        options : mapping
            ``runner_options`` of the submission.

        Returns
        -------
        dict
            All options, JSON-serializable; they are stored with the job.

        Raises
        ------
        RequestError
            With every fault of the options.
        """
        ...

    def unavailable_reason(self) -> str:
        """Return why the runner is unavailable and what to do; empty if it is available."""
        ...

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that the runner does not support."""
        ...

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with the folders and the interpreter of the system that runs its steps."""
        ...

    def demand(self, capacity: ResourceAllocator, step: Step, memory_factor: float) -> Demand:
        """Return the resources of this machine that an attempt takes.

        Parameters
        ----------
        capacity : ResourceAllocator
            Resources of this machine.
        step : Step
            The step.
        memory_factor : float
            Factor by which its memory is multiplied; above 1 after it ran out of memory.

        Returns
        -------
        Demand
            An empty one if the step does not run on this machine.
        """
        ...

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the maximum number of concurrent chunks of a step.

        Parameters
        ----------
        capacity : ResourceAllocator
            Resources of this machine.
        step : Step
            The step; its ``max_parallel`` may be None.
        usual : int
            Configured maximum for steps without ``max_parallel``, cores and memory.

        Returns
        -------
        int
            At least 1.
        """
        ...

    async def start(self, command: AttemptCommand, step: Step, memory_factor: float) -> StepProcess:
        """Start an attempt, or submit it to a queue.

        Parameters
        ----------
        command : AttemptCommand
            Program, environment, folder and files of the attempt.
        step : Step
            The step, with resources in place of a pool's name.
        memory_factor : float
            Factor by which its memory is multiplied.

        Returns
        -------
        StepProcess

        Raises
        ------
        OSError
            If it cannot start. The user sees its message; ``errno`` decides on a retry.
        """
        ...

    def reattach(self, command: AttemptCommand) -> StepProcess:
        """Return the process of an attempt that an earlier supervisor started.

        ``command`` has only the paths of the attempt's files.
        """
        ...


@runtime_checkable
class ClosableRunner(Protocol):
    """A runner that keeps connections while it runs a job; other runners need no ``close``."""

    def close(self) -> Awaitable[None] | None:
        """Close the connections, in the event loop that has used them; may be a coroutine."""
        ...


@runtime_checkable
class PricedRunner(Protocol):
    """A runner of a service that is paid for; other runners need no ``describe_cost``."""

    def describe_cost(self, job: Job) -> list[str]:
        """Return a line with the cost of each step, or the reason why it is unknown."""
        ...


@runtime_checkable
class HourlyPricedRunner(Protocol):
    """A runner whose steps may have a price; others need no ``hourly_price``."""

    def hourly_price(self, step: Step, memory_factor: float) -> Price:
        """Return the price of an hour of one process of a step, or why it is unknown."""
        ...


@runtime_checkable
class BudgetRunner(Protocol):
    """A runner that compares the cost of a job with a budget; others need no such method."""

    def find_budget_faults(self, job: Job) -> list[Fault]:
        """Return the faults of a job that may cost more than the budget of the options."""
        ...


@runtime_checkable
class QuotaRunner(Protocol):
    """A runner of a service with quotas; other runners need no ``describe_quota``."""

    def describe_quota(self) -> list[str]:
        """Ask the service for the quotas of the account; return lines, also if they are unknown."""
        ...


class SharedFilesystemMixin:
    """Base class of runners whose steps access the files of this machine."""

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        del environment, options

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return no options; refuse all that are given."""
        allowed = f"unknown option; the runner {cls.name} has none"
        check(Fault(f"runner_options.{name}", "", allowed) for name in options)
        return {}

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return faults for missing packages of notebooks, missing kernels, and tuning."""
        return [
            *notebook_checks.kernel_faults(pipeline),
            *find_tuning_faults(pipeline, self.name),
        ]

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job unchanged."""
        return job


class RemoteQueueMixin:
    """Base class of runners whose steps wait in the queue of a scheduler."""

    #: Maximum chunks of a step in the queue, unless the step sets ``max_parallel``.
    at_once: ClassVar[int]

    def demand(self, capacity: ResourceAllocator, step: Step, memory_factor: float) -> Demand:
        """Return an empty demand: steps do not run on this machine."""
        del capacity, step, memory_factor
        return Demand()

    def chunks_at_once(self, capacity: ResourceAllocator, step: Step, usual: int) -> int:
        """Return the step's ``max_parallel``, or the runner's ``at_once``."""
        del capacity, usual
        return step.max_parallel or self.at_once

    def hourly_price(self, step: Step, memory_factor: float) -> Price:
        """Return the price of a node of the step's pool, or that it is unknown."""
        del memory_factor
        return find_pool_price(step, "no price of its nodes")


#: Former names in this module -> present names in ``exporters.base``.
_MOVED = {"Document": "Document", "Renderer": "Exporter"}


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hyperplane.jobs.exporters import base

    present = f"{base.__name__}.{_MOVED[name]}"
    warn_caller(f"{__name__}.{name} is now {present}", FutureWarning)
    return getattr(base, _MOVED[name])
