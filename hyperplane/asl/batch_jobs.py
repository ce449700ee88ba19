"""AWS Batch as a task: the commands of its jobs run as programs of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from hyperplane.asl.commands import end_on_stop
from hyperplane.asl.errors import TIMEOUT, StateError
from hyperplane.asl.execution_scope import ExecutionScope, run_concurrently
from hyperplane.asl.problems import format_location, format_value
from hyperplane.asl.strict_json import JsonLocation
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call

#: Resources that submit a job; with ``.sync`` the state waits for its end.
BATCH_RESOURCES = (
    "arn:aws:states:::batch:submitJob.sync",
    "arn:aws:states:::batch:submitJob",
)
#: Numbers in the parameters of a job, and what AWS Batch allows: children of an array job,
#: attempts at each, and the time limit of an attempt, of which the largest is that of botocore.
_NUMBERS = {
    ("ArrayProperties", "Size"): (2, 10_000),
    ("RetryStrategy", "Attempts"): (1, 10),
    ("Timeout", "AttemptDurationSeconds"): (60, 2**31 - 1),
}
#: Names of states that are parts of the name of a log, and its maximum bytes; disks allow 255.
_PLAIN_NAME = re.compile(r"\w(?:[\w -]*[\w-])?")
_MAX_LOG_NAME = 200
#: Maximum length of the end of a log that the cause of a failure quotes.
_TAIL = 2000


@check_call
@dataclass(frozen=True)
class BatchJobs:
    """AWS Batch as a task that runs the command of each job here, as a program.

    The program gets the variables of the job, ``AWS_BATCH_JOB_ID`` and others that Batch sets, and
    a ``PATH`` with this Python; no other variables of this process. Children of an array job run
    at once, as many as the machine has processors. ``RetryStrategy.Attempts`` and
    ``Timeout.AttemptDurationSeconds`` hold for each of them; the image, the queue, the requested
    cores and memory, and other parameters are not used.

    Parameters
    ----------
    folder : str
        Working folder of the programs, with the files of the pipeline.
    logs : str, optional
        Folder for what they print, in a file for each state and each child of an array job, such
        as ``clean.log`` and ``years.3.log``. A state in a branch has the name and number of that
        before its own, such as ``Load all.0.Load.log``. Without it only the end of the log of a
        failed program is kept, in the cause of the failure.

    Raises
    ------
    RequestError
        If ``folder`` is not an existing folder, or ``logs`` is not the path of a folder.

    Examples
    --------
    >>> BatchJobs(".").folder
    '.'
    """

    folder: str
    logs: str | None = None

    def __post_init__(self) -> None:
        faults = []
        if not _is_path(self.folder) or not _is_folder(self.folder):
            faults.append(
                Fault("folder", ascii(self.folder)[:80], "the path of an existing folder")
            )
        if self.logs is not None and not (
            _is_path(self.logs) and _is_folder(self.logs, or_new=True)
        ):
            faults.append(Fault("logs", ascii(self.logs)[:80], "the path of a folder"))
        check(faults)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_folder(path: str, or_new: bool = False) -> bool:
    """Return whether a path is a folder, or with ``or_new`` one that could be made."""
    try:
        return Path(path).is_dir() or (or_new and not Path(path).exists())
    except OSError:  # such as a name that is too long
        return False


def run_batch_job(
    jobs: BatchJobs, parameters: Any, limit: float | None, scope: ExecutionScope, path: JsonLocation
) -> dict[str, Any]:
    """Run the job of the parameters of ``batch:submitJob``; return it as Batch describes it.

    ``path`` is that of the state, which the logs are named after: names of jobs may be equal, and
    longer than those of files. Raises a StateError if a program fails, after all children of an
    array have ended, or at the time limit.
    """
    job = _read_job(parameters)
    deadline = None if limit is None else time.monotonic() + limit
    job_id = str(uuid.uuid4())
    indices: list[int | None] = [*range(job.size)] if job.size else [None]
    children: list[Callable[[ExecutionScope], str]] = [
        partial(_run_child, jobs, job, path, job_id, index, deadline, limit) for index in indices
    ]
    failures = [cause for cause in run_concurrently(scope, children, os.cpu_count() or 1) if cause]
    if failures:
        of = f"{len(failures)} of {job.size} children failed; " if job.size else ""
        raise StateError("States.TaskFailed", f"job {job.name!r}: {of}{failures[0]}")
    return {"JobId": job_id, "JobName": job.name, "Status": "SUCCEEDED"}


@dataclass(frozen=True)
class _Job:
    name: str
    queue: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    size: int
    attempts: int
    attempt_seconds: float | None


class _AttemptTimeout(Exception):
    """An attempt at a job took longer than its ``AttemptDurationSeconds``."""


def find_job_faults(parameters: Any, *, is_template: bool = False) -> Iterator[Fault]:
    """Yield the faults of the parameters of a job that prevent that its command runs here.

    In a template, values of fields whose names end in ``.$`` are unknown, and not checked.

    Examples
    --------
    >>> [fault.where for fault in find_job_faults({"ArrayProperties": {"Size": 1}})]
    ['ContainerOverrides.Command', 'ArrayProperties.Size']
    """
    if not isinstance(parameters, dict):
        yield Fault("Parameters", format_value(parameters), "an object")
        return
    groups: dict[str, dict[str, Any]] = {}
    for name in ("ContainerOverrides", "ArrayProperties", "RetryStrategy", "Timeout"):
        value = parameters.get(name, {})
        groups[name] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            yield Fault(name, format_value(value), "an object")
    overrides = groups["ContainerOverrides"]
    is_dynamic = "ContainerOverrides.$" in parameters or "Command.$" in overrides
    if not (is_template and is_dynamic) and not _is_command(overrides.get("Command")):
        command = overrides.get("Command")
        asked = "nothing" if command is None else format_value(command)
        allowed = "the program and its arguments, which otherwise only the job definition has"
        advice = "map a task to the name of the job or of the state"
        yield Fault("ContainerOverrides.Command", asked, allowed, advice)
    pairs = overrides.get("Environment", [])
    if not isinstance(pairs, list) or not all(_is_pair(pair, is_template) for pair in pairs):
        allowed = "a list of objects with Name and Value"
        yield Fault("ContainerOverrides.Environment", format_value(pairs), allowed)
    for (group, name), (least, most) in _NUMBERS.items():
        number = groups[group].get(name)
        if number is not None and not (type(number) is int and least <= number <= most):
            allowed = f"a whole number from {least} to {most}"
            yield Fault(f"{group}.{name}", format_value(number), allowed)


def _is_command(value: Any) -> bool:
    is_texts = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return is_texts and bool(value) and bool(value[0])


def _is_pair(value: Any, is_template: bool) -> bool:
    return isinstance(value, dict) and all(
        name in value or (is_template and f"{name}.$" in value) for name in ("Name", "Value")
    )


def _read_job(parameters: Any) -> _Job:
    """Read the parameters that decide what runs; raise a StateError for those that cannot."""
    if faults := list(find_job_faults(parameters)):
        raise StateError("States.TaskFailed", "; ".join(map(str, faults)))
    overrides = parameters["ContainerOverrides"]
    pairs = overrides.get("Environment", [])
    name, queue = (str(parameters.get(key, "")) for key in ("JobName", "JobQueue"))
    return _Job(
        name or "job",
        queue,
        tuple(overrides["Command"]),
        {str(pair["Name"]): str(pair["Value"]) for pair in pairs},
        parameters.get("ArrayProperties", {}).get("Size") or 0,
        parameters.get("RetryStrategy", {}).get("Attempts") or 1,
        parameters.get("Timeout", {}).get("AttemptDurationSeconds"),
    )


def _run_child(
    jobs: BatchJobs,
    job: _Job,
    path: JsonLocation,
    job_id: str,
    index: int | None,
    deadline: float | None,
    limit: float | None,
    scope: ExecutionScope,
) -> str:
    """Run one program with its attempts; return the cause of its failure, empty if it succeeded.

    An attempt that exceeds its time limit is the last one, as in AWS Batch.
    """
    for attempt in range(1, job.attempts + 1):
        try:
            cause = _run_attempt(jobs, job, path, job_id, index, attempt, deadline, limit, scope)
        except _AttemptTimeout:
            label = job.name if index is None else f"{job.name}-{index}"
            return f"{label} exceeded its time limit of {job.attempt_seconds:g} s"
        if not cause:
            break
    return cause


def _run_attempt(
    jobs: BatchJobs,
    job: _Job,
    path: JsonLocation,
    job_id: str,
    index: int | None,
    attempt: int,
    deadline: float | None,
    limit: float | None,
    scope: ExecutionScope,
) -> str:
    """Run one program once; return the cause of its failure, empty if it succeeded."""
    label = job.name if index is None else f"{job.name}-{index}"
    variables = {
        # The interpreter's folder first, so that ``python`` is this one with its packages.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        "HOME": str(Path(jobs.folder).absolute()),
        "AWS_BATCH_JOB_ID": job_id if index is None else f"{job_id}:{index}",
        "AWS_BATCH_JQ_NAME": job.queue,
        "AWS_BATCH_JOB_ATTEMPT": str(attempt),
    }
    if index is not None:
        variables["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
        variables["AWS_BATCH_JOB_ARRAY_SIZE"] = str(job.size)
    with _open_log(jobs, path if index is None else (*path, index)) as log:
        begin = log.seek(0, os.SEEK_END)  # a retry adds to the log of the attempt before
        try:
            process = subprocess.Popen(  # noqa: S603 - the machine names the program
                job.command,
                cwd=jobs.folder,
                env={**variables, **job.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"{job.command[0]} cannot be started: {error}"
        with end_on_stop(process, scope):
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                limits = [each for each in (left, job.attempt_seconds) if each is not None]
                process.wait(min(limits, default=None))
            except subprocess.TimeoutExpired:
                if deadline is None or time.monotonic() < deadline:
                    raise _AttemptTimeout from None
                why = f"the task exceeded its time limit of {limit or 0:g} s"
                raise StateError(TIMEOUT, why) from None
        scope.check()
        if not process.returncode:
            return ""
        log.seek(max(begin, log.seek(0, os.SEEK_END) - _TAIL))
        tail = log.read().decode(errors="replace").strip()
    cause = f"{label} ended with exit status {process.returncode}"
    return f"{cause}: {tail}" if tail else cause


def _open_log(jobs: BatchJobs, path: JsonLocation) -> IO[bytes]:
    """Open the log of a program, or a temporary file if logs are not kept."""
    if jobs.logs is None:
        return tempfile.TemporaryFile()
    try:
        Path(jobs.logs).mkdir(parents=True, exist_ok=True)
        return Path(jobs.logs, log_name(path)).open("ab+")
    except OSError as error:
        why = f"the log of {format_location(path)} cannot be written: {error}"
        raise StateError("States.TaskFailed", why) from error


def log_name(path: JsonLocation) -> str:
    """Return the name of the log of a state, or of a child of its job; it is another for each.

    Names that cannot be those of files, or that have a point, are changed, and get a check sum.

    Examples
    --------
    >>> log_name(("Load all", 0, "clean")), log_name(("a/b",))
    ('Load all.0.clean.log', 'a-b-1693b0cf.log')
    """
    text = ".".join(map(str, path))
    is_plain = all(isinstance(part, int) or _PLAIN_NAME.fullmatch(part) for part in path)
    if not is_plain or len(text.encode(errors="replace")) > _MAX_LOG_NAME:
        digest = hashlib.sha256(json.dumps(path).encode()).hexdigest()[:8]
        short = re.sub(r"[^\w -]", "-", text).encode()[: _MAX_LOG_NAME // 2].decode(errors="ignore")
        text = f"{short.strip()}-{digest}"
    return f"{text}.log"
