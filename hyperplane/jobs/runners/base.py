"""What a runner is: it writes a job down in the words of a scheduler that then runs its steps."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from hyperplane.errors import Fault
from hyperplane.jobs.definition.models import Pipeline
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


class Runner(Protocol):
    """The seam between jobs and schedulers.

    A runner is made with its options, knows no other runner, submits nothing and writes nothing.
    """

    name: ClassVar[str]

    def unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """All that keeps a pipeline from running there, its options among it."""
        ...

    def render(self, job: Job) -> list[Document]:
        """What the scheduler gets for a job of which nothing is unsupported."""
        ...
