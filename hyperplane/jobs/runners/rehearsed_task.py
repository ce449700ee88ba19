"""A task of a rehearsal: a process of this machine with the environment of a container."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hyperplane import config
from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.redaction import redact_text
from hyperplane.jobs.execution.step_environment import find_secrets, secret_variables
from hyperplane.jobs.notebook import extract_notebook
from hyperplane.jobs.runners import rehearsed_program
from hyperplane.jobs.runners.container_program import read_task_program
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.task_manifest import dump_manifest
from hyperplane.platforms.local import network_namespace
from hyperplane.platforms.local.memory_group import MemoryGroup, create_memory_group
from hyperplane.platforms.task_size import TaskSize

_PROGRAM = str(rehearsed_program.__file__)
_NETWORK_PROGRAM = str(network_namespace.__file__)
_MIB = 1 << 20
#: Seconds between SIGTERM and SIGKILL of a container.
_STOP_SECONDS = 30.0

MemoryLimit = Literal["cgroup", "rlimit"]


@dataclass(frozen=True)
class RehearsalLimits:
    """How the tasks of a rehearsal are limited.

    Parameters
    ----------
    memory : str
        ``cgroup``: all processes of a task together, as in a container; ``rlimit``: the data of
        each process, which needs no rights.
    network : bool
        Whether tasks can access the network of this machine.
    parallel : int
        Maximum tasks that run at the same time.
    """

    memory: MemoryLimit = "rlimit"
    network: bool = True
    parallel: int = 1


class TaskOutcome(NamedTuple):
    """How a task of a rehearsal ended.

    Parameters
    ----------
    step : str
        Name of the step.
    chunk : int
        Number of the chunk; -1 for a step without chunks.
    code : int or None
        Exit code, negative for a signal; None if it exceeded its time limit.
    seconds : float
        Time that it took.
    log : str
        What it has printed.
    memory : int
        Limit of its memory in bytes.
    peak : int or None
        Most bytes, with cached files, that its processes used at once; None if not measured.
    out_of_memory : bool
        Whether a process was killed at the limit of the memory.
    """

    step: str
    chunk: int
    code: int | None
    seconds: float
    log: str
    memory: int = 0
    peak: int | None = None
    out_of_memory: bool = False


class RehearsedTask:
    """A task that runs. Its process is started at once; ``close`` ends it.

    Parameters
    ----------
    step : Step
        Its step.
    chunk : int
        Number of the chunk; -1 for a step without chunks.
    manifest : mapping
        Files, variables and programs of the tasks.
    files : mapping of str to TaskFile
        Files by their key in the manifest.
    variables : mapping of str to str
        Variables that the service sets.
    size : TaskSize
        Size of the container.
    limits : RehearsalLimits
        How it is limited.
    """

    def __init__(
        self,
        step: Step,
        chunk: int,
        manifest: Mapping[str, object],
        files: Mapping[str, TaskFile],
        variables: Mapping[str, str],
        size: TaskSize,
        limits: RehearsalLimits,
    ) -> None:
        self._step, self._chunk, self._memory = step, chunk, size.memory * _MIB
        self._group: MemoryGroup | None = None
        self._killed_at = float("inf")
        self._has_timed_out = False
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="hyperplane-rehearsal-")
            place = Path(stack.enter_context(temporary))
            work, objects = place / "work", place / "objects"
            for folder in (work, objects):
                folder.mkdir()
            for key, file in files.items():
                (objects / key).write_bytes(file.content)
            program = read_task_program()
            (place / program.path).write_bytes(program.content)
            path = place / "manifest.json"
            path.write_bytes(dump_manifest(dict(manifest)))
            if limits.memory == "cgroup":
                self._group = create_memory_group(self._memory)
                if self._group is None:
                    raise PlatformError("cgroup", "no control group can be created any more")
                stack.callback(self._group.close)
            settings = {
                "parent": os.getpid(),
                "program": str(place / program.path),
                "manifest": str(path),
                "objects": str(objects),
                "folder": str(work),
                "procs": None if self._group is None else str(self._group.procs),
                "data": self._memory if self._group is None else None,
                "network": None if limits.network else _NETWORK_PROGRAM,
            }
            self._log = place / "log"
            environment = _container_environment(step, variables, work, _write_python(place))
            self._started = time.monotonic()
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
                    [sys.executable, "-I", _PROGRAM, json.dumps(settings)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            stack.callback(self._kill)
            self._resources = stack.pop_all()
        self._deadline = self._started + (step.timeout or float("inf"))

    def wait(self, seconds: float) -> TaskOutcome | None:
        """Wait for its end; return None if it still runs. Its time limit ends it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return self._outcome()
        now = time.monotonic()
        if now >= self._killed_at:
            self._kill_all()
        elif now >= self._deadline and not self._has_timed_out:
            self._has_timed_out = True
            self.terminate()
        return None

    def terminate(self) -> None:
        """Send SIGTERM to its first process, as to a container, and SIGKILL in a later wait."""
        self._process.terminate()
        self._killed_at = time.monotonic() + _STOP_SECONDS

    def close(self) -> None:
        """Kill all its processes and remove its files."""
        self._resources.close()

    def _outcome(self) -> TaskOutcome:
        seconds = time.monotonic() - self._started
        code = None if self._has_timed_out else self._process.returncode
        self._kill_all()  # what it has left behind
        log, _ = extract_notebook(self._log.read_bytes())
        text = _mask(log.decode(errors="replace"), self._step)
        peak, killed = None, False
        if self._group is not None:
            peak, killed = self._group.peak(), self._group.has_killed()
        return TaskOutcome(
            self._step.name, self._chunk, code, seconds, text, self._memory, peak, killed
        )

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _kill(self) -> None:
        self._kill_all()
        self._process.wait()


def end_tasks(tasks: Sequence[RehearsedTask]) -> None:
    """End tasks with SIGTERM, and with SIGKILL after 30 seconds or at a second signal."""
    with ExitStack() as stack:
        for task in tasks:
            stack.callback(task.close)
        for task in tasks:
            task.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for task in tasks:
            task.wait(max(0.0, deadline - time.monotonic()))


def secret_values(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of secrets by name, and the names without one on this machine."""
    return find_secrets(tuple(names), os.environ, config.jobs().secrets)


def _write_python(place: Path) -> Path:
    """Write the program ``python``, which containers run; return its folder.

    The folder of the interpreter may have it under another name only. A link to the interpreter of
    a virtual environment would not find the packages.
    """
    folder = place / "bin"
    folder.mkdir()
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    return folder


def _container_environment(
    step: Step, variables: Mapping[str, str], work: Path, programs: Path
) -> dict[str, str]:
    """Return the environment of a container: nothing of the environment of this process."""
    environment = {
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.defpath)),
        "HOME": str(work),
        **variables,
    }
    values, _ = secret_values(step.secrets)
    return {**environment, **secret_variables(values)}


def _mask(text: str, step: Step) -> str:
    values, _ = secret_values(step.secrets)
    return redact_text(text, tuple(values.values())) if values else text
