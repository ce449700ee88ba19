"""``python gang_program.py PLATFORM FOLDER PROGRAM ARGUMENT...``: run the processes of a gang.

``PLATFORM`` is ``local``, for processes of this machine, or ``slurm``, for tasks of a batch job,
which write their addresses and exit codes to the shared ``FOLDER``. The plan of the gang is in
``HYPERPLANE_JOB_GANG``. When one process fails, all others are ended, and this program ends as that
process has ended: with its exit code, or by its signal.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import IO

if __package__:
    from hyperplane.clusters import gang_plan
    from hyperplane.clusters.rank_environment import RankAddress
else:
    _CLUSTERS = os.path.join(os.path.dirname(__file__), "..", "..", "clusters")  # noqa: PTH118, PTH120
    sys.path.append(_CLUSTERS)
    import gang_plan  # type: ignore[import-not-found, no-redef]
    from rank_environment import RankAddress  # type: ignore[import-not-found, no-redef]

#: Seconds between two looks at the processes, and between SIGTERM and SIGKILL.
_INTERVAL, _GRACE = 0.05, 5.0
#: Seconds to wait for the last lines of the processes.
_OUTPUT_SECONDS = 2.0
_MAX_LINE = 1 << 16
#: Output of srun with the number of the task.
_LABELED = re.compile(rb"0*(\d+): ?(.*)", re.DOTALL)


class ProcessOutput:
    """Lines of all processes on standard output, with the name of the process before each."""

    def __init__(self, plan: gang_plan.GangPlan) -> None:
        self._plan, self._lock = plan, threading.Lock()
        self._threads: list[threading.Thread] = []
        self._tails: dict[int, deque[bytes]] = {}

    def copy(self, stream: IO[bytes], number: int | None) -> None:
        """Copy the lines of a process, or of srun, which has labeled them, in a thread."""
        thread = threading.Thread(target=self._copy, args=(stream, number), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _copy(self, stream: IO[bytes], number: int | None) -> None:
        while line := stream.readline(_MAX_LINE):
            text, rank = line.rstrip(b"\r\n"), number
            # Slurm's own messages have the label of one of the tasks.
            if (
                rank is None
                and b": slurmstepd" not in text
                and (labeled := _LABELED.fullmatch(text))
            ):
                rank, text = int(labeled[1]), labeled[2]
            with self._lock:
                if rank is None or rank >= self._plan.size:
                    self._write(text + b"\n")
                    continue
                tail = self._tails.setdefault(rank, deque(maxlen=gang_plan.TAIL_LINES))
                tail.append(text)
                self._write(f"{self._plan.name(rank)} | ".encode() + text + b"\n")

    def report_failure(self, number: int, code: int) -> None:
        """Write which process has failed, with its last lines, after the end of the output."""
        deadline = time.monotonic() + _OUTPUT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            tail = [line.decode("utf-8", "replace") for line in self._tails.get(number, ())]
            text = gang_plan.format_failure(self._plan.name(number), code, tail)
            self._write(text.encode("utf-8", "replace"))

    def finish(self) -> None:
        """Wait for the end of the output."""
        for thread in self._threads:
            thread.join(_OUTPUT_SECONDS)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]


class LocalGang:
    """The processes of a gang as children of this process, in its process group.

    The group is ended with the step, also if this process is killed.
    """

    def __init__(self, plan: gang_plan.GangPlan, words: list[str], output: ProcessOutput) -> None:
        restarts = int(os.environ.get(gang_plan.RESTARTS_VARIABLE) or 0)
        self._children: list[subprocess.Popen[bytes]] = []
        self._ends: list[tuple[int, int]] = []
        with ExitStack() as sockets:
            # All are open at once, so that no two have the same port.
            ports = [
                [sockets.enter_context(_open_socket()).getsockname()[1] for _ in range(2)]
                for _ in range(plan.size)
            ]
        addresses = [RankAddress("127.0.0.1", *pair) for pair in ports]
        for number in range(plan.size):
            variables = {**os.environ, **plan.build_environment(number, addresses, restarts)}
            variables.pop(gang_plan.PLAN_VARIABLE)
            child = subprocess.Popen(  # noqa: S603 - a list, of the user's own program
                words,
                env={name: text for name, text in variables.items() if text is not None},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            self._children.append(child)
            assert child.stdout is not None  # noqa: S101 - for mypy
            output.copy(child.stdout, number)
            # A thread for each, to know the order of ends: processes that lose their connection to
            # one that was killed fail some milliseconds later.
            threading.Thread(target=self._wait, args=(number, child), daemon=True).start()

    def _wait(self, number: int, child: subprocess.Popen[bytes]) -> None:
        self._ends.append((number, child.wait()))

    def poll(self) -> dict[int, int]:
        """Return the exit codes of the processes that have ended, in the order of their ends."""
        return dict(self._ends)

    def is_running(self) -> bool:
        """Whether any process runs."""
        return len(self._ends) < len(self._children)

    def signal(self, number: int) -> None:
        """Send a signal to the processes that run."""
        for child in self._children:
            if child.returncode is None:
                child.send_signal(number)


class SlurmGang:
    """The processes of a gang as tasks of a batch job, which one srun starts and ends together."""

    def __init__(
        self, plan: gang_plan.GangPlan, words: list[str], output: ProcessOutput, folder: str
    ) -> None:
        self._plan, self._folder = plan, folder
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, 0o700)  # noqa: PTH103 - pathlib is slow to import
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_program.py")  # noqa: PTH100, PTH118, PTH120
        options = [
            f"--ntasks={plan.size}", "--kill-on-bad-exit=1", "--label", "--export=ALL",
            "--input=none", "--distribution=block",
        ]  # fmt: skip
        if cores := os.environ.get("SLURM_CPUS_PER_TASK"):  # srun does not read it
            options.append(f"--cpus-per-task={cores}")
        if os.environ.get("SLURM_GPUS_PER_TASK"):  # each sees all of its node, as with torchrun
            options.append("--gpu-bind=none")
        rank = [sys.executable, "-I", "-S", program, "slurm", folder, *words]
        self._child = subprocess.Popen(  # noqa: S603 - a list, of the user's own program
            [shutil.which("srun") or "srun", *options, *rank],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._child.stdout is not None  # noqa: S101 - for mypy
        output.copy(self._child.stdout, None)
        self.code: int | None = None

    def poll(self) -> dict[int, int]:
        """Return the exit codes of the tasks that have ended, in the order of their ends."""
        self.code = self._child.poll()
        found = []
        for name in os.listdir(self._folder):  # noqa: PTH208
            if name.endswith(".exit"):
                with open(f"{self._folder}/{name}") as file:  # noqa: PTH123
                    code, ended = file.read().split()
                found.append((float(ended), int(name.partition(".")[0]), int(code)))
        return {number: code for _, number, code in sorted(found)}

    def is_running(self) -> bool:
        """Whether srun runs."""
        return self._child.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to srun, which ends its tasks."""
        if self.is_running():
            self._child.send_signal(number)


def main(platform: str, folder: str, words: list[str]) -> int:
    """Run the gang to its end; return the exit code, negative for a signal."""
    plan = gang_plan.GangPlan.from_json(os.environ[gang_plan.PLAN_VARIABLE])
    output, received = ProcessOutput(plan), threading.Event()
    # The processes get the signal, too; this program ends after them.
    signal.signal(signal.SIGTERM, lambda number, frame: received.set())
    try:
        gang = (
            SlurmGang(plan, words, output, folder)
            if platform == "slurm"
            else LocalGang(plan, words, output)
        )
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126
    codes: dict[int, int] = {}
    failed: int | None = None
    while failed is None and not plan.is_complete(codes):
        was_running = gang.is_running()
        codes = gang.poll()
        failed = next((number for number, code in codes.items() if code), None)
        if not was_running and failed is None and not plan.is_complete(codes):
            break  # srun has ended without a record of the tasks
        time.sleep(_INTERVAL)
    is_over = failed is None and not plan.roles  # srun ends some time after its tasks
    _end(gang.is_running, gang.signal, (0,) if is_over else ())
    if failed is not None:
        if received.is_set() and codes[failed] == -signal.SIGTERM:
            output.finish()  # the step was cancelled, or has exceeded its timeout
        else:
            output.report_failure(failed, codes[failed])
        return codes[failed]
    output.finish()
    if plan.is_complete(codes):
        return 0
    return int(getattr(gang, "code", 0) or 1)


def _end(
    is_running: Callable[[], bool], send: Callable[[int], None], first: tuple[int, ...]
) -> None:
    """End the processes that still run: SIGTERM, and SIGKILL after some seconds."""
    for number in (*first, signal.SIGTERM, signal.SIGKILL):
        if is_running():
            send(number)
        deadline = time.monotonic() + _GRACE
        while is_running() and time.monotonic() < deadline:
            time.sleep(_INTERVAL)


def _open_socket() -> socket.socket:
    opened = socket.socket()
    opened.bind(("127.0.0.1", 0))
    return opened


if __name__ == "__main__":
    _code = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    if _code < 0:  # end in the same way
        with suppress(OSError, ValueError):
            signal.signal(-_code, signal.SIG_DFL)
        os.kill(os.getpid(), -_code)
    os._exit(_code if _code >= 0 else 128 - _code)
