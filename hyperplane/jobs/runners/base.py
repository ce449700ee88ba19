"""What a runner is: where the steps of a job run; and what writes a job down for a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from hyperplane.errors import Fault, check
from hyperplane.jobs import notebook_checks
from hyperplane.jobs.capacity import Capacity, Demand
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.processes import Command
from hyperplane.jobs.states import Job


class Document(NamedTuple):
    """One file that a scheduler reads.

    Parameters
    ----------
    name : str
        Name of the file, safe in every file system.
    text : str
        What it holds.
    kind : str
        ``"step"`` for what runs one step, ``"submit"`` for what submits them all.
    """

    name: str
    text: str
    kind: str


class StepProcess(Protocol):
    """What runs one attempt at a step, wherever that is."""

    command: Command

    async def wait_until_running(self) -> None:
        """Return when it runs, or has ended: until then it waits for its turn."""
        ...

    async def wait(self) -> int | None:
        """Its exit code, negative for a signal; None when it is gone and left none."""
        ...

    def exit_code(self) -> int | None:
        """What it ended with, so far as anybody knows."""
        ...

    def end_time(self) -> float:
        """When one that somebody else began has ended; 0 while that is not known."""
        ...

    async def end(self, grace: float) -> int | None:
        """End it politely, and after so many seconds surely; its exit code."""
        ...


class Runner(Protocol):
    """The seam between a job and where its steps run; whoever conducts it knows no more."""

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None: ...

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a submission with what the configuration says, to be kept with the job.

        Raises
        ------
        RequestError
            With all that is wrong with them.
        """
        ...

    def unavailable_reason(self) -> str:
        """Why nothing can run there, and what to do; empty when it can."""
        ...

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """All that keeps a pipeline from running there."""
        ...

    def with_runtime_paths(self, job: Job) -> Job:
        """The job with the folders and the interpreter that its steps find."""
        ...

    def demand(self, capacity: Capacity, step: Step, memory_factor: float) -> Demand:
        """What an attempt takes of this machine."""
        ...

    def chunks_at_once(self, capacity: Capacity, step: Step, usual: int) -> int:
        """How many chunks of a step may be under way."""
        ...

    async def start(self, command: Command, step: Step, memory_factor: float) -> StepProcess:
        """Begin an attempt, with so many times the memory that the step asks for.

        Raises
        ------
        OSError
            When it cannot begin; its text is for the user.
        """
        ...

    def reattach(self, command: Command) -> StepProcess:
        """The attempt that somebody who was killed since has begun with these traces."""
        ...


class SharedFilesystemMixin:
    """What runners have in common whose steps find the files of this machine."""

    name: ClassVar[str]

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        del environment, options

    @classmethod
    def resolve_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: there are no options."""
        allowed = f"nothing: the runner {cls.name} has no options"
        check(Fault(f"runner_options.{name}", "an option", allowed) for name in options)
        return {}

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Kernels of notebooks that are not here."""
        return notebook_checks.kernel_faults(pipeline)

    def with_runtime_paths(self, job: Job) -> Job:
        """The same."""
        return job


class RemoteQueueMixin:
    """What runners have in common whose steps wait in somebody else's queue."""

    #: Chunks of a step that are there at once, unless the step says; more than most run at once.
    at_once: ClassVar[int]

    def demand(self, capacity: Capacity, step: Step, memory_factor: float) -> Demand:
        """Nothing of this machine."""
        del capacity, step, memory_factor
        return Demand()

    def chunks_at_once(self, capacity: Capacity, step: Step, usual: int) -> int:
        """What the step says, or the most."""
        del capacity, usual
        return step.max_parallel or self.at_once


class Renderer(Protocol):
    """Writes a job down in the words of a scheduler that then runs its steps without us.

    It is made with its options, submits nothing and writes nothing.
    """

    name: ClassVar[str]

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """All that keeps a pipeline from running there, its options among it."""
        ...

    def render(self, job: Job) -> list[Document]:
        """What the scheduler gets for a job of which nothing is unsupported."""
        ...
