"""Task of a rank: start its process on the worker, watch it, and end it when it is not wanted."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle
import dask.config
import psutil
from dask.utils import format_bytes
from distributed import get_worker

from hyperplane.clusters.dask.gang.rank_output import RankOutput
from hyperplane.clusters.rank_environment import RankAddress, build_rank_environment
from hyperplane.core.dask_internals.clients import is_task_wanted

_PROGRAM = Path(__file__).with_name("rank_process.py")
#: Seconds between two checks of the process and the task, and between two of memory and state.
_INTERVAL = 0.05
_STATE_INTERVAL = 0.5


@dataclass(frozen=True)
class RankCall:
    """Identity and settings of a rank in one attempt.

    ``is_printed`` says whether the client prints the output, ``is_last`` whether the ranks are not
    started again.
    """

    gang: str
    attempt: int
    rank: int
    host: str
    checkpoints: str
    environment: Mapping[str, str]
    is_printed: bool = False
    is_last: bool = True


@dataclass(frozen=True)
class RankOutcome:
    """How a rank has ended; ``answer`` is what its process has written."""

    rank: int
    ended: float
    exit_code: int = 0
    answer: bytes = b""
    tail: str = ""
    reason: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the function has returned."""
        return self.exit_code == 0 and not self.reason and self.answer[:1] == b"R"


@dataclass
class _AttemptState:
    """Ranks of one attempt that run in this worker process."""

    ranks: set[int] = field(default_factory=set)
    addresses: Sequence[RankAddress] = ()
    start: threading.Event = field(default_factory=threading.Event)


#: State of the attempts in this worker process, by gang and number.
_ATTEMPTS: dict[tuple[str, int], _AttemptState] = {}
#: Bytes that the processes of ranks use, by the id of the process.
_MEMORY: dict[int, int] = {}
_LOCK = threading.Lock()


def start_ranks(gang: str, attempt: int, addresses: Sequence[RankAddress]) -> None:
    """Let the waiting ranks of an attempt start; the client runs this on each worker."""
    with _LOCK:
        state = _ATTEMPTS.get((gang, attempt))
    if state is not None:
        state.addresses = addresses
        state.start.set()


def count_ranks(gang: str) -> int:
    """Return how many ranks of a gang run in this worker process."""
    with _LOCK:
        return sum(len(state.ranks) for (name, _), state in _ATTEMPTS.items() if name == gang)


def supervise_rank(
    call: RankCall, program: tuple[bytes, bytes], data: list[Any] | None
) -> RankOutcome:
    """Run one rank to its end; the task of Dask.

    ``program`` is the pickled function and its pickled arguments, unpickled in the process only.
    """
    name = (call.gang, call.attempt)
    with _LOCK:
        state = _ATTEMPTS.setdefault(name, _AttemptState())
        state.ranks.add(call.rank)
    try:
        return _RankSupervisor(call, state).run((*program, data))
    finally:
        with _LOCK:
            state.ranks.discard(call.rank)
            if not state.ranks:
                _ATTEMPTS.pop(name, None)


class _RankSupervisor:
    def __init__(self, call: RankCall, state: _AttemptState) -> None:
        self._call, self._state = call, state
        self._worker: Any = get_worker()
        self._key = self._worker.get_current_task()
        self._checked, self._was_stopped = 0.0, False

    def run(self, content: tuple[Any, ...]) -> RankOutcome:
        with ExitStack() as sockets:
            # Open until the process starts, so that no other program gets the ports.
            ports = [sockets.enter_context(_open_socket()).getsockname()[1] for _ in range(2)]
            self._send("ready", [self._call.host, *ports])
            while not self._state.start.wait(_INTERVAL):
                if not self._is_wanted():
                    return RankOutcome(self._call.rank, time.time(), reason="it was not started")
        call_end, call_pipe = os.pipe()
        answer_pipe, answer_end = os.pipe()
        with os.fdopen(call_pipe, "wb") as call_file, os.fdopen(answer_pipe, "rb") as answer_file:
            try:
                # The kernel ends the process with the thread that starts it, which is this one.
                process = subprocess.Popen(  # noqa: S603 - this Python and a file of this package
                    [sys.executable, str(_PROGRAM), str(call_end), str(answer_end)],
                    env=self._build_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(call_end, answer_end),
                    process_group=0,  # Ctrl-C in a terminal ends the client, which ends the ranks
                )
            finally:
                os.close(call_end)
                os.close(answer_end)
            try:
                return self._watch(process, call_file, answer_file, content)
            finally:
                _kill_group(process)
                with _LOCK:
                    _MEMORY.pop(process.pid, None)

    def _build_environment(self) -> dict[str, str]:
        call = self._call
        inherited = dict(os.environ)
        inherited.pop("HYPERPLANE_CHECKPOINTS", None)  # of a gang that started this cluster
        return {
            **inherited,
            "PYTHONUNBUFFERED": "1",
            **build_rank_environment(
                call.rank, self._state.addresses, call.attempt, call.checkpoints
            ),
            **call.environment,
        }

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        call_file: BinaryIO,
        answer_file: BinaryIO,
        content: tuple[Any, ...],
    ) -> RankOutcome:
        assert process.stdout is not None  # noqa: S101 - for mypy
        output = RankOutput(process.stdout, lambda lines: self._send("lines", lines))
        answers: list[bytes] = []
        reader = threading.Thread(target=lambda: answers.append(answer_file.read()), daemon=True)
        writer = threading.Thread(target=self._write, args=(call_file, content), daemon=True)
        reader.start()
        writer.start()
        reason = ""
        with _ProcessEnd(process.pid) as end:
            while process.poll() is None and not reason:
                reason = self._check_state(process) if self._is_wanted() else "it was cancelled"
                output.flush(due=False)
                end.wait(_INTERVAL)
        ended = time.time()
        _kill_group(process)
        tail = output.finish()
        writer.join(2.0)
        reader.join(2.0)
        answer = answers[0] if answers else b""
        return RankOutcome(self._call.rank, ended, process.wait(), answer, tail, reason)

    def _write(self, call_file: BinaryIO, content: tuple[Any, ...]) -> None:
        with suppress(OSError):  # the process has ended
            log = (self._call.is_printed, self._call.is_last)
            pickle.dump((os.getpid(), sys.path, *log), call_file)
            cloudpickle.dump(content, call_file, protocol=5)
            call_file.flush()

    def _check_state(self, process: subprocess.Popen[bytes]) -> str:
        """Return why the process must end; write to the log that a signal has stopped it."""
        if time.monotonic() - self._checked < _STATE_INTERVAL:
            return ""
        self._checked = time.monotonic()
        is_stopped = False
        with suppress(psutil.Error):
            is_stopped = psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
        if is_stopped and not self._was_stopped:
            notice = f"(a signal has stopped process {process.pid}; SIGCONT continues it)"
            self._send("lines", [notice])
        self._was_stopped = is_stopped
        return self._check_memory(process)

    def _check_memory(self, process: subprocess.Popen[bytes]) -> str:
        """Return why the process must end, if it is the largest of a worker above its limit.

        Dask measures the worker process only, not the processes that it has started.
        """
        limit = self._worker.memory_manager.memory_limit
        fraction = dask.config.get("distributed.worker.memory.terminate", 0.95)
        if not limit or not fraction:
            return ""
        own = _measure_memory(process.pid)
        with _LOCK:
            _MEMORY[process.pid] = own
            total, largest = sum(_MEMORY.values()), max(_MEMORY.values())
        total += psutil.Process().memory_info().rss
        if total <= limit * fraction or own < largest:
            return ""
        return (
            f"it used {format_bytes(own)} of memory; the worker and its ranks used "
            f"{format_bytes(total)} of the worker's limit of {format_bytes(limit)}; use "
            "workers with more memory (ram_gb_per_proc)"
        )

    def _is_wanted(self) -> bool:
        is_running = self._worker.status.name in ("running", "paused", "closing_gracefully")
        return is_running and is_task_wanted(self._worker, self._key)

    def _send(self, kind: str, content: Any) -> None:
        call = self._call
        event = {"kind": kind, "attempt": call.attempt, "rank": call.rank, "content": content}
        with suppress(Exception):  # the worker is closing
            self._worker.log_event(call.gang, event)


class _ProcessEnd:
    """Wait for the end of a child process, to the millisecond.

    The rank that failed first is known only by the time: others fail a few milliseconds later,
    because they have lost their connection to it.
    """

    def __init__(self, pid: int) -> None:
        self._descriptor = -1
        self._poll = select.poll()
        with suppress(OSError, AttributeError):  # only Linux 5.3 and later have it
            self._descriptor = os.pidfd_open(pid)
            self._poll.register(self._descriptor, select.POLLIN)

    def __enter__(self) -> _ProcessEnd:
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Return when the process has ended, or after some seconds."""
        self._poll.poll(1000 * seconds)


def _open_socket() -> socket.socket:
    opened = socket.socket()
    opened.bind(("", 0))
    return opened


def _measure_memory(pid: int) -> int:
    """Return the bytes of a process and of those that it has started."""
    total, pending = 0, [pid]
    while pending:
        current = pending.pop()
        with suppress(psutil.Error, OSError):
            total += psutil.Process(current).memory_info().rss
            pending += _list_children(current)
    return total


def _list_children(pid: int) -> list[int]:
    """Return the child processes of a process.

    psutil reads the files of all processes of the machine: 5 ms for 190 of them, twice a second for
    each rank, in place of 0.1 ms.
    """
    tasks = Path(f"/proc/{pid}/task")
    if not (tasks / str(pid) / "children").exists():  # another system, or an older kernel
        return [each.pid for each in psutil.Process(pid).children()]
    found: list[int] = []
    for task in tasks.iterdir():
        with suppress(OSError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it has started, which may outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
