"""A full disk: jobs wait for room, can be cancelled, and repeat nothing."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import io
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask.config
import psutil
import pytest
import sqlalchemy as sql
from job_cases import bash, until_exists
from scale import FULL, scaled

from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.errors import JobError, JobStoreError
from hyperplane.jobs import JobHandle, Pipeline, list_jobs, step_wrapper, supervisor_client
from hyperplane.jobs.execution import job_folder
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store import backoff
from hyperplane.jobs.store.backoff import Backoff
from hyperplane.jobs.store.job_records import CANCELLED, DONE
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-c", "from hyperplane.cli import main; main()"]


class FullDisk:
    """Simulates a full disk of the jobs folder during some writes.

    Parameters
    ----------
    patch : MonkeyPatch
        Patches the functions that write files.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.first, self.times, self.writes = 0, 0, 0
        self._thread = threading.get_ident()
        self._patch(patch, os, "open", lambda path, flags, *_: flags & os.O_CREAT)
        self._patch(patch, os, "mkdir", lambda *_: True)
        for module in (builtins, io):
            self._patch(patch, module, "open", lambda path, mode="r", *_: set(mode) & set("wxa"))

    def _patch(self, patch, module, name, writes):
        real = getattr(module, name)

        def call(path, *arguments, **options):
            inside = isinstance(path, (str, os.PathLike)) and str(path).startswith(str(self.place))
            if inside and writes(path, *arguments):
                self.write(OSError(errno.ENOSPC, "No space left on device", str(path)))
            return real(path, *arguments, **options)

        patch.setattr(module, name, call)

    place = "/nowhere"

    def begin(self, first: int, times: int) -> None:
        """Fail ``times`` writes, beginning with the one numbered ``first``."""
        self.place, self.first, self.times, self.writes = (
            str(jobs_folder() / "jobs"),
            first,
            times,
            0,
        )

    def write(self, error: Exception) -> None:
        """Count a write; fail if the disk is full."""
        if threading.get_ident() == self._thread:
            self.writes += 1
            if 0 < self.first <= self.writes < self.first + self.times:
                raise error

    def statement(self, connection, cursor, statement, *_):
        """Count a write for each statement of the store that changes it."""
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            self.write(sqlite3.OperationalError("database or disk is full"))


@pytest.fixture
def disk(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(backoff, "FIRST_DELAY", 0.01)
    full_disk = FullDisk(monkeypatch)
    engine = open_store()._engine
    sql.event.listen(engine, "before_cursor_execute", full_disk.statement)
    yield full_disk
    sql.event.remove(engine, "before_cursor_execute", full_disk.statement)


def two_step_job(folder: Path):
    steps = [
        bash("one", f"echo x >> {folder}/one; echo said"),
        bash("two", f"echo x >> {folder}/two", depends_on=("one",)),
    ]
    return new_job(Pipeline.from_steps("p", steps))


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_delays_a_job_and_repeats_nothing(disk, tmp_path, caplog):
    def run(first: int, times: int) -> int:
        folder = tmp_path / f"{first}"
        folder.mkdir()
        job = two_step_job(folder)
        disk.begin(first, times)
        try:
            ended = asyncio.run(run_in_foreground(open_store(), job, {}, quiet=True))
        except (JobError, JobStoreError) as error:
            # Before the job is stored, a full disk is an error at once.
            assert not (folder / "one").exists(), error  # noqa: PT017
            assert open_store().get_many([job.id]) == {}
            return disk.writes
        assert ended.status == DONE, ended.reason
        assert (folder / "one").read_text() == (folder / "two").read_text() == "x\n"
        attempts = open_store().attempts(job.id)
        assert [(attempt.status, attempt.number) for attempt in attempts] == [(DONE, 1), (DONE, 1)]
        return disk.writes

    writes = run(0, 0)
    assert writes > 15
    for first in range(1, writes + 1, scaled(3, 1)):
        run(first, 3)
    messages = [record.getMessage() for record in caplog.records]
    waits = [message for message in messages if message.startswith("waiting: ")]
    assert sum("database or disk is full" in message for message in waits) > 2
    assert sum("No space left on device" in message for message in waits) > 2
    # Three writes failed each time, and one line was logged.
    assert len(waits) <= writes / scaled(3, 1)


def test_backoff_announces_once_and_doubles_its_delay():
    announcements, now = [], [0.0]
    full = OSError(errno.ENOSPC, "No space left on device", "/home/ada/jobs")
    disk_backoff = Backoff(announcements.append, lambda: now[0])
    delays = []
    for _ in range(20):
        delays.append(disk_backoff.record_failure(full))
        assert disk_backoff.record_failure(full) == delays[-1]  # in another job at the same time
        now[0] += delays[-1]
    assert delays[:3] == [
        backoff.FIRST_DELAY,
        2 * backoff.FIRST_DELAY,
        4 * backoff.FIRST_DELAY,
    ]
    assert delays[-1] == backoff.MAX_DELAY
    assert announcements == [
        "waiting: /home/ada/jobs: No space left on device: free space on that disk; "
        "the job then continues"
    ]
    disk_backoff.record_success()
    assert announcements[1:] == ["resuming"]
    assert disk_backoff.record_failure(full) == backoff.FIRST_DELAY


@pytest.fixture
def small_disk():
    """A disk of 4 MB, with the folder of jobs on it."""
    folder = Path(tempfile.mkdtemp(prefix="hp-full-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    if not is_mounted:
        folder.rmdir()
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def fill(disk: Path) -> None:
    with (disk / "filler").open("ab", 0) as filler:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.exists()


def start_job(disk: Path, folder: Path, monkeypatch) -> subprocess.Popen[str]:
    """Start a job in the foreground, and fill its disk before the first step ends."""
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", str(disk / "home"))
    (folder / "one.sh").write_text(
        f"echo x >> {folder}/one; touch {folder}/on\n"
        f"until [ -e {folder}/go ]; do sleep 0.05; done; echo said\n"
    )
    process = subprocess.Popen(
        [*COMMAND, "job", "run", str(folder / "one.sh")], text=True, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(folder / "on")
    fill(disk)
    (folder / "go").touch()
    return process


def read_first_message(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.mark.slow
def test_a_job_on_a_full_disk_continues_when_there_is_space(small_disk, tmp_path, monkeypatch):
    process = start_job(small_disk, tmp_path, monkeypatch)
    assert read_first_message(process).startswith("waiting: job store ")
    time.sleep(1)  # one retry fails, too
    (small_disk / "filler").unlink()
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr.count("disk is full")) == (0, 0)
    assert (tmp_path / "one").read_text() == "x\n"


@pytest.mark.skipif(not FULL, reason="other tests fill the disk, and send signals: at full scale")
@pytest.mark.parametrize("number", scaled([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]))
def test_the_first_signal_ends_a_job_on_a_full_disk(small_disk, tmp_path, monkeypatch, number):
    process = start_job(small_disk, tmp_path, monkeypatch)
    assert read_first_message(process).startswith("waiting: job store ")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "is cancelled, but its status could not be stored" in stderr
    (small_disk / "filler").unlink()
    # The next query starts a supervisor, which knows that the job was cancelled.
    with dask.config.set({"hyperplane.jobs.home": str(small_disk / "home")}):
        (job,) = list_jobs()
        assert JobHandle(job.id).wait(120) == CANCELLED
        assert JobHandle(job.id).job.reason == "cancelled while the disk of its folder was full"
        (attempt,) = JobHandle(job.id).attempts
        assert attempt.status == DONE  # it had ended by then
        # It may have ended by itself, with nothing more to do.
        if pid := supervisor_client.supervisor_pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while supervisor_client.supervisor_pid() is not None:
            time.sleep(0.02)
        open_store().close()
    assert (tmp_path / "one").read_text() == "x\n"


def test_a_job_is_marked_as_cancelled_until_the_marker_is_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = two_step_job(tmp_path)
    job.folder_path.mkdir(parents=True)
    (job.folder_path / "lock").touch()
    assert not job_folder.is_marked_cancelled(job)
    job_folder.mark_cancelled(job)
    assert job_folder.is_marked_cancelled(job)
    job_folder.remove_cancel_marker(job)
    assert not job_folder.is_marked_cancelled(job)


def run_wrapper(prefix: Path, *argv: str, limit: int = 0) -> bytes:
    """The log of a program that the wrapper has run."""
    log = prefix.with_name(f"{prefix.name}.log")
    with log.open("wb") as output:
        subprocess.run(
            [sys.executable, "-I", "-S", step_wrapper.__file__, str(prefix), *argv],
            stdout=output, stderr=output, check=False,
            env={**os.environ, step_wrapper.LOG_LIMIT_VARIABLE: str(limit)},
        )  # fmt: skip
    return log.read_bytes()


def test_a_log_keeps_its_beginning_and_its_end(tmp_path):
    text = "for i in $(seq 100000); do echo line $i; done"
    log = run_wrapper(tmp_path / "attempt-1", "bash", "-c", text, limit=100_000)
    assert 50_000 <= len(log) <= 100_000 + (1 << 16)
    head, _, rest = log.partition(b"\n[hyperplane: ")
    number, _, tail = rest.partition(b" bytes omitted: hyperplane.jobs.log_limit]\n")
    first = head.decode().splitlines()
    last = tail.decode().splitlines()
    assert first == [f"line {i}" for i in range(1, len(first) + 1)]
    assert last == [f"line {i}" for i in range(100_001 - len(last), 100_001)]
    whole = sum(len(f"line {i}\n") for i in range(1, 100_001))
    # The line end before the notice belongs to it.
    assert len(head) + int(number) + len(tail) == whole
    assert (tmp_path / "attempt-1.exit").read_text().strip() == "0"


def test_without_a_limit_a_log_is_whole(tmp_path):
    text = "head -c 3000000 /dev/zero; exit 7"
    assert run_wrapper(tmp_path / "attempt-1", "bash", "-c", text) == bytes(3_000_000)
    assert int((tmp_path / "attempt-1.exit").read_text()) == 7


def is_idle(pid: int) -> bool:
    """Whether a process takes no processor time for a while."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    time.sleep(0.5)
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system < 0.02


def test_the_wrapper_is_idle_after_its_program_closes_the_output(tmp_path):
    closed, go = tmp_path / "closed", tmp_path / "go"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", step_wrapper.__file__, str(tmp_path / "attempt-1"),
         "bash", "-c", f"exec >&- 2>&-; touch {closed}; {until_exists(go)}"],
    )  # fmt: skip
    wait_for(closed)
    # Perhaps not the first time: it may still get the end of the output.
    idle = any(is_idle(process.pid) for _ in range(5))
    go.touch()
    assert (process.wait(120), idle) == (0, True)


def test_a_program_that_outlives_the_step_still_writes_to_its_log(tmp_path):
    go = tmp_path / "go"
    text = f"({until_exists(go)}; echo late; touch {tmp_path}/ended) & setsid sleep 0; echo early"
    assert run_wrapper(tmp_path / "attempt-2", "setsid", "-w", "bash", "-c", text) == b"early\n"
    go.touch()
    wait_for(tmp_path / "ended")
    deadline = time.monotonic() + 120
    while (log := (tmp_path / "attempt-2.log").read_bytes()) != b"early\nlate\n":
        assert time.monotonic() < deadline, log
        time.sleep(0.02)


def test_an_exit_code_is_recorded_on_a_full_disk(small_disk):
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", step_wrapper.__file__, str(small_disk / "attempt-1"),
         "bash", "-c", f"until [ -e {small_disk}/filled ]; do sleep 0.02; done; exit 3"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(small_disk / "attempt-1.exit.draft")
    wait_for(small_disk / "attempt-1.pid")
    (small_disk / "filled.draft").touch()
    fill(small_disk)
    (small_disk / "filled.draft").rename(small_disk / "filled")
    assert process.wait(120) == 3
    assert int((small_disk / "attempt-1.exit").read_text()) == 3


def test_a_step_does_not_start_without_space_for_its_exit_code(small_disk):
    fill(small_disk)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", step_wrapper.__file__, str(small_disk / "attempt-1"),
         "touch", str(small_disk / "begun")],
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    assert not (small_disk / "begun").exists()
    (small_disk / "filler").unlink()
    assert process.wait(120) == 0
    assert (small_disk / "begun").exists()
