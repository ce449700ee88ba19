"""Run the processes of a training program; the primary determines the return code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import IO

import psutil

from hyperplane.ml.training.run_plan import ProgramProcess, RunPlan
from hyperplane.platforms.local.process_guard import (
    RUN_VARIABLE,
    add_process,
    end_run,
    start_guard,
)

#: Seconds that the primary has after Ctrl-C or SIGTERM.
STOP_SECONDS = 10.0
#: Seconds to wait for the last lines of the other processes.
_OUTPUT_SECONDS = 2.0
_POLL_SECONDS = 0.1
#: Seconds in which the end of another process can become known after the primary has failed.
_REASON_SECONDS = 0.3
_output_lock = threading.Lock()


class StopRequest:
    """The signal that requests the end of a run, which a signal handler sets.

    ``forward`` is whether the primary has not received the signal itself, as it does on Ctrl-C in
    a terminal.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self.forward = True
        self.immediate = False


class ProgramRun:
    """The processes of one run, which all end with its primary.

    Parameters
    ----------
    plan : RunPlan
        The processes.
    stop : StopRequest, optional
        Request to end the run, checked while it runs.
    write : callable, optional
        Receives messages about the run, without a newline.
    """

    def __init__(
        self,
        plan: RunPlan,
        stop: StopRequest | None = None,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._plan, self._stop = plan, stop or StopRequest()
        self._write = write or write_message
        self._id = uuid.uuid4().hex
        self._roots: list[psutil.Process] = []
        self._readers: list[threading.Thread] = []
        #: Names and return codes of processes other than the primary, in the order of their ends.
        self._ends: list[tuple[str, int]] = []
        self._reported = 0
        self._children: list[subprocess.Popen[bytes]] = []
        self._stop_deadline: float | None = None

    def run(self) -> int:
        """Run all processes until the primary ends; return its code, negative for a signal.

        With ``fail_fast`` in the plan it is the code of the process that failed first.
        """
        guard = start_guard(self._id)
        try:
            primary, *others = self._plan.processes
            for process in others:
                self._start_other(process, guard)
            started = self._start(primary, guard)
            return self._wait(primary, started)
        finally:
            end_run(self._id, self._roots)
            for child in self._children:
                child.wait()
            for reader in self._readers:
                reader.join(_OUTPUT_SECONDS)
            guard.kill()
            guard.communicate()

    def _start(
        self,
        process: ProgramProcess,
        guard: subprocess.Popen[bytes],
        output: int | None = None,
    ) -> subprocess.Popen[bytes]:
        environment = make_environment({**process.variables, RUN_VARIABLE: self._id})
        if output is not None:
            # Lines appear when they are printed, not when the process ends.
            environment.setdefault("PYTHONUNBUFFERED", "1")
        child = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            self._plan.command,
            cwd=self._plan.directory,
            env=environment,
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=output is not None,
        )
        self._children.append(child)
        add_process(guard, child.pid)
        with contextlib.suppress(psutil.Error):
            self._roots.append(psutil.Process(child.pid))
        return child

    def _start_other(self, process: ProgramProcess, guard: subprocess.Popen[bytes]) -> None:
        child = self._start(process, guard, subprocess.PIPE)
        assert child.stdout is not None  # noqa: S101 - for mypy
        reader = threading.Thread(
            target=_copy_lines, args=(child.stdout, f"{process.name} | "), daemon=True
        )
        reader.start()
        self._readers.append(reader)
        # A thread for each, to know the order of ends: processes that lose their connection to one
        # that was killed fail some milliseconds later.
        wait = lambda: self._ends.append((process.name, child.wait()))  # noqa: E731
        threading.Thread(target=wait, daemon=True).start()

    def _wait(self, primary: ProgramProcess, child: subprocess.Popen[bytes]) -> int:
        while child.poll() is None:
            failed = self._report_ended(primary)
            if failed is not None and self._plan.fail_fast:
                name, code = failed
                self._write(f"ending the run with the code of {name}")
                return code
            self._end_on_request(primary, child)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_POLL_SECONDS)
        if child.returncode != 0 and self._stop.number is None:
            # A killed process closes its connections some milliseconds before it has ended.
            time.sleep(_REASON_SECONDS)
            for name, code in self._ends[self._reported :]:
                if code != 0:  # it may be the reason
                    text = f"{name} ended with {describe_code(code)} shortly before or after"
                    self._write(f"{text} {primary.role}")
        return child.returncode

    def _report_ended(self, primary: ProgramProcess) -> tuple[str, int] | None:
        """Report processes that ended before the primary; return the first that failed."""
        if self._stop.number is not None:
            return None
        ends = self._ends[self._reported :]
        self._reported += len(ends)
        for name, code in ends:
            message = f"{name} ended with {describe_code(code)} before {primary.role}"
            if code != 0 and not self._plan.fail_fast:
                message += (
                    f"; {primary.role} runs on, and may wait for it forever: press Ctrl-C, or "
                    "use --fail-fast (fail_fast=True) to end the run"
                )
            self._write(message)
        return next(((name, code) for name, code in ends if code != 0), None)

    def _end_on_request(self, primary: ProgramProcess, child: subprocess.Popen[bytes]) -> None:
        stop = self._stop
        if stop.number is None:
            return
        if self._stop_deadline is None:
            self._stop_deadline = time.monotonic() + STOP_SECONDS
            name = stop.number.name
            self._write(f"{name}: waiting at most {STOP_SECONDS:.0f} s for {primary.role} to end")
            if stop.forward:
                child.send_signal(stop.number)
        if stop.immediate or time.monotonic() > self._stop_deadline:
            child.kill()


def make_environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment of this process with other variables; None removes a variable."""
    merged = {**os.environ, **variables}
    return {name: value for name, value in merged.items() if value is not None}


def describe_code(code: int) -> str:
    """Return a text of a return code, such as ``exit code 3`` or ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def write_message(message: str) -> None:
    """Write a message about a run to standard error."""
    _write_bytes(f"hyperplane train: {message}\n".encode())


def _copy_lines(stream: IO[bytes], prefix: str) -> None:
    """Copy lines to standard error, each with a prefix, until the end of a stream."""
    with stream:
        for line in stream:
            _write_bytes(prefix.encode() + line.rstrip(b"\n") + b"\n")


def _write_bytes(data: bytes) -> None:
    # The descriptor, not sys.stderr: the primary writes to it, too, without a buffer between.
    with _output_lock, contextlib.suppress(OSError):
        sys.stderr.flush()
        while data:
            data = data[os.write(2, data) :]
