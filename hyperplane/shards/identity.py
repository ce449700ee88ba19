"""Which share of the work is ours."""

from __future__ import annotations

import operator
import os
from typing import Any, NamedTuple

from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.shards import runner_environment
from hyperplane.shards.runner_environment import ArrayTask, EnvironmentValue


@check_call
class Shard(NamedTuple):
    """One of equal shares of some work.

    Parameters
    ----------
    idx : int
        Its number, from 0.
    n : int
        How many there are.
    """

    idx: int
    n: int


@check_call
def shard(index: int | None = None, count: int | None = None) -> Shard:
    """Which shard this process is, and of how many.

    The first of these that says it: the arguments; the variables ``HYPERPLANE_SHARD_INDEX`` and
    ``HYPERPLANE_SHARD_COUNT``; what the runner sets, which is one of:

    - Slurm: ``SLURM_ARRAY_TASK_ID``, with ``_MIN``, ``_MAX``, ``_STEP`` and ``_COUNT``: arrays may
      begin at any number and go in steps;
    - Kubernetes: ``JOB_COMPLETION_INDEX``. It does not say how many there are: set
      ``JOB_COMPLETION_COUNT`` or ``HYPERPLANE_SHARD_COUNT`` in the job, or give ``count``;
    - AWS Batch: ``AWS_BATCH_JOB_ARRAY_INDEX`` and ``AWS_BATCH_JOB_ARRAY_SIZE``;
    - Cloud Run: ``CLOUD_RUN_TASK_INDEX`` and ``CLOUD_RUN_TASK_COUNT``.

    Where nothing says anything, there is one shard.

    Parameters
    ----------
    index : int, optional
        Its number, from 0.
    count : int, optional
        How many there are.

    Returns
    -------
    Shard
        A named tuple ``(idx, n)``.

    Raises
    ------
    RequestError
        With everything that is wrong: half of a pair, what is no number or out of range, sources
        that contradict each other.

    Examples
    --------
    >>> shard(2, 8)
    Shard(idx=2, n=8)
    """
    made, faults = resolve_shard(index, count)
    check(faults)
    return made


def resolve_shard(
    index: Any, count: Any, names: tuple[str, str] = ("index", "count")
) -> tuple[Shard, list[Fault]]:
    """The shard of two arguments and the environment, and what is wrong with them.

    Parameters
    ----------
    index, count : int, optional
        The arguments.
    names : tuple of str
        What the caller's function calls them.

    Returns
    -------
    Shard, list of Fault
        The shard means nothing where there are faults.
    """
    faults: list[Fault] = []
    given = ArrayTask(
        _parse_argument(index, names[0], 0, faults), _parse_argument(count, names[1], 1, faults)
    )
    if faults:
        return Shard(0, 1), faults
    told, wrong = (given, []) if given.index and given.count else _merge_environment(given)
    if wrong:
        return Shard(0, 1), wrong
    if told.index is None and (told.count is None or told.count.value == 1):
        return Shard(0, 1), []
    if told.index is None or told.count is None:
        return Shard(0, 1), [_incomplete_fault(told, names)]
    made = Shard(told.index.value, told.count.value)
    if made.idx >= made.n:
        allowed = f"0 to {made.n - 1}, as {told.count.source} is {made.n}"
        return made, [Fault(*told.index.fault_fields, allowed, "shards are numbered from 0")]
    return made, []


def _merge_environment(given: ArrayTask) -> tuple[ArrayTask, list[Fault]]:
    """What is not given, by the environment; nothing may contradict what is."""
    ours, faults = runner_environment.read_own_variables(os.environ)
    runner = ArrayTask()
    if not (given.index or ours.index):  # who gives a number of his own does not ask the runner
        runner, wrong = runner_environment.read_runner_variables(os.environ)
        faults += wrong
    counts = [task.count for task in (given, ours, runner) if task.count]
    for other in counts[1:]:
        if other.value != counts[0].value:
            advice = "give both the number and the count, or let them agree"
            allowed = f"{counts[0].value}, as {counts[0].source} says"
            faults.append(Fault(*other.fault_fields, allowed, advice))
    index = given.index or ours.index or runner.index
    return ArrayTask(index, counts[0] if counts else None), faults


def _incomplete_fault(told: ArrayTask, names: tuple[str, str]) -> Fault:
    if told.index:
        allowed = "a number together with how many shards there are"
        return Fault(
            *told.index.fault_fields, allowed, f"give {names[1]}, or set {runner_environment.COUNT}"
        )
    count = told.count or EnvironmentValue(1, names[1])
    allowed = "a count together with the number of this shard"
    return Fault(
        *count.fault_fields, allowed, f"give {names[0]}, or set {runner_environment.INDEX}"
    )


def _parse_argument(
    value: Any, name: str, least: int, faults: list[Fault]
) -> EnvironmentValue | None:
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        faults.append(Fault(name, repr(value)[:80], f"a whole number, at least {least}"))
        return None
    return EnvironmentValue(number, name)


def row_range(shard: Shard, total: int) -> tuple[int, int]:
    """The first of a shard's things and the one after the last, as ``numpy.array_split`` has it.

    Examples
    --------
    >>> [rows_of(Shard(idx, 3), 10) for idx in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    size, longer = divmod(total, shard.n)
    first = shard.idx * size + min(shard.idx, longer)
    return first, first + size + (shard.idx < longer)
