"""The end of a run: neither the scheduler nor the disk can prevent that the cluster is closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.clusters.dask import run_usage
from hyperplane.clusters.dask.run_usage import UsageCopy, finish_record


class FakeRecorder:
    """Recorder that remembers the figures; it waits, or raises an error, if the test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.plan = SimpleNamespace(name="flights")
        self.error, self.may_write = error, threading.Event()
        self.may_write.set()
        self.written: list[Any] = []

    def finish(self, usage: Any, reason: str) -> str:
        self.may_write.wait(60)
        if self.error is not None:
            raise self.error
        self.written.append((usage, reason))
        return ""


class FailingConnection:
    """Connection to a scheduler that answers with an error of the programmer."""

    async def hyperplane_usage(self) -> Any:
        raise ZeroDivisionError


def finish(recorder: Any, connection: Any = None) -> None:
    asyncio.run(finish_record(recorder, connection, "closed"))


def test_an_error_of_the_scheduler_leaves_a_record_without_figures() -> None:
    recorder = FakeRecorder()
    finish(recorder, FailingConnection())
    assert recorder.written == [(None, "closed")]


def test_a_copy_is_recorded_if_the_scheduler_has_ended() -> None:
    class Connection:
        async def hyperplane_usage(self) -> Any:
            return {"workers": [], "tasks": ["add"], "ending": "its budget is used up"}

    class Cluster:
        scheduler_comm: Any = Connection()

    cluster = Cluster()

    async def run() -> None:
        copy = UsageCopy(cluster)
        await copy._update()
        cluster.scheduler_comm = FailingConnection()
        await copy._update()  # keeps the former one
        await finish_record(recorder, FailingConnection(), "it was deleted", copy=copy)

    recorder: Any = FakeRecorder()
    asyncio.run(run())
    [(usage, reason)] = recorder.written
    assert (usage["tasks"], reason) == (["add"], "its budget is used up")


def test_an_error_of_the_recorder_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    finish(FakeRecorder(TypeError("no")))
    assert "the run of flights may have no record" in caplog.text


def test_a_disk_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_usage, "WRITE_TIMEOUT", 0.05)
    recorder = FakeRecorder()
    recorder.may_write.clear()
    with caplog.at_level(logging.WARNING):
        finish(recorder)  # returns, although nothing is written
    assert recorder.written == []
    assert "the run of flights may have no record" in caplog.text
    (thread,) = (each for each in threading.enumerate() if each.name == "hyperplane-record")
    assert thread.daemon, "the program does not wait for it when it exits"
    recorder.may_write.set()
    thread.join(60)
    assert recorder.written == [(None, "closed")]
