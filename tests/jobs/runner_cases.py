"""Helpers of the tests of runners."""

import os
import subprocess

import fake_slurm

from hyperplane.jobs import Pipeline, Resources, Step
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.store.job_records import Job

#: Texts that need quoting in a shell, in YAML, in a Slurm script or in a manifest.
HOSTILE = (
    "$(touch canary)", "`touch canary`", "; touch canary #", "it's", 'say "no"', "a\nb", "a\r\nb\n",
    "#SBATCH --array=0-999", "x\n#SBATCH --wrap=touch\n#PBS -l x", "\\", "\\n", "$HOME", "${PATH}",
    "$(PATH)", "$$(PATH)", "$é", "$", "$$", "*", "~", "{a,b}", "[0]=x", "!!", "-n", "--", "%j%A",
    "größer 数 🚀", " ", "\t", "", "y", "no", "1e3", "0x1f", "1_000", "010", "null", "a: b", "- x",
    "key=value", "\x07\x1b[31m\x7f", "\u2028\x85\ufeff", "&x", "*y", "!!python/object:x", "|", "> ",
)  # fmt: skip


def make_job(*steps, root="/data/flights", requirements=None, **options):
    """Make a job of these steps that is the same each time."""
    pipeline = Pipeline(name="p", steps=steps, root=str(root), requirements=requirements)
    values = {
        "id": "6f1d2c3b-0000-4000-8000-000000000001",
        "run_id": "6f1d2c3b-0000-4000-8000-000000000002",
        "name": "brisk_otter",
        "job_type": "basic",
        "status": "pending",
        "submitted": 0.0,
        "timeout": -1.0,
        "active_timeout": 3600.0,
        "max_retries": 0,
        "parameters": {},
        "machine": "here",
        "runner": "local",
        "python": "/usr/bin/python3",
        "folder": "/home/user/jobs/6f1d2c3b",
    }
    return Job(definition=pipeline.to_json(), **{**values, **options})


def command(name, *argv, **options):
    """Return a step that runs a program."""
    return Step(name=name, kind="command", argv=argv, **options)


def typical():
    """Return a job that uses most features of pipelines."""
    return make_job(
        Step(
            name="clean the data",
            kind="python",
            path="steps/clean.py",
            resources=Resources(pool="16_16"),
            secrets=("database/password", "API_TOKEN"),
            depends_on=(),
        ),
        Step(
            name="years",
            kind="notebook",
            path="years.ipynb",
            output_path="out/years.ipynb",
            foreach=("2013", "2014 (half)", "it's 2015"),
            max_parallel=2,
            retries=2,
            timeout=600,
            resources=Resources(cores=1.5, ram_gb=4, gpus=1),
            env={"MODE": "fast; not $cheap"},
            depends_on=("clean the data",),
        ),
        command("parts", "stat", "-c", "%n", "a b", chunks=10, retries=0, depends_on=()),
        Step(
            name="report",
            kind="bash",
            path="report.sh",
            cluster={"nprocs": 1},
            port=8787,
            working_dir="reports",
            depends_on=("years", "parts"),
        ),
        parameters={"model-name": 'a "b" $c', "home": "/tmp"},
    )


def submit_rendered(job, folder, variables=None, **options):
    """Submit a rendered job to the fake Slurm; return its folder and the process of submit.sh."""
    scripts, state = folder / "the scripts", folder / "slurm"
    scripts.mkdir()
    state.mkdir(exist_ok=True)
    fake_slurm.install(state)
    for document in render("slurm", job, **options):
        (scripts / document.name).write_text(document.text, encoding="utf-8", newline="")
    done = subprocess.run(
        ["bash", "the scripts/submit.sh"],
        cwd=folder,
        env={**os.environ, "PATH": f"{state}:{os.environ['PATH']}", **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return state, done


def run_rendered(job, folder, variables=None, **options):
    """Run a rendered job; return exit codes and the most concurrent tasks of each batch job."""
    state, done = submit_rendered(job, folder, variables, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return fake_slurm.run(state)
