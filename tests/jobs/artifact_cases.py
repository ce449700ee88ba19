"""Helpers of the tests of artifacts: jobs in the store, with files that their steps have saved."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from job_cases import bash

from hyperplane.jobs import Artifact, Pipeline
from hyperplane.jobs.artifact_files import identify
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.artifact_records import find_suffix, kind_of_file
from hyperplane.jobs.store.job_records import DONE, Job
from hyperplane.jobs.store.jobs_home import open_store

#: One red pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c4944415408d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'
NASTY = "<script>alert('1')</script>&\"><b onload=x>"


def add_job(folder: Path, *steps: Any, **fields: Any) -> Job:
    """Store a job that has ended, with a separate folder."""
    job = new_job(Pipeline.from_steps("saving", steps or [bash("one", "true")], root=str(folder)))
    own = folder / "jobs" / job.id
    own.mkdir(parents=True)
    times = {"submitted": 1e9, "started": 1e9, "ended": 1e9 + 60}
    job = replace(job, **{"status": DONE, **times, "folder": str(own), **fields})
    open_store().add(job)
    return open_store().get(job.id)


def make_artifact(job: Job, path: Path, **fields: Any) -> Artifact:
    """Return the record of a file as it is now."""
    name = fields.get("name", path.name)
    found = identify(os.path.realpath(path))
    values = {
        "step": "one", "chunk": -1, "attempt": 1, "name": name, "kind": kind_of_file(name),
        "format": find_suffix(name), "url": os.path.realpath(path), "created": 1e9,
        "size": found and found.size, "identity": str(found or ""),
    }  # fmt: skip
    return Artifact(job.id, **{**values, **fields})


def save(job: Job, file: str, content: bytes, **fields: Any) -> Artifact:
    """Write a file into the folder of a job, and record it as an artifact."""
    path = Path(job.folder, "saved", *Path(file).parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    artifact = make_artifact(job, path, **{"name": file, **fields})
    open_store().save_artifacts([artifact])
    return artifact


def notebook(*outputs: Any, source: str = "plot()") -> bytes:
    """Return a notebook with a text and a cell with these outputs."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Delays\n", NASTY]},
        {
            "cell_type": "code", "metadata": {}, "source": source, "execution_count": 3,
            "outputs": list(outputs),
        },
    ]  # fmt: skip
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(document).encode()
