"""Rendered files of a job that uses most features, compared with the golden files.

``HYPERPLANE_WRITE_GOLDEN=1 pytest tests/jobs/exporters/test_exporters_golden.py`` writes them anew.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import dask
import pytest
from runner_cases import typical

import hyperplane
from hyperplane.jobs import Resources
from hyperplane.jobs.exporters.registry import render

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "jobs"
OPTIONS = {
    "slurm": {"python": "/opt/python/bin/python"},
    "kubernetes": {"image": "registry.example/flights:1", "root": "/srv/flights"},
    "aws-batch": {
        "image": "registry.example/flights:1",
        "root": "/srv/flights",
        "queue": "nightly",
        "staging": "s3://flights/jobs",
        "region": "eu-west-1",
        "execution_role": "arn:aws:iam::123456789012:role/start",
    },
    "vertex": {
        "image": "registry.example/flights:1",
        "root": "/srv/flights",
        "project": "flights-test",
        "staging": "gs://flights/jobs",
        "region": "us-central1",
        "series": "n1",
        "gpu_type": "NVIDIA_TESLA_T4",
    },
    "glue": {
        "role": "arn:aws:iam::123456789012:role/glue",
        "staging": "s3://flights/jobs",
        "region": "us-east-1",
        "job_type": "glueetl",
        "workers": 4,
    },
    "emr-serverless": {
        "application": "00f1r2example",
        "role": "arn:aws:iam::123456789012:role/serverless",
        "staging": "s3://flights/jobs",
        "region": "us-east-1",
        "python": "python3.11",
    },
    "emr": {"staging": "s3://flights/jobs", "region": "us-east-1", "python": "python3.11"},
    "cloud-run": {
        "image": "registry.example/flights:1",
        "root": "/srv/flights",
        "project": "flights-test",
        "staging": "gs://flights/jobs",
        "region": "us-central1",
        "service_account": "steps@flights-test.iam.gserviceaccount.com",
    },
}

#: What the step with secrets has in place of what a runner refuses.
CHANGES = {
    "vertex": {"secrets": ()},
    "glue": {"secrets": ()},
    "emr": {"secrets": ()},
    "emr-serverless": {"secrets": ()},
    "cloud-run": {"resources": Resources(cores=4, ram_gb=12)},
}


def exported(runner, folder):
    """Return a typical job without what a runner refuses."""
    job, changes = typical(), CHANGES.get(runner, {})
    steps = [
        step.model_copy(update=changes) if step.secrets else step for step in job.pipeline.steps
    ]
    changed = {}
    if runner in (
        "glue",
        "emr",
        "emr-serverless",
    ):  # they have no GPUs, and no image with the files
        for name in ("steps/clean.py", "years.ipynb", "report.sh"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("")
        resources = steps[1].resources.model_copy(update={"gpus": 0})
        steps[1] = steps[1].model_copy(update={"resources": resources})
        changed["root"] = str(folder)
    pipeline = job.pipeline.model_copy(update={"steps": tuple(steps), **changed})
    return replace(job, definition=pipeline.to_json())


@pytest.mark.parametrize("runner", OPTIONS)
def test_rendered_files_equal_the_expected_ones(runner, tmp_path):
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:"
    settings = {
        "hyperplane.jobs.retry_wait": "1s",
        "hyperplane.jobs.retry_wait_most": "60s",
        "hyperplane.runners.aws_batch.secrets": [
            f"database/password={arn}database",
            f"API_TOKEN={arn}token",
        ],
        "hyperplane.runners.cloud_run.secrets": [
            "database/password=flights-database:3",
            "API_TOKEN=projects/others/secrets/token",
        ],
        "hyperplane.runners.glue.python_modules": ["ipykernel", "nbclient"],
        "hyperplane.runners.emr.python_modules": ["ipykernel", "nbclient"],
    }
    with dask.config.set(settings):
        documents = render(runner, exported(runner, tmp_path), **OPTIONS[runner])
    # The location of this package differs between machines.
    package_folder = str(Path(hyperplane.__file__).parent)
    texts = {
        # The hashes of files of this package differ between its versions.
        document.name: re.sub(
            "[0-9a-f]{64}",
            "SHA256",
            document.text.replace(package_folder, "/site-packages/hyperplane"),
        )
        for document in documents
    }
    folder = GOLDEN / runner
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert texts == {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
