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
from hyperplane.jobs.home import home, store_url, this_machine
from hyperplane.jobs.step_command import Handed

#: Where Dask finds the configuration of the process that started it.
INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
#: Seconds that a new supervisor may take to answer.
PATIENCE = 60.0
#: Times that a new one asks for the lock of the only one.
_TRIES = 20
#: Seconds that a client may take to say what it has to say.
_TO_SPEAK = 10.0
#: Bytes at the end of its log of which the last line is shown.
_LONGEST_LINE = 500
#: Bytes that a socket's path may have.
_LONGEST = 100


def tell(job_id: str = "", handed: Handed | None = None) -> None:
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
    deadline, started = time.monotonic() + PATIENCE, -PATIENCE
    while not _sent(message):
        if time.monotonic() > deadline:
            log = _file(".log")
            last = f" ends with: {words}" if (words := _last_line(log)) else ""
            wrong = f"no supervisor of jobs answers within {PATIENCE:g} s; its log {log}{last}"
            advice = "hyperplane job list starts another one, for the jobs that are submitted"
            raise JobError(job_id, f"{wrong}; {advice}")
        if time.monotonic() - started > PATIENCE / 3 and running() is None:
            try:
                _start()
            except OSError as error:
                wrong = f"no supervisor of jobs can be started: {error.strerror}"
                raise JobError(job_id, f"{wrong} ({error.filename})") from error
            started = time.monotonic()
        time.sleep(0.02)


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _LONGEST_LINE))
            lines = opened.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def running(system: str | None = None) -> int | None:
    """The number of the supervisor's process; None when there is none.

    Parameters
    ----------
    system : str, optional
        Whose supervisor: a boot and process namespace, as
        :func:`hyperplane.engines.running_system.running_system` gives it; this one by default.
    """
    file = _file(".lock", system)
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
def alone() -> Iterator[bool]:
    """Be the only supervisor for a block, if there is no other."""
    file = _file(".lock")
    for _ in range(_TRIES):  # others may look at this moment whether there is one
        with file.open("a") as lock:
            if not _is_first(lock, file):
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


def _is_first(lock: IO[str], file: Path) -> bool:
    """Lock an open file; whether that can be done, and it is still the one of its name."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock.fileno()), file.stat())
    return False


@contextlib.asynccontextmanager
async def listening(told: Callable[[dict[str, Handed]], None]) -> AsyncIterator[None]:
    """Hear of jobs for a block."""

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ValueError, TypeError, AttributeError, OSError, asyncio.TimeoutError
        ):
            message = json.loads(await asyncio.wait_for(reader.read(), _TO_SPEAK))
            told({job_id: Handed(**handed) for job_id, handed in message.items()})
            writer.write(b"heard")
            await writer.drain()
        writer.close()

    path = _file(".sock")
    path.unlink(missing_ok=True)
    with _address(path) as address:
        server = await asyncio.start_unix_server(hear, address, limit=1 << 24)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.close()


def _sent(message: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        try:
            with _address(_file(".sock")) as address:
                connection.connect(address)
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(16) == b"heard"
        except OSError:
            return False


def _start() -> None:
    # It has the configuration of whoever submits first, whether from files or set in a program.
    environment = {
        **os.environ,
        INHERITED: dask.config.serialize(dask.config.config),
    }
    program = [sys.executable, "-m", "hyperplane.jobs.supervisor"]
    with _file(".log").open("ab") as log:
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


def _file(suffix: str, system: str | None = None) -> Path:
    """A file of the supervisor of this user, machine, running system and store.

    Two containers of one host name have one home and one store, but each has its supervisor. Their
    log is one file, so that it is found after the next start of the machine.
    """
    told = f"{this_machine()} {store_url()}"
    if suffix != ".log":
        told += f" {running_system() if system is None else system}"
    return home() / f"supervisor-{hashlib.sha256(told.encode()).hexdigest()[:8]}{suffix}"


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """The path of a socket in few enough bytes."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
