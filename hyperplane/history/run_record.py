"""The schema of the record of a run."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import check_call
from hyperplane.core.pydantic_faults import CheckedModel

#: Version of the schema that this package writes. A field that is added needs a default, so that
#: records of earlier versions are read; one whose meaning changes needs a new name.
SCHEMA_VERSION = 1

Bytes = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _Part(CheckedModel):
    """Base of the record and its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanSummary(_Part):
    """What was planned: engine, pool and layout.

    Parameters
    ----------
    engine, framework : str
        Name of the engine and of its framework.
    pool : str
        Name of the pool; empty if there was none.
    nodes, max_nodes : int
        Nodes at the start, and the most that the cluster could have.
    nprocs, nthreads : int
        Worker processes of a node and threads of each.
    ram_per_proc : int
        Memory of a process, in bytes.
    tuning : str
        Name of the tuning profile.
    budget : str
        The budget; empty if there was none.
    """

    engine: str = ""
    framework: str = ""
    pool: str = ""
    nodes: Count = 0
    max_nodes: Count = 0
    nprocs: Count = 0
    nthreads: Count = 0
    ram_per_proc: Bytes = 0
    tuning: str = ""
    budget: str = ""


class WorkerUsage(_Part):
    """What one worker process took, with all its restarts.

    Parameters
    ----------
    name : str
        Name of the worker, which a restarted process keeps.
    nthreads : int
        Number of its threads.
    limit : int
        Limit of its memory in bytes; 0 if it had none.
    peak : int
        Largest measured memory of the process, in bytes. It is measured twice a second at most, so
        that shorter peaks can be missed.
    demand : int
        Largest sum of its memory and of the results that it had on disk, in bytes.
    spilled : int
        Most bytes of results that were on disk at one time.
    paused_seconds, spilling_seconds : float
        How long it was paused, and how long it had results on disk.
    restarts : int
        How often the process was replaced.
    causes : dict of str to int
        Number of those restarts by cause: ``"out of memory"``, ``"client"`` (a call of
        ``Client.restart``) or ``"other"``.
    """

    name: str
    nthreads: Count = 0
    limit: Bytes = 0
    peak: Bytes = 0
    demand: Bytes = 0
    spilled: Bytes = 0
    paused_seconds: Seconds = 0.0
    spilling_seconds: Seconds = 0.0
    restarts: Count = 0
    causes: dict[str, int] = Field(default_factory=dict)


class TaskUsage(_Part):
    """What all tasks of one operation took.

    An operation is a task prefix of Dask. The names of task groups have a hash: the next run has
    other ones, so that no forecast could find them, and a long session has tens of thousands. An
    operation has the same name in each run. If its calls differ, as merges of small and large
    tables do, the largest figures are those of the call that decides about memory.

    Parameters
    ----------
    name : str
        Name of the operation, the prefix of its tasks, such as ``read-parquet``.
    count, failed : int
        Number of tasks that ended, and of those that failed.
    seconds, longest : float
        Time of all tasks and of the longest.
    output, largest_output : int
        Size of the results of all tasks and of the largest, in bytes, as Dask estimates it.
    input, largest_input : int
        Size of the inputs of all tasks, and the largest size of the inputs of one task, in bytes.
    memory : int
        Largest measured memory of a worker process while such a task ran, in bytes. It includes
        everything else in the process.
    """

    name: str
    count: Count = 0
    failed: Count = 0
    seconds: Seconds = 0.0
    longest: Seconds = 0.0
    output: Bytes = 0
    largest_output: Bytes = 0
    input: Bytes = 0
    largest_input: Bytes = 0
    memory: Bytes = 0


class RunRecord(_Part):
    """What the run of one cluster took, from its start to its end.

    Parameters
    ----------
    name : str
        Unique name of the record: the time of the start and the name of the cluster.
    cluster : str
        Name of the cluster.
    started, ended : float
        Times of the start and the end, in seconds since 1970.
    exit_reason : str
        Why the cluster ended, such as ``"closed"``.
    plan : PlanSummary
        Engine, pool and layout.
    versions : dict of str to str
        Versions of Python and packages.
    workers : tuple of WorkerUsage
        Each worker process. Beyond 1,000 those that left an adaptive cluster first are one.
    tasks : tuple of TaskUsage
        Each operation, the one with the most time first; at most 1,000, and a last one for others.
    job : str
        The pipeline job whose step started the cluster; empty otherwise.
    schema_version : int
        Version of the schema with which the record was written.

    Examples
    --------
    >>> record = RunRecord(name="20261127-flights", cluster="flights", started=0, ended=90)
    >>> record.seconds, record.peak_share
    (90.0, None)
    """

    name: str
    cluster: str
    started: float
    ended: float
    exit_reason: str = ""
    plan: PlanSummary = PlanSummary()
    versions: dict[str, str] = Field(default_factory=dict)
    workers: tuple[WorkerUsage, ...] = ()
    tasks: tuple[TaskUsage, ...] = ()
    job: str = ""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    @check_call
    def from_json(cls, text: str | bytes) -> Self:
        """Read a record of this or another version; fields of later versions are ignored.

        Parameters
        ----------
        text : str or bytes
            Content of the file of a record.

        Returns
        -------
        RunRecord

        Raises
        ------
        RequestError
            If the text is no record.
        """
        try:
            document = json.loads(text)
        except (TypeError, ValueError) as error:
            raise RequestError([Fault("text", repr(text)[:80], "a JSON document")]) from error
        if not isinstance(document, Mapping):
            raise RequestError([Fault("text", repr(text)[:80], "the record of a run")])
        return cls(**_select_known(document, cls))

    def to_json(self) -> str:
        """Return the record as one JSON document."""
        return self.model_dump_json(indent=1)

    @property
    def seconds(self) -> float:
        """How long the cluster ran, in seconds."""
        return max(0.0, self.ended - self.started)

    @property
    def peak(self) -> WorkerUsage | None:
        """The worker that was nearest to its limit; None if no worker had a limit."""
        limited = [worker for worker in self.workers if worker.limit]
        return max(limited, key=lambda worker: worker.peak / worker.limit, default=None)

    @property
    def peak_share(self) -> float | None:
        """Largest measured memory of a process as a fraction of its limit; None without a limit."""
        return self.peak.peak / self.peak.limit if self.peak is not None else None

    @property
    def paused_seconds(self) -> float:
        """Time that workers were paused, in seconds, summed over the workers."""
        return sum(worker.paused_seconds for worker in self.workers)

    @property
    def spilled(self) -> int:
        """Bytes that the workers had on disk at most, summed over the workers."""
        return sum(worker.spilled for worker in self.workers)

    @property
    def restarts(self) -> int:
        """How often worker processes were replaced."""
        return sum(worker.restarts for worker in self.workers)


#: Parts of a record by the fields that have them.
_PARTS: dict[str, type[_Part]] = {"plan": PlanSummary, "workers": WorkerUsage, "tasks": TaskUsage}


def _select_known(document: Any, model: type[_Part]) -> Any:
    """Return a document without the fields that this version does not know."""
    if isinstance(document, list):
        return [_select_known(each, model) for each in document]
    if not isinstance(document, Mapping):
        return document
    known = {name: value for name, value in document.items() if name in model.model_fields}
    if model is not RunRecord:
        return known
    return {
        name: _select_known(value, _PARTS[name]) if name in _PARTS else value
        for name, value in known.items()
    }


#: Length of the time in the name of a record.
TIME_LENGTH = len("20261127-160314")


def new_run_name(cluster: str, started: float) -> str:
    """Return the name of the record of a cluster; names are in the order of the starts.

    Examples
    --------
    >>> new_run_name("flights", 1_700_000_000.25)
    '20231114-221320-flights'
    """
    time = dt.datetime.fromtimestamp(started, dt.UTC)
    return f"{time:%Y%m%d-%H%M%S}-{cluster}"
