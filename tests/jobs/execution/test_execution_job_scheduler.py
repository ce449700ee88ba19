"""Runners that a job scheduler closes, and how many chunks of a step it runs at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from hyperplane.jobs import Step
from hyperplane.jobs.execution.job_scheduler import JobScheduler
from hyperplane.jobs.execution.step_command import list_units
from hyperplane.jobs.store.job_records import DONE


class PlainRunner:
    """A runner of another package without connections."""


class BlockingRunner(PlainRunner):
    """One that closes its connections in a function."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


class AsyncRunner(PlainRunner):
    """One that closes them in a coroutine."""

    closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


@pytest.mark.parametrize("kind", [PlainRunner, BlockingRunner, AsyncRunner])
def test_the_runner_of_a_job_is_closed(kind: Any) -> None:
    scheduler, runner = JobScheduler.__new__(JobScheduler), kind()
    executor: Any = SimpleNamespace(runner=runner, end_running=mock.AsyncMock())
    scheduler._executor = executor
    asyncio.run(scheduler.end_processes())
    executor.end_running.assert_awaited_once_with()
    assert kind is PlainRunner or runner.closed == 1


def test_as_many_chunks_run_at_once_as_the_sizes_allow_that_were_chosen_meanwhile() -> None:
    step = Step(name="a", kind="command", argv=("true",), chunks=7, depends_on=())
    running: list[int] = []
    most: list[int] = []
    allowed = [1]

    async def run_attempt(step: Step, unit: Any) -> Any:
        running.append(unit.chunk)
        most.append(len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        allowed[0] = 3  # a forecast before the first attempt, or a retry, has changed the sizes
        running.remove(unit.chunk)
        return SimpleNamespace(status=DONE)

    executor: Any = SimpleNamespace(
        steps=(step,),
        pending_units=list_units,
        sizes=SimpleNamespace(resize=lambda step: step),
        runner=SimpleNamespace(chunks_at_once=lambda capacity, step, usual: allowed[0]),
        recent_failures=lambda unit: ([], []),
        skipped_steps=set(),
        run_attempt=run_attempt,
    )
    scheduler: Any = JobScheduler.__new__(JobScheduler)
    scheduler._settings = SimpleNamespace(chunks_at_once=None)
    scheduler._capacity, scheduler._try_count = None, 0
    assert asyncio.run(scheduler._run_steps(executor)) == []
    assert most[0] == 1
    assert max(most) == 3
