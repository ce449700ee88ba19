"""Advice of a report: memory of processes, pool, and size of partitions."""

from __future__ import annotations

from collections.abc import Iterator

from hyperplane import config
from hyperplane.core.units import round_bytes
from hyperplane.guard.run_summary import advises_size, describe_size
from hyperplane.history.figures import TaskUsage
from hyperplane.history.run_record import RunRecord

#: Fraction of the memory of a process that the tasks of all its threads may take with their inputs
#: and results: half of what remains until results are written to disk.
_SHARE = 0.3
#: Mean seconds of a task below which the scheduler takes a notable part of the time, and number of
#: tasks from which on that matters.
_SHORT, _MANY = 0.02, 5000


def advise(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield labels and texts; none if the record has too few figures."""
    peak = record.peak
    if peak is None or not record.tasks:
        return
    if advises_size(record):
        pools, currency = list(config.pools().values()), config.sizing_rules().currency
        yield "memory", describe_size(record, pools, currency)
    is_pressed = bool(record.killed or record.spilled or record.paused_seconds)
    fullest = max(record.tasks, key=lambda task: task.memory)
    if is_pressed and fullest.memory:
        yield "fullest", f"{fullest.name}: a process had {round_bytes(fullest.memory)} while it ran"
    threads = max((worker.nthreads for worker in record.workers), default=0) or 1
    largest = max(record.tasks, key=_size)
    if is_pressed and _size(largest) * threads > _SHARE * peak.limit:
        wanted = _SHARE * peak.limit / threads
        factor = _size(largest) / wanted
        yield (
            "partitions",
            f"smaller by a factor of {factor:.1f} would help: a task of {largest.name} has up to "
            f"{round_bytes(largest.largest_input)} of inputs and returns up to "
            f"{round_bytes(largest.largest_output)}, in each of {threads} threads",
        )
    for task in record.tasks:
        mean = task.seconds / task.count if task.count else 0.0
        if task.count >= _MANY and mean < _SHORT and not is_pressed:
            yield (
                "partitions",
                f"larger ones would save time of the scheduler: the {task.count:,} tasks of "
                f"{task.name} take {mean * 1000:.2g} ms each on average",
            )
            return


def _size(task: TaskUsage) -> int:
    return task.largest_input + task.largest_output
