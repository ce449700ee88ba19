"""Requests to Vertex AI for attempts: the custom job, and the manifest of its task."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.notebook import SEND_VARIABLE
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.step_resources import grace_seconds
from hyperplane.jobs.runners.task_manifest import build_manifest, parse_pairs, with_notebook_program
from hyperplane.jobs.runners.vertex.machines import step_machine
from hyperplane.platforms.object_staging import StagingFolder, parse_staging
from hyperplane.spec.settings import VertexSettings

#: Labels of all jobs: the id of the job of hyperplane, and the unique name of the attempt.
JOB_LABEL, ATTEMPT_LABEL = "hyperplane-job", "hyperplane-attempt"
#: Folder of a container that has all buckets, which Vertex AI mounts with Cloud Storage FUSE.
MOUNT = "/gcs"
#: Executes the text of task_program.py. It is fixed: user input is only in its arguments.
BOOTSTRAP = (
    "import hashlib,os,sys;"
    "b,k=sys.argv[1:3];"
    "t=open(os.path.join(b,k),'rb').read();"
    "hashlib.sha256(t).hexdigest() in k or sys.exit(k+' has changed');"
    "exec(compile(t,k,'exec'))"
)
#: Seconds that Vertex AI waits longer than the supervisor, which ends attempts at their time limit.
_TIMEOUT_MARGIN = 120
#: Name of the service in errors.
SYSTEM = "Vertex AI"

#: Position of the path of the executed notebook in its command.
_OUTPUT = 3

Object = dict[str, Any]


class PlannedCustomJob(NamedTuple):
    """Requests of one attempt, before anything is sent.

    Parameters
    ----------
    job : dict
        Request that creates the custom job.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the task.
    """

    job: Object
    manifest_key: str
    manifest: Object


def attempt_seconds(timeout: float) -> int:
    """Return the seconds after which Vertex AI ends an attempt, also without a supervisor."""
    return math.ceil(timeout + grace_seconds()) + _TIMEOUT_MARGIN


def pool_counts(step: Step) -> list[int]:
    """Return the machines in each worker pool of a step.

    The pools of a training program are those of its primary, workers, parameter servers and
    evaluators. A pool without machines is empty, and left out at the end.

    Examples
    --------
    >>> step = Step(name="fit", kind="train", module_name="trainer.task", parameter_server_count=2)
    >>> pool_counts(step)
    [1, 0, 2]
    """
    counts = [1, step.worker_count, step.parameter_server_count, step.evaluator_count]
    while not counts[-1]:
        counts.pop()
    return counts


def notebook_key(folder: StagingFolder, command: AttemptCommand) -> str:
    """Return the key of the executed notebook of an attempt in the bucket."""
    return folder.key("attempts", f"{attempt_job_name(command)}.ipynb")


def plan_job(
    command: AttemptCommand,
    step: Step,
    memory_factor: float,
    settings: VertexSettings,
    program: TaskFile,
    files: Sequence[TaskFile],
) -> PlannedCustomJob:
    """Return the requests for one attempt.

    ``program`` is the program of the container, and ``files`` are those that it writes there.
    Raises OSError if there is no machine that is large enough.
    """
    machine = step_machine(step, memory_factor, settings)
    if machine is None:
        raise OSError(errno.EPERM, "no machine of Vertex AI is large enough", SYSTEM)
    folder, name = parse_staging(str(settings.staging)), attempt_job_name(command)
    keys = [folder.content_key(file.content, file.suffix) for file in files]
    manifest_key = folder.key("attempts", f"{name}.json")
    machine_spec: Object = {"machineType": machine.name}
    if machine.gpus:
        machine_spec |= {"acceleratorType": machine.gpu_type, "acceleratorCount": machine.gpus}
    container: Object = {
        "imageUri": settings.image,
        "command": ["python", "-c", BOOTSTRAP],
        "args": [
            f"{MOUNT}/{folder.bucket}",
            folder.content_key(program.content, program.suffix),
            manifest_key,
        ],
        "env": [
            # Vertex AI replaces $(NAME) in values by the value of the variable.
            {"name": variable, "value": text.replace("$(", "$$(")}
            for variable, text in parse_pairs(settings.environ).items()
        ],
    }
    scheduling: Object = {"disableRetries": True}  # the supervisor retries
    if step.timeout is not None:
        scheduling["timeout"] = f"{attempt_seconds(step.timeout)}s"
    if settings.spot:
        scheduling["strategy"] = "SPOT"
    pool: Object = {
        "machineSpec": machine_spec,
        "diskSpec": {"bootDiskSizeGb": settings.disk_gb},
        "containerSpec": container,
    }
    spec: Object = {
        "workerPoolSpecs": [
            {**pool, "replicaCount": str(count)} if count else {} for count in pool_counts(step)
        ],
        "scheduling": scheduling,
    }
    if settings.service_account:
        spec["serviceAccount"] = settings.service_account
    if settings.network:
        spec["network"] = settings.network
    labels = {JOB_LABEL: owning_job_id(command), ATTEMPT_LABEL: name}
    job = {
        "displayName": name,
        "labels": {**parse_pairs(settings.labels), **labels},
        "jobSpec": spec,
    }
    manifest = build_manifest([with_notebook_program(command, step)], step, files, keys)
    if step.kind == "notebook":
        _write_to_bucket(manifest, notebook_key(folder, command))
    return PlannedCustomJob(job, manifest_key, manifest)


def _write_to_bucket(manifest: Object, key: str) -> None:
    """Let the executed notebook be an object of the mounted bucket, and not a part of the log.

    Cloud Logging does not keep the order of lines that are printed at the same time.
    """
    [task] = manifest["tasks"]
    task["argv"][_OUTPUT] = key
    manifest["paths"].remove(_OUTPUT)
    manifest["bucket_paths"] = [_OUTPUT]
    del manifest["variables"][SEND_VARIABLE]
