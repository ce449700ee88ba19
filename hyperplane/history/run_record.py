"""The schema of the record of a run."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Annotated, Any, Self

import pydantic_core
from pydantic import ConfigDict, Field, field_validator

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.public_calls import check_call
from hyperplane.core.pydantic_faults import CheckedModel
from hyperplane.core.text_tables import as_html, as_text
from hyperplane.history.figures import OUT_OF_MEMORY, ComputationUsage, TaskUsage, WorkerUsage
from hyperplane.history.run_texts import describe_record, format_seconds
from hyperplane.history.timeline import RunTimeline, TaskGroupTimes, WorkerTimeline

#: Version of the schema that this package writes. A field that is added needs a default, so that
#: records of earlier versions are read; one whose meaning changes needs a new name.
SCHEMA_VERSION = 5

Bytes = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Cost = Annotated[float, Field(ge=0, lt=1e24)]

#: Limit of times, in the year 5138, and of other figures. Only damaged records have larger ones,
#: which can have no date, or an infinite sum.
_LAST_TIME, _LARGEST = 1e11, 1e24
_TIMES = frozenset({"started", "ended", "part_seconds"})
Time = Annotated[float, Field(ge=0, lt=_LAST_TIME)]


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
        Nodes at the start, and the most that the cluster could have; 0 if they are not known.
    nprocs, nthreads : int
        Worker processes of a node and threads of each; all processes if the nodes are not known.
    ram_per_proc : int
        Memory of a process, in bytes.
    tuning : str
        Name of the tuning profile.
    budget : str
        The budget; empty if there was none.
    spill, pause, terminate : float
        Thresholds of the memory policy, as fractions of the memory of a process; 0 for those that
        were disabled, or are not known.
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
    spill: Fraction = 0.0
    pause: Fraction = 0.0
    terminate: Fraction = 0.0


class RunRecord(_Part):
    """What a cluster, a block of code on it, or a step of a job took, from its start to its end.

    Prints as a table.

    Parameters
    ----------
    name : str
        Unique name of the record: the time of the start, and the name of the block or the cluster.
    cluster : str
        Name of the cluster; empty for the record of a step.
    started, ended : float
        Times of the start and the end, in seconds since 1970.
    exit_reason : str
        Why the cluster ended, such as ``"closed"``; of a block ``"done"``, ``"interrupted"`` or
        ``"failed: ValueError"``.
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
    program : str
        File name of the script or notebook that started the cluster, without its folder; the module
        of ``python -m``; empty if unknown.
    pipeline, step : str
        Names of the pipeline and of the step that started the cluster; empty otherwise.
    computations : tuple of ComputationUsage
        Each computation, in the order of their ends; at most 200 of different structure.
    timeline : RunTimeline or None
        Memory, pauses, restarts and task groups over the time; None if they were not recorded, as
        by versions before 3 of the schema and for steps of jobs.
    block : str
        Name of the block of code that :func:`hyperplane.record` has recorded, below the names of
        those around it, such as ``"clean/join"``; empty for a whole cluster and for a step.
    run : str
        The run of the pipeline, such as ``"nightly #12"``; empty if it was no step of a job.
    parameters : dict of str to str
        Parameters of the job, with asterisks in place of secrets; empty if it was no step of a job.
    code : str
        SHA-256 of the script or notebook, of which only the sources of the cells count, and of a
        step also of its program and arguments; empty if unknown. What it imports is not part of it.
    cost : float or None
        Price of the nodes or containers for the time in which they ran, in ``currency``; None if
        no price is known.
    currency : str
        Currency of the cost, such as ``"USD"``; empty without a cost.
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
    started: Time
    ended: Time
    exit_reason: str = ""
    plan: PlanSummary = PlanSummary()
    versions: dict[str, str] = Field(default_factory=dict)
    workers: tuple[WorkerUsage, ...] = ()
    tasks: tuple[TaskUsage, ...] = ()
    job: str = ""
    program: str = ""
    pipeline: str = ""
    step: str = ""
    computations: tuple[ComputationUsage, ...] = ()
    timeline: RunTimeline | None = None
    block: str = ""
    run: str = ""
    parameters: dict[str, str] = Field(default_factory=dict)
    code: str = ""
    cost: Cost | None = None
    currency: str = ""
    schema_version: int = SCHEMA_VERSION

    @field_validator("workers", "tasks", "computations", "timeline")
    @classmethod
    def _check_figures(cls, parts: Any) -> Any:
        for name, value in _list_figures(parts):
            limit = _LAST_TIME if name in _TIMES else _LARGEST
            if isinstance(value, int | float) and not 0 <= value < limit:
                raise ValueError(f"{name} is {value}, and must be at least 0 and below {limit:g}")
        return parts

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
            # Unlike json, it refuses lone surrogates, which no page can have, and deep nesting.
            document = pydantic_core.from_json(text)
        except (TypeError, ValueError) as error:
            raise RequestError([Fault("text", repr(text)[:80], "a JSON document")]) from error
        if not isinstance(document, Mapping):
            raise RequestError([Fault("text", repr(text)[:80], "the record of a run")])
        return cls(**_select_known(document, cls))

    def to_json(self) -> str:
        """Return the record as one JSON document."""
        return self.model_dump_json(indent=1)

    def __repr__(self) -> str:
        ended = self.exit_reason or "unknown"
        return f"<RunRecord {self.name}: {ended}, {format_seconds(self.seconds)}>"

    def __str__(self) -> str:
        return as_text(describe_record(self))

    def _repr_html_(self) -> str:
        return as_html(describe_record(self))

    @property
    def seconds(self) -> float:
        """Time from the start to the end, in seconds."""
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

    @property
    def killed(self) -> int:
        """How often worker processes were replaced for lack of memory."""
        return sum(worker.causes.get(OUT_OF_MEMORY, 0) for worker in self.workers)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all worker processes, in seconds."""
        return sum(worker.cpu_seconds for worker in self.workers)

    @property
    def read(self) -> int:
        """Bytes that all worker processes have read from files."""
        return sum(worker.read for worker in self.workers)

    @property
    def written(self) -> int:
        """Bytes that all worker processes have written to files."""
        return sum(worker.written for worker in self.workers)

    @property
    def label(self) -> str:
        """What was run: the block, else pipeline and step, else the program, else the cluster."""
        of_step = f"{self.pipeline}/{self.step}" if self.step else ""
        return self.block or of_step or self.program or self.cluster

    @property
    def subject(self) -> str:
        """What follows the time in the name: the block or the cluster."""
        return to_file_name(self.block) or self.cluster


def _list_figures(part: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of a part, and of all that it contains."""
    if is_dataclass(part):
        for each in fields(part):
            yield from _list_figures(getattr(part, each.name), each.name)
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from _list_figures(value, key)
    elif isinstance(part, list | tuple):
        if part and isinstance(part[0], tuple):
            part = list(chain.from_iterable(part))
        if part and isinstance(part[0], int | float):
            # Of thousands, the least one; the sum is no number if one is not.
            yield from ((name, min(part)), (name, sum(part)))
            return
        for value in part:
            yield from _list_figures(value, name)
    else:
        yield name, part


#: Parts of a record and of its parts, by the fields that have them.
_PARTS: dict[type[Any], dict[str, type[Any]]] = {
    RunRecord: {
        "plan": PlanSummary,
        "workers": WorkerUsage,
        "tasks": TaskUsage,
        "computations": ComputationUsage,
        "timeline": RunTimeline,
    },
    RunTimeline: {"workers": WorkerTimeline, "groups": TaskGroupTimes},
}


def _select_known(document: Any, model: type[Any]) -> Any:
    """Return a document without the fields that this version does not know."""
    if isinstance(document, list):
        return [_select_known(each, model) for each in document]
    if not isinstance(document, Mapping):
        return document
    names = {each.name for each in fields(model)} if is_dataclass(model) else model.model_fields
    parts = _PARTS.get(model, {})
    return {
        name: _select_known(value, parts[name]) if name in parts else value
        for name, value in document.items()
        if name in names
    }


#: The time in the name of a record, with microseconds if another run began in that second.
_NAME = re.compile(r"(\d{8}-\d{6}(?:\.\d{6})?)-(.*)", re.DOTALL)


def to_file_name(block: str) -> str:
    """Return the name of a block in the name of its record, which is that of a file.

    Examples
    --------
    >>> to_file_name("clean/join")
    'clean.join'
    """
    return block.replace("/", ".")


def new_run_name(subject: str, started: float, microsecond: int | None = None) -> str:
    """Return the name of the record of a cluster or a block; names are in the order of the starts.

    Examples
    --------
    >>> new_run_name("flights", 1_700_000_000.25)
    '20231114-221320-flights'
    >>> new_run_name("flights", 1_700_000_000.25, 250_000)
    '20231114-221320.250000-flights'
    """
    time = dt.datetime.fromtimestamp(started, dt.UTC)
    fraction = "" if microsecond is None else f".{microsecond:06d}"
    return f"{time:%Y%m%d-%H%M%S}{fraction}-{subject}"


def split_run_name(name: str) -> tuple[str, str]:
    """Return the time and the subject in the name of a record; no time if it has none.

    Examples
    --------
    >>> split_run_name("20231114-221320-flights")
    ('20231114-221320', 'flights')
    """
    found = _NAME.fullmatch(name)
    return (found[1], found[2]) if found else ("", name)


def name_start(record: RunRecord) -> str:
    """Return the time in the name of a record, always with the microseconds of the start.

    Examples
    --------
    >>> started = 1_700_000_000.25
    >>> name = new_run_name("flights", started)
    >>> name_start(RunRecord(name=name, cluster="flights", started=started, ended=started))
    '20231114-221320.250000'
    """
    second = split_run_name(record.name)[0].partition(".")[0]
    return f"{second}.{int(record.started % 1 * 1e6):06d}" if second else ""
