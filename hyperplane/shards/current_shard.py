"""The index of this shard and the number of shards."""

from __future__ import annotations

import operator
import os
from typing import Any, NamedTuple

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.shards import runner_environment
from hyperplane.shards.runner_environment import ArrayTask, EnvironmentValue


@check_call
class Shard(NamedTuple):
    """Index of a shard and number of shards.

    Parameters
    ----------
    idx : int
        Index, from 0.
    n : int
        Number of shards.
    """

    idx: int
    n: int


@check_call
def shard(index: int | None = None, count: int | None = None) -> Shard:
    """Return the shard of this process: its index and the number of shards.

    The index and the count are those of the first of these sources that has them: the arguments;
    the variables ``HYPERPLANE_SHARD_INDEX`` and ``HYPERPLANE_SHARD_COUNT``; the variables of the
    runner:

    - Slurm: ``SLURM_ARRAY_TASK_ID``, with ``_MIN``, ``_MAX``, ``_STEP`` and ``_COUNT``, as arrays
      may begin at any number and have steps;
    - Kubernetes: ``JOB_COMPLETION_INDEX``. Kubernetes does not set the number of shards: set
      ``JOB_COMPLETION_COUNT`` or ``HYPERPLANE_SHARD_COUNT`` in the job, or pass ``count``;
    - AWS Batch: ``AWS_BATCH_JOB_ARRAY_INDEX`` and ``AWS_BATCH_JOB_ARRAY_SIZE``;
    - Cloud Run: ``CLOUD_RUN_TASK_INDEX`` and ``CLOUD_RUN_TASK_COUNT``.

    The count of the runner belongs to the index of the runner: an index from an argument or from
    ``HYPERPLANE_SHARD_INDEX`` needs a count from one of these two. Without any of these sources
    there is one shard, ``Shard(idx=0, n=1)``.

    Parameters
    ----------
    index : int, optional
        Index of the shard, from 0.
    count : int, optional
        Number of shards.

    Returns
    -------
    Shard
        A named tuple ``(idx, n)``.

    Raises
    ------
    RequestError
        If an index has no count or a count has no index, a value is not an integer or is out of
        range, sources have different counts, or the variables of two runners differ.

    Examples
    --------
    >>> shard(2, 8)
    Shard(idx=2, n=8)
    """
    resolved, faults = resolve_shard(index, count)
    check(faults)
    return resolved


def resolve_shard(
    index: Any, count: Any, names: tuple[str, str] = ("index", "count")
) -> tuple[Shard, list[Fault]]:
    """Return the shard from arguments and environment, and the faults of both.

    ``names`` are the names of the arguments in the caller's signature. The shard is meaningless if
    there are faults.
    """
    faults: list[Fault] = []
    arguments = ArrayTask(
        _parse_argument(index, names[0], 0, faults), _parse_argument(count, names[1], 1, faults)
    )
    if faults:
        return Shard(0, 1), faults
    task, conflicts = (
        (arguments, []) if arguments.index and arguments.count else _merge_environment(arguments)
    )
    if conflicts:
        return Shard(0, 1), conflicts
    if task.index is None and (task.count is None or task.count.value == 1):
        return Shard(0, 1), []
    if task.index is None or task.count is None:
        return Shard(0, 1), [_make_incomplete_fault(task, names)]
    resolved = Shard(task.index.value, task.count.value)
    if resolved.idx >= resolved.n:
        allowed = f"0 to {resolved.n - 1}, as {task.count.source} is {resolved.n}"
        return resolved, [Fault(*task.index.fault_fields, allowed, "shard indices begin at 0")]
    return resolved, []


def _merge_environment(arguments: ArrayTask) -> tuple[ArrayTask, list[Fault]]:
    """Complete the arguments from the environment; return faults of variables and counts."""
    explicit, faults = runner_environment.read_hyperplane_variables(os.environ)
    runner = ArrayTask()
    if not (arguments.index or explicit.index):  # an explicit index overrides the runner
        runner, runner_faults = runner_environment.read_runner_variables(os.environ)
        faults += runner_faults
    counts = [task.count for task in (arguments, explicit, runner) if task.count]
    for other in counts[1:]:
        if other.value != counts[0].value:
            advice = "pass both the index and the count, or make the values equal"
            allowed = f"{counts[0].value}, the value of {counts[0].source}"
            faults.append(Fault(*other.fault_fields, allowed, advice))
    index = arguments.index or explicit.index or runner.index
    return ArrayTask(index, counts[0] if counts else None), faults


def _make_incomplete_fault(task: ArrayTask, names: tuple[str, str]) -> Fault:
    """Return the fault of an index without a count, or of a count without an index."""
    if task.index:
        allowed = "an index together with the number of shards"
        return Fault(
            *task.index.fault_fields, allowed, f"give {names[1]}, or set {runner_environment.COUNT}"
        )
    count = task.count or EnvironmentValue(1, names[1])
    allowed = "a count together with the index of this shard"
    return Fault(
        *count.fault_fields, allowed, f"give {names[0]}, or set {runner_environment.INDEX}"
    )


def _parse_argument(
    value: Any, name: str, minimum: int, faults: list[Fault]
) -> EnvironmentValue | None:
    """Return an argument with its name as the source; add a fault if it is not an integer."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if isinstance(value, bool) or number < minimum:
        faults.append(Fault(name, repr(value)[:80], f"a whole number, at least {minimum}"))
        return None
    return EnvironmentValue(number, name)
