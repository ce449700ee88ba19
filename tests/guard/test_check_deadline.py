"""Checks that are stopped: by Ctrl-C, by another exception, and because the time is over."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyperplane.clusters.dask.ssh import preflight as ssh_preflight
from hyperplane.guard.preflight import run_checks as run_checks_module
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check, run_checks

#: Seconds within which an ended check is noticed on a busy machine.
PATIENCE = 60


class SilentService:
    """A service that does not answer, and its open connection."""

    def __init__(self) -> None:
        self.opened, self.closed = threading.Event(), threading.Event()

    async def ask(self) -> list[PreflightFinding]:
        self.opened.set()
        try:
            await asyncio.sleep(10 * PATIENCE)
        finally:
            await asyncio.sleep(0)  # closing takes time, too
            self.closed.set()
        return []

    def check(self, deadline: CheckDeadline) -> list[PreflightFinding]:
        return deadline.run(self.ask())


def _threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "preflight" in each.name]


def test_ctrl_c_ends_all_checks_before_it_is_raised() -> None:
    service, second = SilentService(), SilentService()

    def press(deadline: CheckDeadline) -> Iterator[PreflightFinding]:
        del deadline
        assert service.opened.wait(PATIENCE)
        assert second.opened.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return iter(())

    checks = [
        Check("silent", service.check),
        Check("second", second.check),
        Check("Ctrl-C", press),
    ]
    with pytest.raises(KeyboardInterrupt):
        run_checks(checks, limit=10 * PATIENCE)
    assert service.closed.is_set()
    assert second.closed.is_set()
    assert _threads() == []


def test_a_check_without_an_answer_is_ended_at_the_limit() -> None:
    service = SilentService()
    [finding] = run_checks([Check("silent", service.check)], limit=1.0)
    assert (finding.state, finding.subject) == ("unchecked", "silent")
    assert service.closed.wait(PATIENCE)
    for thread in _threads():
        thread.join(PATIENCE)
    assert _threads() == []


def test_what_a_stopped_check_begins_is_cancelled() -> None:
    service, deadline = SilentService(), CheckDeadline(0.0)
    deadline.stop()
    with pytest.raises(asyncio.CancelledError):
        deadline.run(service.ask())
    deadline.stop()


def test_a_silent_name_server_delays_no_other_result(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()
    resolve = socket.getaddrinfo

    def silent(host: str, *arguments: Any) -> Any:
        if host != "silent.example":
            return resolve(host, *arguments)
        asked.set()
        answers.wait(PATIENCE)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    async def connect(host: str, port: int) -> str:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return host

    async def ask(port: int) -> list[Any]:
        silent = asyncio.ensure_future(connect("silent.example", port))
        found = await connect("localhost", port)
        while not asked.is_set():
            await asyncio.sleep(0.01)
        silent.cancel()
        return [found, *await asyncio.gather(silent, return_exceptions=True)]

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            found, error = CheckDeadline(0.0).run(ask(server.getsockname()[1]))
            assert not answers.is_set()
            pending = [each for each in threading.enumerate() if "resolver" in each.name]
            assert all(each.daemon for each in pending)
            assert pending
        finally:
            answers.set()
    assert found == "localhost"
    assert isinstance(error, asyncio.CancelledError)
    for thread in pending:
        thread.join(PATIENCE)


def test_a_host_without_an_address_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(socket.gaierror, match="unknown"):
        CheckDeadline(0.0).run(asyncio.open_connection("nowhere.example", 80))


def test_closing_connections_takes_less_than_is_left_for_results() -> None:
    assert ssh_preflight._CLOSE_SECONDS < run_checks_module._MARGIN_SECONDS - 0.2


def test_a_file_of_a_check_without_an_answer_is_removed(tmp_path: Path) -> None:
    request = PreflightRequest(output_folder=str(tmp_path))
    left = request.for_environment(None)
    _, marker = left.__enter__()
    assert [str(each) for each in tmp_path.iterdir()] == [marker]
    request.remove_marker()
    assert list(tmp_path.iterdir()) == []
    left.__exit__(None, None, None)


def test_a_result_and_an_error_are_passed_on() -> None:
    async def fail() -> None:
        raise OSError("no route")

    async def answer() -> int:
        return 3

    deadline = CheckDeadline(0.0)
    assert deadline.remaining > 0
    assert deadline.run(answer()) == 3
    with pytest.raises(OSError, match="no route"):
        deadline.run(fail())
