"""Run the tasks of a job on this machine as a service would run them, without an account."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Protocol

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import stating_outcome
from hyperplane.jobs.definition.dependencies import waves
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
from hyperplane.jobs.runners.rehearsed_task import (
    MemoryLimit,
    RehearsalLimits,
    RehearsedTask,
    TaskOutcome,
    end_tasks,
    secret_values,
)
from hyperplane.jobs.runners.staged_code import StagedCodeSettings, TaskFile, collect_files
from hyperplane.jobs.runners.task_manifest import build_manifest, with_notebook_program
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.local.machine import total_ram
from hyperplane.platforms.local.memory_group import create_memory_group
from hyperplane.platforms.local.network_namespace import find_refusal
from hyperplane.platforms.task_size import TaskSize

_MIB = 1 << 20
#: Bytes of the group that shows whether groups can be created.
_TRIED_BYTES = 64 * _MIB
#: Seconds between two looks at tasks that run at the same time.
_POLL_SECONDS = 0.05


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

    def describe_rehearsal(self) -> list[str]:
        """Return in what containers of the service differ from a rehearsal, as lines of text."""
        ...


class _PreparedTask(NamedTuple):
    """A task that has not been started."""

    step: Step
    chunk: int
    manifest: dict[str, object]
    files: dict[str, TaskFile]
    variables: dict[str, str]
    size: TaskSize


def resolve_limits(
    memory: str, network: bool, parallel: int
) -> tuple[RehearsalLimits, list[Fault]]:
    """Return how tasks are limited, and the faults of what this user may not do here.

    Parameters
    ----------
    memory : str
        ``auto`` for a control group where one can be created, else ``cgroup`` or ``rlimit``.
    network : bool
        Whether tasks can access the network of this machine.
    parallel : int
        Maximum tasks that run at the same time.
    """
    faults: list[Fault] = []
    chosen: MemoryLimit = "rlimit"
    if memory not in ("auto", "cgroup", "rlimit"):
        faults.append(Fault("--memory-limit", repr(memory), "one of auto, cgroup, rlimit"))
    elif memory != "rlimit":
        group = create_memory_group(_TRIED_BYTES)
        if group is not None:
            group.close()
            chosen = "cgroup"
        elif memory == "cgroup":
            allowed = "a control group below that of this process, which this user may create"
            advice = "give --memory-limit rlimit, which limits each process separately"
            faults.append(Fault("--memory-limit", "'cgroup'", allowed, advice))
    if parallel < 1:
        faults.append(Fault("--parallel", str(parallel), "a number of tasks, at least 1"))
    if not network and sys.platform.startswith("linux") and (reason := find_refusal()):
        allowed = f"a system on which this user may create a network namespace ({reason})"
        advice = "give --network: tasks then have the network of this machine"
        faults.append(Fault("--network", "not given", allowed, advice))
    return RehearsalLimits(chosen, network, parallel), faults


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
        _, missing = secret_values(step.secrets)
        for name in missing:
            allowed = "a secret whose value this machine has"
            yield Fault(f"step {step.name!r}: secrets", repr(name), allowed)


def rehearse(
    job: Job,
    runner: RehearsedRunner,
    *,
    all_chunks: bool,
    report: Callable[[TaskOutcome], None],
    limits: RehearsalLimits = RehearsalLimits(),  # noqa: B008 - it is immutable
) -> bool:
    """Run the tasks of a job in the order of dependencies; return whether all succeeded.

    Parameters
    ----------
    job : Job
        The job, with resources in place of the pool ``auto``.
    runner : RehearsedRunner
        The runner with its options; nothing is sent.
    all_chunks : bool
        Whether all chunks of a step run, or only the first.
    report : callable
        Called with the outcome of each task. After one that failed, no other one starts.
    limits : RehearsalLimits, optional
        How tasks are limited; one after the other, with the network, and a limit of memory for
        each process by default.

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
        tasks = (
            task
            for name in wave
            for task in _prepare(job, in_container, steps[name], moved[name], runner, all_chunks)
        )
        if not _run_tasks(tasks, limits, report):
            return False
    return True


def _prepare(
    job: Job,
    in_container: Job,
    step: Step,
    moved: Step,
    runner: RehearsedRunner,
    all_chunks: bool,
) -> Iterator[_PreparedTask]:
    """Yield the tasks of a step, or the first one."""
    commands = list(first_attempts(job, in_container, step, moved))
    files = collect_files(commands[0], step, job.pipeline.root, runner.settings)
    keys = [str(number) for number in range(len(files))]
    prepared = [with_notebook_program(command, step) for command in commands]
    size = runner.task_size(with_sizes(step), 1.0) or TaskSize(1, 1)  # the check has found it
    manifest = build_manifest(prepared, step, files, keys) if runner.max_array > 1 else {}
    for index in range(len(commands) if all_chunks else 1):
        yield _PreparedTask(
            step,
            index if step.chunk_count else -1,
            # The index of a task is its position among those of the same job.
            manifest or build_manifest(prepared[index : index + 1], step, files, keys),
            dict(zip(keys, files, strict=True)),
            runner.task_variables(step, index, len(commands)),
            size,
        )


def _run_tasks(
    tasks: Iterator[_PreparedTask], limits: RehearsalLimits, report: Callable[[TaskOutcome], None]
) -> bool:
    """Run tasks, some at the same time; start none after one that failed."""
    running: list[RehearsedTask] = []
    succeeded = True
    try:
        while True:
            while succeeded and len(running) < limits.parallel:
                prepared = next(tasks, None)
                if prepared is None:
                    break
                running.append(RehearsedTask(*prepared, limits))
            if not running:
                return succeeded
            for task in tuple(running):
                outcome = task.wait(_POLL_SECONDS / len(running))
                if outcome is not None:
                    running.remove(task)
                    task.close()
                    report(outcome)
                    succeeded = succeeded and outcome.code == 0
    finally:
        end_tasks(running)


def describe_differences(
    job: Job,
    runner: RehearsedRunner,
    limits: RehearsalLimits = RehearsalLimits(),  # noqa: B008 - it is immutable
) -> list[str]:
    """Return in what a rehearsal differs from the service, as lines of text."""
    version = ".".join(map(str, sys.version_info[:3]))
    image = runner.settings.image or "of the containers"
    sizes = [runner.task_size(with_sizes(step), 1.0) for step in job.pipeline.steps]
    cores = max((size.cores for size in sizes if size is not None), default=0)
    lines = [
        f"the image {image} is not used: Python {version} and the packages of this environment are",
        _describe_memory_limit(limits),
        f"cores are not limited: at most {cores:g} in a container, {os.cpu_count()} here",
        "the files of this machine can be accessed; a container has those of its image",
        _describe_network(runner, limits),
        f"no credentials of {runner.vendor} are passed on, and the permissions of the roles are "
        "not tested",
    ]
    if limits.parallel == 1:
        lines.append(f"tasks run one after the other; on {runner.title} chunks run at once")
    else:
        lines.append(
            f"at most {limits.parallel} tasks run at once, which share the cores of this machine"
        )
    lines += runner.describe_rehearsal()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    largest = max((size.memory * _MIB for size in sizes if size is not None), default=0)
    if resource.RLIM_INFINITY != hard < largest:
        lines.append(
            f"processes here may have at most {hard} bytes of data (ulimit -d), less than the "
            f"{largest} bytes of a container"
        )
    ram = total_ram()
    if ram < largest * limits.parallel:
        lines.append(
            f"this machine has {ram} bytes of memory, less than the {largest * limits.parallel} "
            "bytes that its containers may use"
        )
    if any(size is not None and size.gpus for size in sizes):
        lines.append("GPUs are those of this machine, if it has any")
    return lines


def _describe_memory_limit(limits: RehearsalLimits) -> str:
    if limits.memory == "cgroup":
        return (
            "memory is limited by a control group for all processes of a task together, as in a "
            "container; swap is not used"
        )
    return (
        "memory is limited as the data of each process (RLIMIT_DATA), not of all together: a step "
        "with several processes may use more than in its container"
    )


def _describe_network(runner: RehearsedRunner, limits: RehearsalLimits) -> str:
    if limits.network:
        return (
            f"the network of this machine can be accessed; on {runner.title} that of its settings"
        )
    return (
        "there is no network but the loopback interface, so that stores and services cannot be "
        f"reached; on {runner.title} there is the network of its settings"
    )
