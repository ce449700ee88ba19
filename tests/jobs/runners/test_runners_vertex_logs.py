"""Logs of jobs on Vertex AI: each line is read once, whatever time it has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from hyperplane.jobs.runners.gcp import log_reader
from hyperplane.jobs.runners.gcp.log_reader import LogReader
from hyperplane.platforms.gcp.errors import GcpConnectionError, GcpError
from hyperplane.platforms.gcp.task_log import VERTEX_LOGS, LogEntry

START = 1_800_000_000.0


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Session:
    """Cloud Logging with the log of one job, which receives a line every minute."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.page = 1000
        #: Number of requests, and of those that fail.
        self.count, self.failing = 0, set[int]()

    def project(self) -> str:
        return "flights"

    def add(self, line: str, shift: float = 0.0) -> None:
        received = START + 60 * len(self.entries)
        self.entries.append(
            {
                "resource": {"labels": {"job_id": "7", "task_name": "workerpool0-0"}},
                "insertId": line,
                "textPayload": line,
                "timestamp": format_time(received - 1 + shift),
                "receiveTimestamp": format_time(received),
            }
        )

    def call(self, service: str, method: str, body: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        if self.count in self.failing:
            raise GcpConnectionError("no answer")
        match = re.search(r'(\w+)>="([^"]+)"', body["filter"])
        field, since = match.groups() if match else ("timestamp", "")
        found = sorted(
            (entry for entry in self.entries if entry[field] >= since),
            key=lambda entry: str(entry["timestamp"]),
        )
        begin = int(body.get("pageToken") or 0)
        answer: dict[str, Any] = {"entries": found[begin : begin + self.page]}
        if found[begin + self.page :]:
            answer["nextPageToken"] = str(begin + self.page)
        return answer


class Client:
    """Runs requests at once."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "READ_SECONDS", 0.01)
    monkeypatch.setattr(log_reader, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(log_reader, "REQUEST_RATE", 1000.0)


@pytest.fixture
def session() -> Session:
    return Session()


def read(
    session: Session,
    steps: Sequence[Callable[[], None]],
    write: Callable[[Sequence[LogEntry]], None],
) -> GcpError | None:
    """Follow a log with some steps, each before a reading."""

    async def follow() -> GcpError | None:
        reader = LogReader(cast("Any", Client()), cast("Any", session), VERTEX_LOGS)
        reader.follow("7", write)
        for step in steps:
            step()
            read = session.count
            while session.count < read + 2:
                await asyncio.sleep(0.01)
        try:
            return await reader.finish("7", lambda: True)
        finally:
            reader.close()

    return asyncio.run(follow())


@pytest.mark.parametrize("shift", [0, 86_000, -86_000])
def test_a_line_with_another_time_hides_no_other(session: Session, shift: float) -> None:
    lines: list[str] = []
    steps = [
        lambda: session.add("begin"),
        lambda: session.add("structured", shift),
        lambda: session.add("reason of the failure"),
    ]
    assert read(session, steps, lambda new: lines.extend(entry.line for entry in new)) is None
    assert lines == ["begin", "structured", "reason of the failure"]


def test_a_page_that_fails_is_read_again(session: Session) -> None:
    lines: list[str] = []
    for number in range(6):
        session.add(f"line {number}", shift=-86_000 if number == 5 else 0)
    session.page, session.failing = 2, {2}  # the last line is on the first page
    read(session, [lambda: None], lambda new: lines.extend(entry.line for entry in new))
    assert sorted(lines) == [f"line {number}" for number in range(6)]


def test_lines_that_cannot_be_written_are_read_again(session: Session) -> None:
    lines: list[str] = []
    failures = [OSError("No space left on device")]

    def write(new: Sequence[LogEntry]) -> None:
        if failures:
            raise failures.pop()
        lines.extend(entry.line for entry in new)

    for number in range(4):
        session.add(f"line {number}")
    session.page = 2
    read(session, [lambda: None], write)
    assert sorted(lines) == [f"line {number}" for number in range(4)]


def test_only_the_last_entries_are_read_again(session: Session) -> None:
    lines: list[str] = []
    steps = [lambda: session.add("first"), lambda: session.add("second")]
    filters: list[str] = []
    call = session.call

    def observe(service: str, method: str, body: dict[str, Any]) -> dict[str, Any]:
        filters.append(body["filter"])
        return call(service, method, body)

    session.call = observe  # type: ignore[method-assign]
    read(session, steps, lambda new: lines.extend(entry.line for entry in new))
    assert filters[-1].endswith(f'receiveTimestamp>="{format_time(START + 30)}"))')
    assert lines == ["first", "second"]


def test_an_unexpected_error_is_raised(session: Session) -> None:
    def write(entries: Sequence[LogEntry]) -> None:
        raise RuntimeError("not expected")

    session.add("line")
    with pytest.raises(RuntimeError, match="not expected"):
        read(session, [], write)
