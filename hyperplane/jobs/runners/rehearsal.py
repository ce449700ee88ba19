"""Run the tasks of a job on this machine as a service would run them, without an account."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from hyperplane import config
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.definition.dependencies import waves
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.redaction import redact_text
from hyperplane.jobs.execution.step_environment import find_secrets, secret_variables
from hyperplane.jobs.notebook import extract_notebook
from hyperplane.jobs.runners import task_program
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
from hyperplane.jobs.runners.staged_code import StagedCodeSettings, collect_files
from hyperplane.jobs.runners.task_manifest import (
    build_manifest,
    dump_manifest,
    with_notebook_program,
)
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.task_size import TaskSize

#: Limits the memory, and runs the program of the container with objects that are files here. The
#: system ends it with its parent (PR_SET_PDEATHSIG), also if that is killed.
_CODE = """
import ctypes, json, os, pathlib, resource, runpy, signal, sys
parent, program, manifest, objects, folder, memory = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(parent):
    sys.exit("the rehearsal has ended")
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
limit = int(memory) if hard == resource.RLIM_INFINITY else min(int(memory), hard)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
fetch = lambda key: pathlib.Path(objects, key).read_bytes()
run_task = runpy.run_path(program)["run_task"]
run_task(json.loads(pathlib.Path(manifest).read_bytes()), fetch, folder)
"""
_PROGRAM_FILE = str(task_program.__file__)
_MIB = 1 << 20
#: Seconds between SIGTERM and SIGKILL of a container.
_STOP_SECONDS = 30.0


class RehearsedSettings(StagedCodeSettings, Protocol):
    """Settings of a runner whose tasks can be rehearsed."""

    @property
    def image(self) -> str | None:
        """Image of the containers."""
        ...


class RehearsedRunner(Protocol):
    """A runner with containers whose tasks can run on this machine.

    Attributes
    ----------
    title, vendor : str
        Name of its service, and of the company.
    max_array : int
        Maximum tasks of one job.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    vendor: ClassVar[str]
    max_array: ClassVar[int]

    @property
    def settings(self) -> RehearsedSettings:
        """The settings."""
        ...

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline that the service cannot run."""
        ...

    def with_runtime_paths(self, job: Job) -> Job:
        """Return the job with the folders and the interpreter of a container."""
        ...

    def task_size(self, step: Step, memory_factor: float) -> TaskSize | None:
        """Return the size of the container of a step; None if none is large enough."""
        ...

    def task_variables(self, step: Step, index: int, count: int) -> dict[str, str]:
        """Return the variables that the service sets in one of ``count`` containers."""
        ...


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
    """

    step: str
    chunk: int
    code: int | None
    seconds: float
    log: str


def find_rehearsal_faults(job: Job, runner: RehearsedRunner) -> Iterator[Fault]:
    """Yield a fault for each part of a job that cannot be rehearsed on this machine."""
    if not sys.platform.startswith("linux"):
        yield Fault("runner", repr(runner.name), "a rehearsal on Linux, which limits the memory")
    if runner.settings.root is not None:
        advice = "omit the option: the files of the pipeline are then used"
        yield Fault("root", repr(runner.settings.root), "no folder of an image", advice)
    yield from runner.find_unsupported(job.pipeline)
    yield from find_process_faults(job.pipeline, runner.name)
    for step in job.pipeline.steps:
        _, missing = find_secrets(step.secrets, os.environ, config.jobs().secrets)
        for name in missing:
            allowed = "a secret whose value this machine has"
            yield Fault(f"step {step.name!r}: secrets", repr(name), allowed)


def rehearse(
    job: Job, runner: RehearsedRunner, *, all_chunks: bool, report: Callable[[TaskOutcome], None]
) -> bool:
    """Run the tasks of a job one after the other, and return whether all succeeded.

    Parameters
    ----------
    job : Job
        The job, with resources in place of the pool ``auto``.
    runner : RehearsedRunner
        The runner with its options; nothing is sent.
    all_chunks : bool
        Whether all chunks of a step run, or only the first.
    report : callable
        Called with the outcome of each task. After one that failed, no other one runs.

    Raises
    ------
    RequestError
        With everything that cannot be rehearsed; nothing has run.
    """
    with stating_outcome("nothing was run"):
        check(find_rehearsal_faults(job, runner))
    in_container = runner.with_runtime_paths(job)
    steps = {step.name: step for step in job.pipeline.steps}
    moved = {step.name: step for step in in_container.pipeline.steps}
    for wave in waves(job.pipeline):
        for name in wave:
            commands = list(first_attempts(job, in_container, steps[name], moved[name]))
            for index in range(len(commands) if all_chunks else 1):
                outcome = _run_task(job, steps[name], commands, index, runner)
                report(outcome)
                if outcome.code != 0:
                    return False
    return True


def describe_differences(job: Job, runner: RehearsedRunner) -> list[str]:
    """Return in what a rehearsal differs from the service, as lines of text."""
    version = ".".join(map(str, sys.version_info[:3]))
    image = runner.settings.image or "of the containers"
    sizes = [runner.task_size(with_sizes(step), 1.0) for step in job.pipeline.steps]
    cores = max((size.cores for size in sizes if size is not None), default=0)
    lines = [
        f"the image {image} is not used: Python {version} and the packages of this environment are",
        "memory is limited as the data of each process (RLIMIT_DATA), not of all together: a step "
        "with several processes may use more than in its container",
        f"cores are not limited: at most {cores:g} in a container, {os.cpu_count()} here",
        "the files and the network of this machine can be accessed; a container has those of its "
        "image and its network",
        f"no credentials of {runner.vendor} are passed on, and the permissions of the roles are "
        "not tested",
        f"tasks run one after the other; on {runner.title} chunks run at once",
    ]
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    largest = max((size.memory * _MIB for size in sizes if size is not None), default=0)
    if resource.RLIM_INFINITY != hard < largest:
        lines.append(
            f"processes here may have at most {hard} bytes of data (ulimit -d), less than the "
            f"{largest} bytes of a container"
        )
    if any(size is not None and size.gpus for size in sizes):
        lines.append("GPUs are those of this machine, if it has any")
    return lines


def _run_task(
    job: Job,
    step: Step,
    commands: list[AttemptCommand],
    index: int,
    runner: RehearsedRunner,
) -> TaskOutcome:
    files = collect_files(commands[0], step, job.pipeline.root, runner.settings)
    keys = [str(number) for number in range(len(files))]
    prepared = [with_notebook_program(command, step) for command in commands]
    if runner.max_array == 1:
        prepared = prepared[index : index + 1]
    size = runner.task_size(with_sizes(step), 1.0) or TaskSize(1, 1)  # the check has found it
    with tempfile.TemporaryDirectory(prefix="hyperplane-rehearsal-") as folder:
        place = Path(folder)
        work, objects = place / "work", place / "objects"
        work.mkdir()
        objects.mkdir()
        for key, file in zip(keys, files, strict=True):
            (objects / key).write_bytes(file.content)
        manifest = place / "manifest.json"
        manifest.write_bytes(dump_manifest(build_manifest(prepared, step, files, keys)))
        memory = str(size.memory * _MIB)
        words = [_PROGRAM_FILE, str(manifest), str(objects), str(work), memory]
        chunk = index if step.chunk_count else -1
        started = time.monotonic()
        programs = _write_python(place)
        variables = runner.task_variables(step, index, len(commands))
        environment = _container_environment(step, variables, work, programs)
        code = _run(words, environment, place / "log", step.timeout)
        seconds = time.monotonic() - started
        log, _ = extract_notebook((place / "log").read_bytes())
    return TaskOutcome(step.name, chunk, code, seconds, _mask(log.decode(errors="replace"), step))


def _run(
    words: list[str], environment: Mapping[str, str], log: Path, timeout: float | None
) -> int | None:
    """Run a task to its end; return None after its time limit."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            [sys.executable, "-c", _CODE, str(os.getpid()), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a task and all processes that it has started."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
    finally:  # also after a second Ctrl-C during the wait
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
    values, _ = find_secrets(step.secrets, os.environ, config.jobs().secrets)
    return {**environment, **secret_variables(values)}


def _mask(text: str, step: Step) -> str:
    values, _ = find_secrets(step.secrets, os.environ, config.jobs().secrets)
    return redact_text(text, tuple(values.values())) if values else text
