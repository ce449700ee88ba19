"""Find, start and notify the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import dask.config

from hyperplane.core.errors import JobError
from hyperplane.jobs.store.jobs_home import jobs_folder, store_url, this_machine
from hyperplane.jobs.submission.submission_environment import SubmissionEnvironment
from hyperplane.platforms.local.file_locks import is_locked, try_lock
from hyperplane.platforms.local.process_identity import running_system
from hyperplane.platforms.local.processes import start_daemon

#: Variable with the Dask configuration of the parent process.
INHERITED_CONFIG = "DASK_INTERNAL_INHERIT_CONFIG"
#: Seconds that a new supervisor may take to respond.
START_SECONDS = 60.0
#: Attempts of a new supervisor to get the lock.
_LOCK_ATTEMPTS = 20
#: Seconds that a client may take to send its request.
_REQUEST_SECONDS = 10.0
#: Bytes at the end of the log in which its last line is searched.
_LAST_LINE_BYTES = 500
#: Maximum bytes of a socket's path.
_MAX_SOCKET_PATH = 100


def notify_supervisor(job_id: str = "", submission: SubmissionEnvironment | None = None) -> None:
    """Notify the supervisor of a change; start one if none is running.

    Parameters
    ----------
    job_id : str
        Id of a job that is being submitted or resumed.
    submission : SubmissionEnvironment, optional
        Environment of that job.

    Raises
    ------
    JobError
        If no supervisor can be started.
    """
    message = json.dumps({job_id: asdict(submission)} if submission else {}).encode()
    deadline, started = time.monotonic() + START_SECONDS, -START_SECONDS
    while not _send(message):
        if time.monotonic() > deadline:
            log = _supervisor_file(".log")
            last = f" ends with: {line}" if (line := _read_last_line(log)) else ""
            problem = (
                f"the job supervisor did not respond in {START_SECONDS:g} s; its log {log}{last}"
            )
            advice = "'hyperplane job list' starts another supervisor for submitted jobs"
            raise JobError(job_id, f"{problem}; {advice}")
        if time.monotonic() - started > START_SECONDS / 3 and supervisor_pid() is None:
            try:
                _start_supervisor()
            except OSError as error:
                problem = f"the job supervisor cannot be started: {error.strerror}"
                raise JobError(job_id, f"{problem} ({error.filename})") from error
            started = time.monotonic()
        time.sleep(0.02)


def _read_last_line(log: Path) -> str:
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _LAST_LINE_BYTES))
            lines = opened.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def supervisor_pid(system: str | None = None) -> int | None:
    """Return the process ID of the running supervisor; None if there is none.

    ``system`` is the running system of the supervisor, as ``process_identity.running_system``
    returns it; by default this one.
    """
    file = _supervisor_file(".lock", system)
    if is_locked(file):
        with contextlib.suppress(FileNotFoundError):
            text = file.read_text()
            return int(text) if text.isdigit() else 0  # 0: it has just started
    return None


@contextlib.contextmanager
def hold_supervisor_lock() -> Iterator[bool]:
    """Hold the lock of the only supervisor for a block; yield whether this was possible."""
    file = _supervisor_file(".lock")
    for _ in range(_LOCK_ATTEMPTS):  # other processes may be checking the lock
        lock = try_lock(file)
        if lock is None:
            time.sleep(0.05)
            continue
        with lock:
            with contextlib.suppress(OSError):  # on a full disk the ID remains unknown
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), str(os.getpid()).encode())
            try:
                yield True
            finally:  # else each boot and each container would leave a file
                file.unlink(missing_ok=True)
            return
    yield False


@contextlib.asynccontextmanager
async def listen(
    receive: Callable[[dict[str, SubmissionEnvironment]], None],
) -> AsyncIterator[None]:
    """Receive notifications for a block."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ValueError, TypeError, AttributeError, OSError, asyncio.TimeoutError
        ):
            message = json.loads(await asyncio.wait_for(reader.read(), _REQUEST_SECONDS))
            receive({job_id: SubmissionEnvironment(**fields) for job_id, fields in message.items()})
            writer.write(b"heard")
            await writer.drain()
        writer.close()

    path = _supervisor_file(".sock")
    path.unlink(missing_ok=True)
    with _socket_address(path) as address:
        server = await asyncio.start_unix_server(handle, address, limit=1 << 24)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.close()


def _send(message: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(START_SECONDS)
        try:
            with _socket_address(_supervisor_file(".sock")) as address:
                connection.connect(address)
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(16) == b"heard"
        except OSError:
            return False


def _start_supervisor() -> None:
    # The supervisor gets the configuration of this process, whether from files or set in a program.
    environment = {
        **os.environ,
        INHERITED_CONFIG: dask.config.serialize(dask.config.config),
    }
    program = [sys.executable, "-m", "hyperplane.jobs.supervisor"]
    with _supervisor_file(".log").open("ab") as log:
        start_daemon(program, environment, log)


def _supervisor_file(suffix: str, system: str | None = None) -> Path:
    """Return a file of the supervisor of this user, machine, running system and store.

    Two containers with one host name may share a home and a store, but each has a supervisor. They
    share the log, so that it is found again after a reboot.
    """
    key = f"{this_machine()} {store_url()}"
    if suffix != ".log":
        key += f" {running_system() if system is None else system}"
    return jobs_folder() / f"supervisor-{hashlib.sha256(key.encode()).hexdigest()[:8]}{suffix}"


@contextlib.contextmanager
def _socket_address(path: Path) -> Iterator[str]:
    """Yield the path of a socket, shortened if it exceeds the limit."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
