"""Program of a container: fetch the files of an attempt, and replace this by its program.

The container executes the text of this file, which it fetches from the bucket as well. The image
needs Python, and boto3 for a bucket of S3. It imports nothing of the package.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, MutableMapping
from typing import Any

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


def run_task(
    manifest: dict[str, Any], fetch: Callable[[str], bytes], folder: str, bucket: str = ""
) -> None:
    """Write the files of a task to a folder, and replace this process by its program.

    ``bucket`` is the folder of a bucket that is mounted.
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
    name = manifest["folder"]
    try:
        os.chdir(os.path.join(folder, name))  # noqa: PTH118
        name = argv[0]
        os.execvp(name, argv)  # noqa: S606 - a list of arguments, and no shell
    except OSError as error:
        sys.stderr.write(f"{name}: {error.strerror}\n")
        # The exit codes of a shell.
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


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


def main(bucket: str, key: str) -> None:
    """Run the task whose manifest is an object of a bucket of S3, or of a mounted one."""
    fetch = _folder_reader(bucket) if os.path.isabs(bucket) else _s3_reader(bucket)  # noqa: PTH117
    run_task(json.loads(fetch(key)), fetch, tempfile.mkdtemp(prefix="hyperplane-"), bucket)


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
    main(sys.argv[-3], sys.argv[-1])
