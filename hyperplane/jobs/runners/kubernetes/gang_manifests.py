"""Manifests of a gang step: an Indexed Job, a Service with the names of its pods, and programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperplane.clusters import gang_plan, program_environment, rank_environment
from hyperplane.jobs.gang import rank_program
from hyperplane.jobs.runners.kubernetes.step_pod import FOLDER
from hyperplane.platforms.kubernetes.objects import build_owner_reference
from hyperplane.platforms.kubernetes.staged_files import StagedFile

#: Folder of the programs that start the processes of a gang in pods.
PROGRAM_FOLDER = f"{FOLDER}/.hyperplane"
#: Programs that the image need not have; the first starts a process.
_MODULES = (rank_program, gang_plan, program_environment, rank_environment)


def gang_words(name: str) -> list[str]:
    """Return the words before the program of a process in a pod; ``name`` is that of the Job."""
    program = str(rank_program.__file__).rpartition("/")[2]
    return ["python", f"{PROGRAM_FOLDER}/{program}", "kubernetes", name]


def add_gang_fields(job: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the Indexed Job of a gang, in whose subdomain the pods find each other."""
    spec, name = job["spec"], job["metadata"]["name"]
    indexed = {"completionMode": "Indexed", "completions": size, "parallelism": size}
    template = spec["template"]
    pod = {"subdomain": name, **template["spec"]}
    return {**job, "spec": {**indexed, **spec, "template": {**template, "spec": pod}}}


def build_gang_service(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headless Service that gives the pods of a Job their names; the Job owns it."""
    name = job["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": dict(job["metadata"]["labels"]),
            "ownerReferences": [build_owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {"job-name": name},
            # A process waits for the names of all others before it begins.
            "publishNotReadyAddresses": True,
        },
    }


def stage_gang_program() -> list[StagedFile]:
    """Return the files of the program that starts the processes."""
    files = [Path(str(module.__file__)) for module in _MODULES]
    return [
        StagedFile(f"hyperplane-gang-{number}", f"{PROGRAM_FOLDER}/{file.name}", file.read_bytes())
        for number, file in enumerate(files)
    ]
