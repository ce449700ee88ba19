"""How a submission finds the supervisor, or starts one, and hands it what stands in no file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO

import dask.config

from hyperplane.engines.running_system import running_system
from hyperplane.errors import JobError
from hyperplane.jobs.home import jobs_folder, store_url, this_machine
from hyperplane.jobs.step_command import SubmissionEnvironment

#: Where Dask finds the configuration of the process that started it.
INHERITED_CONFIG = "DASK_INTERNAL_INHERIT_CONFIG"
#: Seconds that a new supervisor may take to answer.
START_SECONDS = 60.0
#: Times that a new one asks for the lock of the only one.
_LOCK_ATTEMPTS = 20
#: Seconds that a client may take to say what it has to say.
_REQUEST_SECONDS = 10.0
#: Bytes at the end of its log of which the last line is shown.
_LAST_LINE_BYTES = 500
#: Bytes that a socket's path may have.
_MAX_SOCKET_PATH = 100


def notify_supervisor(job_id: str = "", handed: SubmissionEnvironment | None = None) -> None:
    """Tell the supervisor that there is something to do; start one when there is none.

    Parameters
    ----------
    job_id : str
        A job, and
    handed : Handed, optional
        what is handed over for it.

    Raises
    ------
    JobError
        When none can be started; the job waits.
    """
    message = json.dumps({job_id: asdict(handed)} if handed else {}).encode()
    deadline, started = time.monotonic() + START_SECONDS, -START_SECONDS
    while not _send(message):
        if time.monotonic() > deadline:
            log = _supervisor_file(".log")
            last = f" ends with: {words}" if (words := _read_last_line(log)) else ""
            wrong = f"no supervisor of jobs answers within {START_SECONDS:g} s; its log {log}{last}"
            advice = "hyperplane job list starts another one, for the jobs that are submitted"
            raise JobError(job_id, f"{wrong}; {advice}")
        if time.monotonic() - started > START_SECONDS / 3 and supervisor_pid() is None:
            try:
                _start_supervisor()
            except OSError as error:
                wrong = f"no supervisor of jobs can be started: {error.strerror}"
                raise JobError(job_id, f"{wrong} ({error.filename})") from error
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
    """The number of the supervisor's process; None when there is none.

    Parameters
    ----------
    system : str, optional
        Whose supervisor: a boot and process namespace, as
        :func:`hyperplane.engines.running_system.running_system` gives it; this one by default.
    """
    file = _supervisor_file(".lock", system)
    try:
        with file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        with contextlib.suppress(FileNotFoundError):
            told = file.read_text()
            return int(told) if told.isdigit() else 0  # or it has just begun
    return None


@contextlib.contextmanager
def hold_supervisor_lock() -> Iterator[bool]:
    """Be the only supervisor for a block, if there is no other."""
    file = _supervisor_file(".lock")
    for _ in range(_LOCK_ATTEMPTS):  # others may look at this moment whether there is one
        with file.open("a") as lock:
            if not _lock_current_file(lock, file):
                time.sleep(0.05)
                continue
            with contextlib.suppress(OSError):  # a full disk: its number is not known then
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), str(os.getpid()).encode())
            try:
                yield True
            finally:  # each boot and each container has another file: they would be many
                file.unlink(missing_ok=True)
            return
    yield False


def _lock_current_file(lock: IO[str], file: Path) -> bool:
    """Lock an open file; whether that can be done, and it is still the one of its name."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock.fileno()), file.stat())
    return False


@contextlib.asynccontextmanager
async def listen(told: Callable[[dict[str, SubmissionEnvironment]], None]) -> AsyncIterator[None]:
    """Hear of jobs for a block."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ValueError, TypeError, AttributeError, OSError, asyncio.TimeoutError
        ):
            message = json.loads(await asyncio.wait_for(reader.read(), _REQUEST_SECONDS))
            told({job_id: SubmissionEnvironment(**handed) for job_id, handed in message.items()})
            writer.write(b"heard")
            await writer.drain()
        writer.close()

    path = _supervisor_file(".sock")
    path.unlink(missing_ok=True)
    with _socket_address(path) as address:
        server = await asyncio.start_unix_server(hear, address, limit=1 << 24)
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
    # It has the configuration of whoever submits first, whether from files or set in a program.
    environment = {
        **os.environ,
        INHERITED_CONFIG: dask.config.serialize(dask.config.config),
    }
    program = [sys.executable, "-m", "hyperplane.jobs.supervisor"]
    with _supervisor_file(".log").open("ab") as log:
        # By way of a shell that ends at once, so that it is nobody's child.
        subprocess.run(  # noqa: S603 - a list of arguments, all of them ours
            ["/bin/sh", "-c", '"$@" &', "hyperplane-supervisor", *program],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


def _supervisor_file(suffix: str, system: str | None = None) -> Path:
    """A file of the supervisor of this user, machine, running system and store.

    Two containers of one host name have one home and one store, but each has its supervisor. Their
    log is one file, so that it is found after the next start of the machine.
    """
    told = f"{this_machine()} {store_url()}"
    if suffix != ".log":
        told += f" {running_system() if system is None else system}"
    return jobs_folder() / f"supervisor-{hashlib.sha256(told.encode()).hexdigest()[:8]}{suffix}"


@contextlib.contextmanager
def _socket_address(path: Path) -> Iterator[str]:
    """The path of a socket in few enough bytes."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
