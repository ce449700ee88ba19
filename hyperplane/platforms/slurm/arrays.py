"""Job arrays: ids of their tasks, and the indices of sbatch and scancel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def task_id(array_id: str, index: str) -> str:
    """Return the id of a task of an array, such as ``42_7``."""
    return f"{array_id}_{index}"


def is_task(job_id: str) -> bool:
    """Return whether an id is that of a task, not of a single job or a whole array."""
    return "_" in job_id


def array_id(job_id: str) -> str:
    """Return the id of a task's array; the id of a single job is returned unchanged."""
    return job_id.partition("_")[0]


def group_tasks(job_ids: Iterable[str]) -> list[str]:
    """Group the tasks of each array, as scancel processes them fastest.

    Examples
    --------
    >>> group_tasks(["7", "8_0", "8_12", "9_3"])
    ['7', '8_[0,12]', '9_[3]']
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for job_id in job_ids:
        array, _, index = job_id.partition("_")
        tasks[array] += [index] if index else []
    return [
        f"{array}_[{','.join(indices)}]" if indices else array for array, indices in tasks.items()
    ]


def format_indices(indices: Iterable[int]) -> str:
    """Return the value of ``--array`` for a list of indices."""
    return ",".join(map(str, indices))


def format_range(count: int, max_parallel: int | None = None) -> str:
    """Return the value of ``--array`` for the indices from 0, with a limit of concurrent tasks.

    Examples
    --------
    >>> format_range(10), format_range(10, 4)
    ('0-9', '0-9%4')
    """
    return f"0-{count - 1}" + ("" if max_parallel is None else f"%{max_parallel}")
