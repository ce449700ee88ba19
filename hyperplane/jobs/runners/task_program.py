"""Program of a container: fetch the files of an attempt, and replace this by what runs its program.

The container executes the text that ``container_program.py`` makes of this file, which it fetches
from the bucket as well. The image needs Python 3.7, and boto3 for a bucket of S3. It imports
nothing of the package.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

#: Name -> text of the files that run and measure the program of a step; the first is the program.
_SOURCES: dict[str, str] = {}
#: Variables of an array job. Steps do not see them, because timing decides which attempts are an
#: array; HYPERPLANE_SHARD_INDEX, CHUNK_ID and so on have the number of the chunk.
_INDEX, _SIZE = "AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE"
#: Worker pool of Vertex AI -> type of its tasks in TF_CONFIG.
_POOLS = {
    "workerpool0": "chief",
    "workerpool1": "worker",
    "workerpool2": "ps",
    "workerpool3": "evaluator",
}
_JOB_FOLDER = "HYPERPLANE_JOB_FOLDER"
#: Variable of the same name in ``measured_program.py``: LC_CTYPE of the step.
_LOCALE = "HYPERPLANE_JOB_LC_CTYPE"
_TRIAL_ID, _JOB_DIR = "CLOUD_ML_TRIAL_ID", "--job-dir"


def run_task(
    manifest: dict[str, Any],
    fetch: Callable[[str], bytes],
    folder: str,
    bucket: str = "",
    trial_arguments: Sequence[str] = (),
) -> None:
    """Write the files of a task to a folder, and replace this process by what runs its program.

    ``bucket`` is the folder of a bucket that is mounted, and ``trial_arguments`` are those that a
    tuning job of Vertex AI adds, such as ``--rate=0.1``.
    """
    index = int(os.environ.pop(_INDEX, "0"))
    os.environ.pop(_SIZE, None)
    task = manifest["tasks"][index]
    paths = []
    for file in manifest["files"]:
        content = fetch(file["key"])
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            sys.exit(f"{file['key']} has changed since the step was submitted")
        path = os.path.join(folder, file["path"])  # noqa: PTH118 - few imports
        if file["archive"]:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for entry in archive.infolist():
                    extracted = archive.extract(entry, path)
                    if entry.external_attr >> 16:  # extract() ignores permissions
                        os.chmod(extracted, entry.external_attr >> 16)  # noqa: PTH101
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
            with open(path, "wb") as target:  # noqa: PTH123
                target.write(content)
        if file["importable"]:
            paths.append(path)
    # Without packages, whose import takes longer than this program, and without the variables of
    # the step, whose modules may have the names of standard ones. PYTHONHOME may be of the image.
    options = "-S" if os.environ.get("PYTHONHOME") else "-ES"
    os.environ.update(manifest["variables"])
    os.environ.update(task["variables"])
    if not os.path.isabs(os.environ.get(_JOB_FOLDER, "/")):  # noqa: PTH117
        os.environ[_JOB_FOLDER] = folder
    if paths:
        other = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        os.environ["PYTHONPATH"] = os.pathsep.join(paths + other)
    argv = task["argv"]
    for position in manifest["paths"]:  # absolute ones stay unchanged
        argv[position] = os.path.join(folder, argv[position])  # noqa: PTH118
    for position in manifest.get("bucket_paths", ()):
        argv[position] = os.path.join(bucket, argv[position])  # noqa: PTH118
    set_tf_config(os.environ)
    argv += [*trial_arguments]
    set_trial(os.environ, argv)
    program = _write_sources(f"{folder}-program")  # not among the files of the step
    os.environ[_LOCALE] = os.environ.get("LC_CTYPE", "")
    python, name = sys.executable, manifest["folder"]
    try:
        os.chdir(os.path.join(folder, name))  # noqa: PTH118
        name = python
        os.execv(python, [python, options, program, *argv])  # noqa: S606 - no shell
    except OSError as error:
        sys.stderr.write(f"{name}: {error.strerror}\n")
        # The exit codes of a shell.
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _write_sources(folder: str) -> str:
    """Write the files that run the program of a step; return the path of the first one."""
    # Its name can be guessed: on a machine of several users another one may have created it.
    os.mkdir(folder, 0o700)  # noqa: PTH102
    paths = [os.path.join(folder, name) for name in _SOURCES]  # noqa: PTH118
    for path, text in zip(paths, _SOURCES.values()):  # noqa: B905 - Python 3.7
        with open(path, "w", encoding="utf-8") as target:  # noqa: PTH123
            target.write(text)
    return paths[0]


def set_tf_config(environment: MutableMapping[str, str]) -> None:
    """Set TF_CONFIG for the machines of a Vertex AI job, unless the service has set it.

    Nothing is set for a job of one machine.
    """
    spec = json.loads(environment.get("CLUSTER_SPEC") or "{}")
    pools = spec.get("cluster", {})
    if "TF_CONFIG" in environment or sum(map(len, pools.values())) <= 1:
        return
    cluster = {_POOLS[name]: hosts for name, hosts in pools.items() if hosts}
    cluster.pop("evaluator", None)  # never a part of it
    task = spec["task"]
    config = {
        "cluster": cluster,
        "task": {"type": _POOLS[task["type"]], "index": task["index"]},
        "environment": "cloud",
    }
    environment["TF_CONFIG"] = json.dumps(config)


def set_trial(environment: MutableMapping[str, str], argv: list[str]) -> None:
    """Set CLOUD_ML_TRIAL_ID in a trial of a tuning job, and add its number to ``--job-dir``."""
    spec = json.loads(environment.get("CLUSTER_SPEC") or "{}")
    trial = environment.get(_TRIAL_ID) or spec.get("task", {}).get("trial")
    if not trial:
        return
    environment[_TRIAL_ID] = str(trial)
    if _JOB_DIR in argv[:-1]:
        position = argv.index(_JOB_DIR) + 1
        argv[position] = argv[position].rstrip("/") + f"/{trial}"


def main(bucket: str, key: str, *trial_arguments: str) -> None:
    """Run the task whose manifest is an object of a bucket of S3, or of a mounted one."""
    fetch = _folder_reader(bucket) if os.path.isabs(bucket) else _s3_reader(bucket)  # noqa: PTH117
    folder = tempfile.mkdtemp(prefix="hyperplane-")
    run_task(json.loads(fetch(key)), fetch, folder, bucket, trial_arguments)


def _s3_reader(bucket: str) -> Callable[[str], bytes]:
    """Return a function that reads an object of a bucket of S3."""
    import boto3

    client = boto3.client("s3")

    def fetch(name: str) -> bytes:
        content: bytes = client.get_object(Bucket=bucket, Key=name)["Body"].read()
        return content

    return fetch


def _folder_reader(folder: str) -> Callable[[str], bytes]:
    """Return a function that reads an object of a bucket that is mounted as a folder."""

    def fetch(name: str) -> bytes:
        with open(os.path.join(folder, name), "rb") as source:  # noqa: PTH118, PTH123
            return source.read()

    return fetch


if __name__ == "__main__":
    # The second argument is the key of this program.
    main(sys.argv[1], *sys.argv[3:])
