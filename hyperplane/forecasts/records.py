"""What is sent to the process that runs a sample, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hyperplane.collections.frames.helper_steps import GroupTasks
from hyperplane.forecasts.task_units import Key

#: Share of a table's rows from which on its most frequent key is reported.
NOTABLE_SHARE = 0.05


@dataclass(frozen=True)
class SampleTask:
    """Tasks of one step of a sample, with the results of earlier steps that they use.

    ``takes`` has the shuffles out of which it takes a partition, with the relative position of that
    partition, 0 to 1. ``pieces`` has the inputs that are a piece of a result that is divided, with
    the number of that piece, of which ``most_pieces`` different ones are used. ``divided`` is the
    result that is divided into pieces, if it has one, for ``outputs_of_all`` output partitions.
    ``taken`` has the tasks that take an input out of a list of pieces in ``rotated``.
    """

    members: tuple[tuple[Key, Any], ...]
    inputs: Mapping[Key, tuple[int, Key]]
    outputs: tuple[Key, ...]
    takes: tuple[tuple[str, float], ...] = ()
    pieces: Mapping[Key, int] = field(default_factory=dict)
    most_pieces: int = 1
    divided: Key | None = None
    outputs_of_all: int = 0
    rotated: Mapping[Key, tuple[int, bool]] = field(default_factory=dict)
    taken: Mapping[Key, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SampleSetup:
    """What the process of a sample needs before it can read the sample.

    Parameters
    ----------
    path : tuple of str
        Folders of Python modules.
    modules : tuple of str
        Modules that worker processes import when they start.
    forked : bool
        Whether workers are forked from a process that has imported the modules.
    arrow_pool : str
        Memory pool of Arrow that a forked worker is given after the import; none if empty.
    main : mapping of str to str
        Main module of the program, which workers run for its definitions; none if empty.
    """

    path: tuple[str, ...]
    modules: tuple[str, ...]
    forked: bool
    arrow_pool: str = ""
    main: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KeyColumns:
    """Key columns of an operation, as they are in files.

    Parameters
    ----------
    operation : str
        What is done with the key.
    names, columns : tuple of str
        Names in the table of the operation, and in the files.
    source_name : str
        Name of the step that reads the files.
    parts : tuple
        Paths of local Parquet files, or partitions or files of object stores with a ``scan``.
    complete : bool
        Whether the operation gets all rows of the files.
    receivers, is_divided, groups
        Those of a :class:`KeyedTable`.
    """

    operation: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    source_name: str
    parts: tuple[Any, ...]
    complete: bool
    receivers: int | None = None
    is_divided: bool = False
    groups: GroupTasks | None = None


@dataclass(frozen=True)
class KeyStatistics:
    """Values of the key of an operation.

    Parameters
    ----------
    operation : str
        What is done with the key.
    names : tuple of str
        Names of the columns.
    distinct : int or None
        Approximate number of different keys in all files; None if they were not counted.
    frequent : str
        The most frequent key of the sampled files.
    share : float
        Share of that key in their rows.
    complete : bool
        Whether the operation gets all rows of the files.
    receivers : int or None
        Number of tasks of which one gets all rows of a key; 0 if none does. None if it is that of
        the output partitions of Dask's shuffles.
    is_divided : bool
        Whether the rows of a frequent key are divided among tasks.
    """

    operation: str
    names: tuple[str, ...]
    distinct: int | None
    frequent: str
    share: float
    complete: bool = True
    receivers: int | None = None
    is_divided: bool = False

    @property
    def is_notable(self) -> bool:
        """Whether it says anything about the memory of a job."""
        return self.distinct is not None or self.share >= NOTABLE_SHARE

    def __str__(self) -> str:
        texts = []
        if self.distinct is not None:
            digits = len(str(self.distinct)) - 2
            count = round(self.distinct, -digits) if digits > 0 else self.distinct
            texts.append(f"about {count:,} different keys")
        if self.share >= NOTABLE_SHARE:
            divided = ", and are divided among tasks" if self.is_divided else ""
            texts.append(f"{round(100 * self.share)} % of the rows have {self.frequent}{divided}")
        return f"{', '.join(self.names)} of the {self.operation}: {'; '.join(texts)}"


@dataclass(frozen=True)
class SampleRequest:
    """A sample: its steps, the shuffles and how many inputs each of them has in all.

    ``keys`` are examined after the steps, with at most the share ``budget`` of the time that the
    job reads their files. ``target`` is the folder into which tasks write files.
    """

    tasks: tuple[SampleTask, ...]
    shuffles: Mapping[str, Any] = field(default_factory=dict)
    shuffle_inputs: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[KeyColumns, ...] = ()
    budget: float = 0.05
    target: str = ""


@dataclass(frozen=True)
class TaskRecord:
    """What a step of a sample took.

    Parameters
    ----------
    seconds, cpu : float
        Time, and CPU seconds of the process.
    before, peak, after : int
        Memory of the process before it, the largest during it, and after it, in bytes.
    live : int
        Bytes of the results that the process had before it.
    inputs : int
        Bytes of the inputs, with those that are used several times.
    outputs : tuple of int
        Bytes of each result.
    added : mapping of str to int
        Bytes that it added to shuffles.
    taken : int
        Bytes that it took out of shuffles.
    waiting : int
        Bytes by which the peak is larger if another partition waits between two of its tasks.
    groups : int
        Rows of the result, if it has at most some rows for each key of a group-by; otherwise 0.
    group_names : tuple of str
        Names of that key; empty if it is that of an operation of Dask.
    rows_per_key : float
        Most rows of the result for each key of all files.
    written : int
        Bytes of the files that it wrote.
    has_tables : bool
        Whether a task of the step returned a table.
    block : int
        Bytes of the largest column of a table that a task of the step returned.
    pieces : mapping of int to int
        Bytes that output partitions get of the table that it divided, by their number.
    library : int
        Bytes before it of the own allocators of libraries.
    shared : int
        Bytes by which these grew while it read tables that all tasks of a process share.
    filed : int
        Bytes of the results that are in files instead of memory.
    held : int
        Bytes of the results that are not in them, but in the arrays of which they are views.
    overlaps : int
        Bytes that are in several results, and in memory once.
    """

    seconds: float
    cpu: float
    before: int
    peak: int
    after: int
    live: int
    inputs: int
    outputs: tuple[int, ...]
    added: Mapping[str, int] = field(default_factory=dict)
    taken: int = 0
    waiting: int = 0
    groups: int = 0
    group_names: tuple[str, ...] = ()
    rows_per_key: float = 1.0
    written: int = 0
    has_tables: bool = False
    block: int = 0
    pieces: Mapping[int, int] = field(default_factory=dict)
    library: int = 0
    shared: int = 0
    filed: int = 0
    held: int = 0
    overlaps: int = 0


@dataclass(frozen=True)
class SampleResult:
    """Records of all steps.

    Parameters
    ----------
    records : tuple of TaskRecord
        One for each step.
    empty : int
        Memory of the process before the first step.
    exact : bool
        Whether the kernel has measured the peaks; otherwise a thread has, which misses short ones.
    repeated : TaskRecord or None
        The first step, run before all others; its time and memory include imports.
    shares : mapping of str to dict
        Share of each partition in the rows that were added to a shuffle, for those that are in all
        inputs.
    keys : tuple of KeyStatistics
        Values of the keys of operations.
    error : str
        Why the sample has failed; empty if it has not.
    failed : int or None
        Number of the step whose task has failed, if one has.
    library : int
        Bytes before the first step of the own allocators of libraries.
    """

    records: tuple[TaskRecord, ...]
    empty: int
    exact: bool
    repeated: TaskRecord | None = None
    shares: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    keys: tuple[KeyStatistics, ...] = ()
    error: str = ""
    failed: int | None = None
    library: int = 0
