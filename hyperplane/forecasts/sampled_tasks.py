"""Run the tasks of a step of a sample one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hyperplane.forecasts.held_memory import measure_held, measure_overlaps
from hyperplane.forecasts.memory_meter import PeakMeter
from hyperplane.forecasts.records import SampleTask
from hyperplane.forecasts.task_units import Key


def run_members(
    task: SampleTask, inputs: Mapping[Key, Any], sizeof: Callable[[Any], int], meter: PeakMeter
) -> tuple[dict[Key, Any], int, bool, int]:
    """Run the tasks of a step.

    Return its results, the bytes by which the peak is larger if another partition waits between two
    of the tasks, whether any result was a table, and the bytes of the largest column.
    """
    values = dict(inputs)
    has_tables, block = False, 0
    peaks: list[int | None] = []
    between = [0]
    sizes: dict[Key, int] = {}
    uses = Counter(key for _, node in task.members for key in node.dependencies)
    for key, node in task.members:
        values[key] = node({other: values[other] for other in node.dependencies})
        peaks.append(meter.split())
        has_tables = has_tables or _is_table(values[key])
        block = max(block, find_block(values[key]))
        is_last = len(peaks) == len(task.members)
        if not is_last and (uses[key] or key in task.outputs):
            sizes[key] = sizeof(values[key])
        for other in node.dependencies:
            uses[other] -= 1
            if not uses[other] and other not in task.outputs:
                sizes.pop(other, None)
                del values[other]
        if is_last:  # its results do not belong to a partition that waits
            between.append(0)
        else:
            waiting = [values[each] for each in sizes]
            held = measure_held(waiting, inputs.values()) - measure_overlaps(waiting)
            between.append(sum(sizes.values()) + held)
    results = {key: values[key] for key in task.outputs}
    return results, find_waiting(peaks, between), has_tables, block


def find_waiting(peaks: Sequence[int | None], between: Sequence[int]) -> int:
    """Return the bytes by which a peak is larger if another partition waits between two tasks.

    A thread runs each task of both partitions in turn: while one task runs, the other partition has
    the results before or after it.

    Parameters
    ----------
    peaks : sequence of int or None
        Memory during each task; None if it is not known.
    between : sequence of int
        Bytes of the results for later tasks, before the first task and after each.

    Examples
    --------
    >>> find_waiting([300, 200, 250], [0, 50, 20, 0])
    50
    >>> find_waiting([100, 400, 150], [0, 50, 200, 0])
    200
    >>> find_waiting([100, 400, 450], [0, 50, 10, 0])
    10
    """
    waiting = [max(pair) for pair in pairwise(between)]
    known = [peak for peak in peaks if peak is not None]
    if len(known) < len(peaks) or not known:
        return max(waiting, default=0)
    return max(map(sum, zip(known, waiting, strict=True))) - max(known)


def _is_table(value: Any) -> bool:
    """Whether a value consists of columns, which are blocks of different sizes."""
    return type(value).__module__.partition(".")[0] in ("pandas", "pyarrow", "polars")


def find_block(value: Any) -> int:
    """Return the bytes of the largest column of a table, which is one block of memory."""
    if not _is_table(value):
        return 0
    usage = getattr(value, "memory_usage", None)  # of dataframes and series of pandas
    if callable(usage):
        return int(np.max(usage()))
    columns = getattr(value, "columns", ())  # of tables of pyarrow
    return max((int(getattr(column, "nbytes", 0)) for column in columns), default=0)
