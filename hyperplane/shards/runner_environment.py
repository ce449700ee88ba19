"""Read the index of this task and the number of tasks from the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hyperplane.core.errors import Fault

INDEX, COUNT = "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT"
_SLURM = "SLURM_ARRAY_TASK_"
#: Variables of index and count, of runners whose indices begin at 0.
_PAIRS = (
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETION_COUNT"),
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT"),
)


@dataclass(frozen=True)
class EnvironmentValue:
    """An integer, and the variable or argument that it came from."""

    value: int
    source: str

    @property
    def fault_fields(self) -> tuple[str, str]:
        """Source and value, for a :class:`~hyperplane.errors.Fault`."""
        return self.source, str(self.value)


@dataclass(frozen=True)
class ArrayTask:
    """Index and count of one source; None if it does not set them."""

    index: EnvironmentValue | None = None
    count: EnvironmentValue | None = None


def read_own_variables(environment: Mapping[str, str]) -> tuple[ArrayTask, list[Fault]]:
    """Return the values of the ``HYPERPLANE_SHARD_*`` variables, and their faults."""
    faults: list[Fault] = []
    task = ArrayTask(
        _parse_number(environment, INDEX, 0, faults), _parse_number(environment, COUNT, 1, faults)
    )
    return task, faults


def read_runner_variables(environment: Mapping[str, str]) -> tuple[ArrayTask, list[Fault]]:
    """Return the values of the runner's variables, and their faults and contradictions."""
    faults: list[Fault] = []
    tasks = [
        ArrayTask(
            _parse_number(environment, index, 0, faults),
            _parse_number(environment, count, 1, faults),
        )
        for index, count in _PAIRS
        if index in environment or count in environment
    ]
    if f"{_SLURM}ID" in environment:
        tasks.append(_read_slurm(environment, faults))
    first = ArrayTask()
    for task in tasks:
        faults += _conflict_faults(first, task)
        first = ArrayTask(first.index or task.index, first.count or task.count)
    return first, faults


def _conflict_faults(one: ArrayTask, other: ArrayTask) -> Iterator[Fault]:
    """Yield a fault for each value that differs between two sources."""
    for first, second in ((one.index, other.index), (one.count, other.count)):
        if first and second and first.value != second.value:
            advice = f"unset the one that is not the runner's, or set {INDEX} and {COUNT}"
            yield Fault(*second.fault_fields, f"{first.value}, the value of {first.source}", advice)


def _parse_number(
    environment: Mapping[str, str], name: str, least: int, faults: list[Fault]
) -> EnvironmentValue | None:
    """Return a variable as an integer; add a fault if it is not one or less than ``least``."""
    text = environment.get(name)
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal() and int(text) >= least:
        return EnvironmentValue(int(text), name)
    faults.append(Fault(name, repr(text), f"a whole number, at least {least}"))
    return None


def _read_slurm(environment: Mapping[str, str], faults: list[Fault]) -> ArrayTask:
    """Return the task of a Slurm array, whose indices may begin anywhere and have steps."""
    values = {
        name: _parse_number(environment, f"{_SLURM}{name}", name in ("STEP", "COUNT"), faults)
        for name in ("ID", "MIN", "MAX", "STEP", "COUNT")
    }
    number, least, most, count = (values[name] for name in ("ID", "MIN", "MAX", "COUNT"))
    step = values["STEP"].value if values["STEP"] else 1
    if number is None:
        return ArrayTask()
    if least is None:
        if f"{_SLURM}MIN" not in environment:
            allowed = f"together with {_SLURM}MIN, which Slurm sets"
            faults.append(Fault(*number.fault_fields, allowed))
        return ArrayTask(count=count)
    position, remainder = divmod(number.value - least.value, step)
    tasks = (most.value - least.value) // step + 1 if most else None
    regular = "start an array in equal steps, such as --array=0-9 or --array=1-9:2"
    if remainder or position < 0:
        steps = f"{least.value} and more in steps of {step}"
        faults.append(Fault(*number.fault_fields, steps, regular))
        return ArrayTask()
    if count and tasks and count.value != tasks:
        steps = f"{tasks}, from {_SLURM}MIN to {_SLURM}MAX in steps of {step}"
        faults.append(Fault(*count.fault_fields, steps, regular))
        return ArrayTask()
    if count is None and most and tasks:
        count = EnvironmentValue(tasks, most.source)
    return ArrayTask(EnvironmentValue(position, number.source), count)
