"""Read the index of this array task and the number of tasks from environment variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hyperplane.core.errors import Fault

INDEX, COUNT = "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_SHARD_COUNT"
_SLURM = "SLURM_ARRAY_TASK_"
#: Variables of the index and the count, for runners whose indices begin at 0.
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
        """The source and the value, for a :class:`~hyperplane.errors.Fault`."""
        return self.source, str(self.value)


@dataclass(frozen=True)
class ArrayTask:
    """Index and count of one source; None if it does not set them."""

    index: EnvironmentValue | None = None
    count: EnvironmentValue | None = None


def read_hyperplane_variables(environment: Mapping[str, str]) -> tuple[ArrayTask, list[Fault]]:
    """Return the values of the ``HYPERPLANE_SHARD_*`` variables, and their faults."""
    faults: list[Fault] = []
    task = ArrayTask(
        _parse_number(environment, INDEX, 0, faults), _parse_number(environment, COUNT, 1, faults)
    )
    return task, faults


def read_runner_variables(environment: Mapping[str, str]) -> tuple[ArrayTask, list[Fault]]:
    """Return the values of the runner's variables, with the faults of invalid or different ones."""
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
    merged = ArrayTask()
    for task in tasks:
        faults += _find_conflicts(merged, task)
        merged = ArrayTask(merged.index or task.index, merged.count or task.count)
    return merged, faults


def _find_conflicts(left: ArrayTask, right: ArrayTask) -> Iterator[Fault]:
    """Yield a fault for each value that differs between two sources."""
    for first, second in ((left.index, right.index), (left.count, right.count)):
        if first and second and first.value != second.value:
            advice = f"unset the one that is not the runner's, or set {INDEX} and {COUNT}"
            yield Fault(*second.fault_fields, f"{first.value}, the value of {first.source}", advice)


def _parse_number(
    environment: Mapping[str, str], name: str, minimum: int, faults: list[Fault]
) -> EnvironmentValue | None:
    """Return a variable as an integer; add a fault if it is not one or below the minimum."""
    text = environment.get(name)
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdecimal() and int(text) >= minimum:
        return EnvironmentValue(int(text), name)
    faults.append(Fault(name, repr(text), f"a whole number, at least {minimum}"))
    return None


def _read_slurm(environment: Mapping[str, str], faults: list[Fault]) -> ArrayTask:
    """Return the task of a Slurm array, whose indices may begin at any number and have steps."""
    values = {
        name: _parse_number(environment, f"{_SLURM}{name}", name in ("STEP", "COUNT"), faults)
        for name in ("ID", "MIN", "MAX", "STEP", "COUNT")
    }
    number, first, last, count = (values[name] for name in ("ID", "MIN", "MAX", "COUNT"))
    step = values["STEP"].value if values["STEP"] else 1
    if number is None:
        return ArrayTask()
    if first is None:
        if f"{_SLURM}MIN" not in environment:
            allowed = f"together with {_SLURM}MIN, which Slurm sets"
            faults.append(Fault(*number.fault_fields, allowed))
        return ArrayTask(count=count)
    position, remainder = divmod(number.value - first.value, step)
    tasks = (last.value - first.value) // step + 1 if last else None
    advice = "start an array in equal steps, such as --array=0-9 or --array=1-9:2"
    if remainder or position < 0:
        allowed = f"{first.value} and more in steps of {step}"
        faults.append(Fault(*number.fault_fields, allowed, advice))
        return ArrayTask()
    if count and tasks and count.value != tasks:
        allowed = f"{tasks}, from {_SLURM}MIN to {_SLURM}MAX in steps of {step}"
        faults.append(Fault(*count.fault_fields, allowed, advice))
        return ArrayTask()
    if count is None and last and tasks:
        count = EnvironmentValue(tasks, last.source)
    return ArrayTask(EnvironmentValue(position, number.source), count)
