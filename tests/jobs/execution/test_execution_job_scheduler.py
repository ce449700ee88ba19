"""Runners that a job scheduler closes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from hyperplane.jobs.execution.job_scheduler import JobScheduler


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
