"""Interface of exporters, which write files that run a job without a supervisor."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.store.job_records import Job


class Document(NamedTuple):
    """One file of an exported pipeline.

    Parameters
    ----------
    name : str
        Name of the file, valid in every file system.
    text : str
        Its content.
    kind : str
        ``"step"`` for a file that runs one step, ``"submit"`` for one that submits all.
    """

    name: str
    text: str
    kind: str


class Exporter(Protocol):
    """Interface to a scheduler that runs a job from files, without a supervisor.

    An exporter is a dataclass whose fields are its options. It submits nothing and writes no file.
    Classes of other packages are registered in the entry-point group ``hyperplane.exporters``.

    Attributes
    ----------
    name : str
        The name under which it is registered, the value of ``hyperplane job render --runner``.
    """

    name: ClassVar[str]

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        ...

    def render(self, job: Job) -> list[Document]:
        """Return the files of a job.

        Parameters
        ----------
        job : Job
            A job whose pipeline has no fault in :meth:`find_unsupported`.

        Returns
        -------
        list of Document
            In the order in which ``hyperplane job render`` shows them.
        """
        ...
