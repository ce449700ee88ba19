"""Tasks that read their files in a mounted bucket: their command, manifest and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.notebook import SEND_VARIABLE
from hyperplane.jobs.runners.attempt_names import attempt_job_name, owning_job_id
from hyperplane.jobs.runners.staged_code import TaskFile
from hyperplane.jobs.runners.task_manifest import build_manifest, parse_pairs, with_notebook_program
from hyperplane.platforms.object_staging import StagingFolder

#: Labels of all jobs: the id of the job of hyperplane, and the unique name of the attempt.
JOB_LABEL, ATTEMPT_LABEL = "hyperplane-job", "hyperplane-attempt"
#: Folder of a container that has the buckets, which are mounted with Cloud Storage FUSE.
MOUNT = "/gcs"
#: Executes the text of task_program.py. It is fixed: user input is only in its arguments.
BOOTSTRAP = (
    "import hashlib,os,sys;"
    "b,k=sys.argv[1:3];"
    "t=open(os.path.join(b,k),'rb').read();"
    "hashlib.sha256(t).hexdigest() in k or sys.exit(k+' has changed');"
    "exec(compile(t,k,'exec'))"
)
#: Position of the path of the executed notebook in its command.
_OUTPUT = 3

Object = dict[str, Any]


class BucketTask(NamedTuple):
    """Task of one attempt.

    Parameters
    ----------
    name : str
        Unique name of the attempt.
    labels : dict
        Labels of its job.
    command, args : list of str
        Program of the container, and its arguments.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the task.
    """

    name: str
    labels: dict[str, str]
    command: list[str]
    args: list[str]
    manifest_key: str
    manifest: Object


class PlannedBucketJob(NamedTuple):
    """Requests of one attempt, before anything is sent.

    Parameters
    ----------
    job : dict
        Request that creates the job.
    manifest_key : str
        Key of the manifest in the bucket.
    manifest : dict
        Files, variables and program of the task.
    """

    job: Object
    manifest_key: str
    manifest: Object


def notebook_key(folder: StagingFolder, command: AttemptCommand) -> str:
    """Return the key of the executed notebook of an attempt in the bucket."""
    return folder.key("attempts", f"{attempt_job_name(command)}.ipynb")


def plan_task(
    command: AttemptCommand,
    step: Step,
    folder: StagingFolder,
    labels: Sequence[str],
    program: TaskFile,
    files: Sequence[TaskFile],
) -> BucketTask:
    """Return the task of an attempt.

    ``program`` is the program of the container, and ``files`` are those that it writes there.
    """
    name = attempt_job_name(command)
    keys = [folder.content_key(file.content, file.suffix) for file in files]
    manifest_key = folder.key("attempts", f"{name}.json")
    manifest = build_manifest([with_notebook_program(command, step)], step, files, keys)
    if step.kind == "notebook":
        _write_to_bucket(manifest, notebook_key(folder, command))
    return BucketTask(
        name,
        {**parse_pairs(labels), JOB_LABEL: owning_job_id(command), ATTEMPT_LABEL: name},
        ["python", "-c", BOOTSTRAP],
        [
            f"{MOUNT}/{folder.bucket}",
            folder.content_key(program.content, program.suffix),
            manifest_key,
        ],
        manifest_key,
        manifest,
    )


def _write_to_bucket(manifest: Object, key: str) -> None:
    """Let the executed notebook be an object of the mounted bucket, and not a part of the log.

    Cloud Logging does not keep the order of lines that are printed at the same time.
    """
    [task] = manifest["tasks"]
    task["argv"][_OUTPUT] = key
    manifest["paths"].remove(_OUTPUT)
    manifest["bucket_paths"] = [_OUTPUT]
    del manifest["variables"][SEND_VARIABLE]
