"""What the environment says: which task of how many this process is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hyperplane.errors import Fault

INDEX, COUNT = "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT"
_SLURM = "SLURM_ARRAY_TASK_"
#: The variables of runners that number their tasks from 0: the number, and how many there are.
_PAIRS = (
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETION_COUNT"),
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"),
)


@dataclass(frozen=True)
class Said:
    """A number and where it stands.

    Parameters
    ----------
    value : int
        The number.
    where : str
        The variable or the argument.
    """

    value: int
    where: str

    @property
    def fault_of(self) -> tuple[str, str]:
        """Where and what, for a :class:`~hyperplane.errors.Fault`."""
        return self.where, str(self.value)


@dataclass(frozen=True)
class Task:
    """What one source says; None for what it does not say."""

    index: Said | None = None
    count: Said | None = None


def ours(environment: Mapping[str, str]) -> tuple[Task, list[Fault]]:
    """What the variables of this package say, and what is wrong with them."""
    faults: list[Fault] = []
    task = Task(_number(environment, INDEX, 0, faults), _number(environment, COUNT, 1, faults))
    return task, faults


def of_runner(environment: Mapping[str, str]) -> tuple[Task, list[Fault]]:
    """What the variables of runners say, which must not contradict each other."""
    faults: list[Fault] = []
    tasks = [
        Task(_number(environment, index, 0, faults), _number(environment, count, 1, faults))
        for index, count in _PAIRS
        if index in environment or count in environment
    ]
    if f"{_SLURM}ID" in environment:
        tasks.append(_slurm(environment, faults))
    first = Task()
    for task in tasks:
        faults += _contradictions(first, task)
        first = Task(first.index or task.index, first.count or task.count)
    return first, faults


def _contradictions(one: Task, other: Task) -> Iterator[Fault]:
    for here, there in ((one.index, other.index), (one.count, other.count)):
        if here and there and here.value != there.value:
            advice = f"unset the one that is not the runner's, or set {INDEX} and {COUNT}"
            yield Fault(*there.fault_of, f"{here.value}, as {here.where} says", advice)


def _number(
    environment: Mapping[str, str], name: str, least: int, faults: list[Fault]
) -> Said | None:
    text = environment.get(name)
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal() and int(text) >= least:
        return Said(int(text), name)
    faults.append(Fault(name, repr(text), f"a whole number, at least {least}"))
    return None


def _slurm(environment: Mapping[str, str], faults: list[Fault]) -> Task:
    """A task of a Slurm array; its numbers may begin anywhere and go in steps."""
    named = {
        name: _number(environment, f"{_SLURM}{name}", name in ("STEP", "COUNT"), faults)
        for name in ("ID", "MIN", "MAX", "STEP", "COUNT")
    }
    number, least, most, count = (named[name] for name in ("ID", "MIN", "MAX", "COUNT"))
    step = named["STEP"].value if named["STEP"] else 1
    if number is None:
        return Task()
    if least is None:
        if f"{_SLURM}MIN" not in environment:
            allowed = f"together with {_SLURM}MIN, which Slurm sets"
            faults.append(Fault(*number.fault_of, allowed))
        return Task(count=count)
    place, over = divmod(number.value - least.value, step)
    tasks = (most.value - least.value) // step + 1 if most else None
    regular = "start an array in equal steps, such as --array=0-9 or --array=1-9:2"
    if over or place < 0:
        steps = f"{least.value} and more in steps of {step}"
        faults.append(Fault(*number.fault_of, steps, regular))
        return Task()
    if count and tasks and count.value != tasks:
        steps = f"{tasks}, from {_SLURM}MIN to {_SLURM}MAX in steps of {step}"
        faults.append(Fault(*count.fault_of, steps, regular))
        return Task()
    if count is None and most and tasks:
        count = Said(tasks, most.where)
    return Task(Said(place, number.where), count)
