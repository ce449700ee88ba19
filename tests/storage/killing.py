"""Run programs and kill them at a chosen moment."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

_MARK = "HYPERPLANE_TEST_FAMILY"
Whom = Callable[[list[psutil.Process]], "psutil.Process | None"]


@dataclass(frozen=True)
class ProgramResult:
    """Exit status and output of a program."""

    #: Whether one of its processes was killed; otherwise it had ended before.
    killed: bool
    code: int
    seconds: float
    out: str
    err: str


def moments(count: int, longest: float, seed: int = 0) -> Iterator[float]:
    """Return random times from 0 to ``longest`` seconds, spread over the whole range."""
    dice = random.Random(seed)
    shares = [(number + dice.random()) / count for number in range(count)]
    dice.shuffle(shares)
    return (share * longest for share in shares)


def run_reporting(script: str, *arguments: str, patience: float = 280.0) -> Any:
    """Return the JSON in the last output line of a program that itself kills processes."""
    return json.loads(_run_to_end(script, arguments, patience)[-1])


def run_reporting_lines(script: str, *arguments: str, patience: float = 280.0) -> list[Any]:
    """Return the JSON in all output lines of a program that itself kills processes."""
    return list(map(json.loads, _run_to_end(script, arguments, patience)))


def _run_to_end(script: str, arguments: tuple[str, ...], patience: float) -> list[str]:
    """Run a program, and return its output lines."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def run(
    script: str,
    *arguments: str,
    after: float | None = None,
    when: Callable[[], bool] | None = None,
    whom: Whom | None = None,
    patience: float = 250.0,
) -> ProgramResult:
    """Run a program in a separate session, and kill it with SIGKILL.

    It is killed ``after`` some seconds, or as soon as ``when`` returns True; with neither it runs
    until it ends or kills itself. ``whom`` chooses the process to kill instead of the first one,
    or returns None to wait; the other processes then continue, and the call waits for their end.
    All processes of the program are ended. The folder of this module is on the program's path.
    """
    mark = uuid.uuid4().hex
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(place for place in places if place)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, _swept(mark):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, _MARK: mark},
        )
        killed = False
        if after is not None or when is not None:
            killed = _kill(process, mark, after, when, whom, began + patience)
        try:
            code = process.wait(max(0.1, began + patience - _now()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            output = "\n".join(map(_text, (out, err)))
            raise TimeoutError(f"not ended in {patience} s\n{output}") from None
        seconds = _now() - began
        return ProgramResult(killed or code == -9, code, seconds, _text(out), _text(err))


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


_now = time.monotonic


def _kill(
    process: subprocess.Popen[bytes],
    mark: str,
    after: float | None,
    when: Callable[[], bool] | None,
    whom: Whom | None,
    deadline: float,
) -> bool:
    """Wait, then kill the program; return False if it has ended before."""
    due = _now() + (after or 0.0)
    while process.poll() is None and _now() < deadline:
        if _now() >= due and (when is None or when()):
            if whom is None:
                process.kill()
                return True
            victim = whom(family(mark))
            if victim is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
                    return True
        time.sleep(0.001 if when else min(0.05, max(0.0005, due - _now())))
    return False


def family(mark: str) -> list[psutil.Process]:
    """Return the living processes of a program in any session, oldest first."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark:
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def _sweep(mark: str) -> None:
    while left := family(mark):  # repeated for processes started meanwhile
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)


@contextlib.contextmanager
def _swept(mark: str) -> Iterator[None]:
    try:
        yield
    finally:
        _sweep(mark)
