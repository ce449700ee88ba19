"""Gang steps as the tasks of one batch job of a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gang_cases import gang, train
from job_cases import wait_until
from runner_cases import make_job
from services_slurm import slurm

from hyperplane.jobs import Pipeline, Resources, Step, submit
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _slurm():
    with slurm():
        yield


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    wait_until(lambda: queue() == [], 60)


def queue():
    words = ["squeue", "--me", "--noheader", "--format=%i %C"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def run(*steps, **options):
    job = submit(Pipeline.from_steps("test", steps), runner="slurm", **options)
    job.wait(150)
    return job


def read_log(job, number=1):
    [log] = Path(job.job.folder).rglob(f"attempt-{number}.log")
    return log.read_text()


def test_ranks_meet_and_have_their_own_cores(folder):
    job = run(gang(3, resources=Resources(cores=2, ram_gb=0.5)))
    assert job.status == DONE, read_log(job)
    assert (folder / "sum").read_text() == "3 0"
    lines = [line for line in read_log(job).splitlines() if " | " in line]
    assert sorted(lines) == [f"rank {rank} | begins {rank} of 3 restarts 0" for rank in range(3)]


def test_a_killed_rank_ends_all_and_the_retry_restarts_all(folder):
    job = run(gang(2, "kill"), max_retries=1)
    assert job.status == DONE, read_log(job)
    assert (folder / "sum").read_text() == "1 1"
    first, second = sorted(job.attempts, key=lambda attempt: attempt.number)
    assert (first.status, first.exit_code, second.status) == (FAILED, -9, DONE)
    assert first.reason.startswith("rank 1: ended by SIGKILL")
    assert "rank 0 | begins 0 of 2 restarts 1" in read_log(job, 2)


def test_the_failure_is_that_of_the_first_rank_and_is_not_retried():
    job = run(gang(2, "fail"), max_retries=3)
    [attempt] = job.attempts
    assert (job.status, attempt.exit_code, attempt.fault) == (FAILED, 1, "input")
    assert attempt.reason == (
        "rank 1: exit code 1: ValueError: no such column; not retried, because it would fail again"
    )


def test_cancelling_ends_all_ranks(folder):
    script = "touch $RANK.begun; sleep 600"
    step = Step(name="a", kind="command", argv=("bash", "-c", script), gang=2)
    job = submit(Pipeline.from_steps("test", [step]), runner="slurm")
    wait_until(lambda: len(list(folder.glob("*.begun"))) == 2, 60)
    began = time.monotonic()
    job.cancel()
    assert job.wait(60) == CANCELLED
    assert time.monotonic() - began < 30


def test_chunks_are_gangs(folder):
    job = run(gang(2, chunks=2))
    assert job.status == DONE, [attempt.reason for attempt in job.attempts]
    assert [(folder / f"sum{chunk}").read_text() for chunk in range(2)] == ["1 0", "1 0"]


def test_a_training_program_ends_with_its_primary():
    began = time.monotonic()
    job = run(train(0))
    assert job.status == DONE, read_log(job)
    assert len(list(Path("out").glob("*.json"))) == 4
    assert time.monotonic() - began < 60


def test_the_command_line_runs_the_definition_of_this_machine(folder):
    train(0)  # writes the program
    words = ["train", "--module-name", "trainer.task", "--package-path", "trainer/"]
    words += ["--distributed", "--worker-count", "1", "--parameter-server-count", "1"]
    words += ["--evaluator-count", "1"]
    records = {}
    for runner in ("local", "slurm"):
        done = subprocess.run(
            [
                *(sys.executable, "-c", "from hyperplane.cli import main; main()"),
                *(*words, "--job-dir", runner, "--runner", runner, "--", "0"),
            ],
            capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(file.read_text()) for file in Path(runner).glob("*.json")]
        records[runner] = sorted(
            (each["config"]["task"]["type"], each["rank"], each["size"], each["argv"][:2])
            for each in found
        )
    assert len(records["slurm"]) == 4
    assert records["slurm"] == records["local"]


def test_a_rendered_gang_runs_and_restarts(folder):
    job = make_job(gang(2, "kill", chunks=1, retries=1), root=folder)
    scripts = folder / "scripts"
    scripts.mkdir()
    for document in render("slurm", job):
        (scripts / document.name).write_text(document.text)
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    script = scripts / "000-meet.sbatch"
    text = script.read_text()
    assert "--ntasks=2" in text
    script.write_text(text.replace("exec env", f"exec env HYPERPLANE_CHECKPOINTS={checkpoints}"))
    subprocess.run(["bash", str(scripts / "submit.sh")], check=True)
    wait_until(lambda: queue() == [], 120)
    [log] = scripts.glob("logs/*.log")
    assert (folder / "sum0").read_text() == "1 1", log.read_text()
