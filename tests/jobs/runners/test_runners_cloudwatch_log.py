"""Copies of logs from CloudWatch, with recorded answers in place of the service."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hyperplane.core.artifact_reports import LINE_MARKER
from hyperplane.jobs.execution.artifact_recording import REPORTS_SUFFIX
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.saved_reports import read_reports
from hyperplane.jobs.runners import cloudwatch_log
from hyperplane.jobs.runners.cloudwatch_log import CloudWatchLog
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
from hyperplane.platforms.aws.errors import AwsConnectionError, AwsCredentialsError, AwsRequestError
from hyperplane.platforms.request_rate import RequestRate

DENIED = AwsRequestError("Amazon answered 400 AccessDeniedException", "AccessDeniedException", 400)
THROTTLED = AwsRequestError("too many", "ThrottlingException", 400)


class LogService:
    """Pages of a log: each is a list of lines, or an error to raise once."""

    def __init__(self, *pages: Any, per_second: float = 1000.0) -> None:
        self.session, self.pages, self.requests = self, list(pages), 0
        self.log_requests = RequestRate(per_second)
        self.answered: asyncio.Event | None = None

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        if self.answered is not None:
            self.answered.set()
            await asyncio.sleep(60)
        return result

    def call(self, service: str, operation: str, **request: Any) -> Any:
        self.requests += 1
        number = int(request.get("nextToken", "0"))
        if number < len(self.pages) and isinstance(self.pages[number], Exception):
            raise self.pages.pop(number)
        if number >= len(self.pages):  # the end: the token is repeated
            return {"events": [], "nextForwardToken": str(number)}
        events = [{"message": line} for line in self.pages[number]]
        return {"events": events, "nextForwardToken": str(number + 1)}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttemptCommand:
    monkeypatch.setattr(cloudwatch_log, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(cloudwatch_log, "MAX_PAUSE_SECONDS", 0.05)
    command = AttemptCommand((), {}, ".", tmp_path / "attempt-1")
    command.file(".log").touch()
    return command


def copy(command: AttemptCommand, service: Any, patient: bool = True) -> str:
    async def work() -> None:
        log = CloudWatchLog(command, service, "/aws/batch/job")
        log.is_patient = patient
        await log.copy_rest("stream")

    asyncio.run(work())
    return command.file(".log").read_text()


def test_pages_without_lines_do_not_end_a_log(command: AttemptCommand) -> None:
    assert copy(command, LogService(["a"], [], [], ["b", "c"])) == "a\nb\nc\n"


def test_errors_at_the_end_of_a_container_do_not_shorten_its_log(command: AttemptCommand) -> None:
    errors = [AwsConnectionError("no answer"), THROTTLED, AwsCredentialsError("expired")]
    assert copy(command, LogService(["a"], *errors, ["b"])) == "a\nb\n"


def test_a_log_that_cannot_be_read_says_so(
    command: AttemptCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudwatch_log, "ERROR_SECONDS", 0.5)
    text = copy(command, LogService(*[THROTTLED] * 1000))
    assert text == "\nthe log of the container cannot be read: too many\n".replace(
        "too many", str(THROTTLED)
    )
    command.file(".log").write_text("")
    service = LogService(DENIED, ["a"])
    assert "AccessDeniedException" in copy(command, service)
    assert service.requests == 1
    service = LogService(THROTTLED, ["a"])
    copy(command, service, patient=False)  # an attempt that is cancelled
    assert service.requests == 1


def test_a_missing_permission_is_reported_once_while_the_container_runs(
    command: AttemptCommand,
) -> None:
    async def work() -> None:
        log: Any = CloudWatchLog(command, LogService(THROTTLED, DENIED, DENIED), "/aws/batch/job")
        for _ in range(3):
            await asyncio.sleep(0.01)
            await log.copy_new("stream")

    asyncio.run(work())
    assert command.file(".log").read_text().count("cannot be read") == 1


def test_a_copy_that_is_cancelled_loses_no_lines(command: AttemptCommand) -> None:
    async def work() -> None:
        service: Any = LogService(["a"])
        log = CloudWatchLog(command, service, "/aws/batch/job")
        service.answered = asyncio.Event()
        task = asyncio.create_task(log.copy_new("stream"))
        await service.answered.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        service.answered = None
        await log.copy_rest("stream")

    asyncio.run(work())
    assert command.file(".log").read_text() == "a\n"


def test_requests_of_many_attempts_are_limited_and_do_not_delay_them(tmp_path: Path) -> None:
    async def work() -> tuple[int, float]:
        service: Any = LogService(per_second=10.0)
        logs = []
        for number in range(50):
            command = AttemptCommand((), {}, ".", tmp_path / f"attempt-{number}")
            command.file(".log").touch()
            logs.append(CloudWatchLog(command, service, "/aws/batch/job"))
        started = time.monotonic()
        await asyncio.gather(*(log.copy_new("stream") for log in logs))
        return service.requests, time.monotonic() - started

    requests, seconds = asyncio.run(work())
    assert requests <= 10
    assert seconds < 4


def test_a_missing_notebook_is_noticed(command: AttemptCommand) -> None:
    files = RemoteAttemptFiles(command, "AWS Batch")
    assert files.extract_notebook()
    command.file(".notebook").write_text("out.ipynb")
    command.file(".log").write_text("no notebook\n")
    assert not files.extract_notebook()


@pytest.mark.process
def test_logs_do_not_depend_on_the_encoding_of_the_locale(tmp_path: Path) -> None:
    program = """
import asyncio, locale, sys
from pathlib import Path
assert locale.getpreferredencoding(False) != "UTF-8", "the locale has another encoding"
sys.path.insert(0, sys.argv[2])
from test_runners_cloudwatch_log import LogService
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.cloudwatch_log import CloudWatchLog
from hyperplane.jobs.runners.remote_attempt_files import RemoteAttemptFiles
command = AttemptCommand((), {}, ".", Path(sys.argv[1], "attempt-1"))
command.file(".log").touch()
log = CloudWatchLog(command, LogService(["90 \\N{DEGREE SIGN}"]), "/aws/batch/job")
asyncio.run(log.copy_new("stream"))
RemoteAttemptFiles(command, "AWS Batch").append_line("\\N{SNOWMAN} \\udc80")
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = [str(tmp_path), str(Path(__file__).parent)]
    subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True)
    text = (tmp_path / "attempt-1.log").read_text(encoding="utf-8")
    assert text.split() == ["90", "\N{DEGREE SIGN}", "\N{SNOWMAN}", "?"]


def test_reports_of_saved_objects_are_moved_from_the_log_to_their_file(
    command: AttemptCommand,
) -> None:
    files = RemoteAttemptFiles(command, "AWS Batch")
    url = "s3://bucket/a.parquet"
    reports = [
        {"kind": "dataframe", "created": 1.0, "url": url, "format": "parquet", "rows": 3},
        {"kind": "bytes", "created": 2.0, "url": "/etc/passwd", "local": True},
        {"kind": "output", "created": 3.0, "size": 2, "digest": "ab"},
    ]
    lines = [f"\n{LINE_MARKER}{json.dumps(each)}\n" for each in reports]
    text = f"1\n{lines[0]}2\n{lines[1]}\n{LINE_MARKER}no JSON\n{lines[2]}3\n"
    for _ in range(2):  # another supervisor copies the whole log again
        command.file(".log").write_text(text)
        files.extract_reports()
        files.extract_reports()
        assert command.file(".log").read_text() == "1\n2\n3\n"
        found = list(read_reports(command.file(REPORTS_SUFFIX)))
        assert [(each["kind"], each["url"]) for each in found] == [
            ("dataframe", url), ("output", "")
        ]  # fmt: skip
