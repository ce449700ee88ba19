"""What the program of a driver needs for an attempt: its manifest, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hyperplane.core.units import gb_to_bytes
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners import driver_program
from hyperplane.jobs.runners.attempt_names import attempt_job_name
from hyperplane.jobs.runners.service_runner import ServiceRunnerSettings
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.jobs.runners.task_manifest import build_manifest, parse_pairs, with_notebook_program
from hyperplane.platforms.aws.task_sizes import least_memory
from hyperplane.platforms.object_staging import StagingFolder, parse_staging
from hyperplane.platforms.task_size import TaskSize

#: Tag of all jobs, with the id of the job of hyperplane.
JOB_TAG = "hyperplane-job"


class DriverSettings(ServiceRunnerSettings, Protocol):
    """Settings of a runner whose attempts are the programs of drivers."""

    @property
    def region(self) -> str | None:
        """Region of the services."""
        ...

    @property
    def cores(self) -> float:
        """Cores of steps that set none."""
        ...

    @property
    def ram_gb(self) -> float:
        """Memory of steps that set none."""
        ...

    @property
    def environ(self) -> Sequence[str]:
        """Variables of all steps."""
        ...


class DriverFiles(NamedTuple):
    """Manifest of an attempt, and the arguments of its driver.

    Parameters
    ----------
    name : str
        Name of the attempt.
    folder : StagingFolder
        Where the files are.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the attempt.
    script : str
        URL of the program of the driver.
    arguments : dict
        Its arguments, with their values.
    """

    name: str
    folder: StagingFolder
    manifest_key: str
    manifest: dict[str, Any]
    script: str
    arguments: dict[str, str]

    def words(self, log: str, seconds: int) -> list[str]:
        """Return the arguments of a driver that stores its output, and ends with its parent."""
        more = {driver_program.LOG: log, driver_program.SECONDS: str(seconds)}
        pairs = {**self.arguments, **{driver_program.PREFIX + key: more[key] for key in more}}
        return [word for pair in pairs.items() for word in pair]


class PlannedRun(NamedTuple):
    """Requests of an attempt, before anything is sent.

    Parameters
    ----------
    name : str
        Name of the attempt, which is that of its run.
    request : dict
        Request that starts the run.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the attempt.
    """

    name: str
    request: dict[str, Any]
    manifest_key: str
    manifest: dict[str, Any]


def read_driver_program() -> TaskFile:
    """Return the program of all drivers, which is an object of the staging folder."""
    file = Path(str(driver_program.__file__))
    return TaskFile(file.name, file.read_bytes())


def step_size(step: Step, memory_factor: float, settings: DriverSettings) -> TaskSize:
    """Return the cores, memory and GPUs that a step requests."""
    request = resource_request(step)
    memory = gb_to_bytes(settings.ram_gb) if request.memory is None else request.memory
    cores = settings.cores if request.cores is None else request.cores
    return TaskSize(cores, least_memory(memory * memory_factor), request.gpus)


def step_variables(settings: DriverSettings) -> dict[str, str]:
    """Return the variables of all steps."""
    region = {"AWS_DEFAULT_REGION": settings.region} if settings.region else {}
    return {**region, **parse_pairs(settings.environ)}


def outcome_key(folder: StagingFolder, name: str) -> str:
    """Return the key of the object with the exit code of an attempt."""
    return folder.key("attempts", f"{name}.exit")


def log_prefix(folder: StagingFolder, name: str) -> str:
    """Return the beginning of the keys of the objects with the output of an attempt."""
    return folder.key("attempts", f"{name}.log")


def plan_driver(
    command: AttemptCommand,
    step: Step,
    settings: DriverSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> DriverFiles:
    """Return what the driver of an attempt needs.

    ``program`` is the program that the driver runs, and ``files`` are those that it writes.
    """
    folder, name = parse_staging(str(settings.staging)), attempt_job_name(command)
    keys = [folder.content_key(file.content, file.suffix) for file in files]
    manifest_key = folder.key("attempts", f"{name}.json")
    manifest = build_manifest([with_notebook_program(command, step)], step, files, keys)
    manifest["variables"] = {**step_variables(settings), **manifest["variables"]}
    values = (
        folder.bucket,
        folder.content_key(program.content, program.suffix),
        manifest_key,
        outcome_key(folder, name),
    )
    arguments = {
        driver_program.PREFIX + each: value
        for each, value in zip(driver_program.ARGUMENTS, values, strict=True)
    }
    script = read_driver_program()
    url = folder.url(folder.content_key(script.content, script.suffix))
    return DriverFiles(name, folder, manifest_key, manifest, url, arguments)


def job_tags(tags: Mapping[str, str], job_id: str) -> list[dict[str, str]]:
    """Return tags, and that with the id of the job of hyperplane, in the form of Amazon."""
    return [{"Key": name, "Value": text} for name, text in {**tags, JOB_TAG: job_id}.items()]
