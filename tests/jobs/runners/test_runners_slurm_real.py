"""Steps as batch jobs of a real Slurm: environment, retries and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_cases import bash, run_job, submit_job
from services_slurm import slurm
from test_jobs_killed import kill_supervisor

from hyperplane.errors import RequestError
from hyperplane.jobs import JobHandle, Step
from hyperplane.jobs.artifact_files import open_artifact
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, TIMED_OUT

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _slurm():
    with slurm():
        yield


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    until(lambda: queue() == [], 60)  # Slurm takes a moment to see that a job has ended


def queue():
    """The batch jobs in the queue."""
    completed = subprocess.run(
        ["squeue", "--me", "--array", "--noheader", "--format=%i %T %j"],
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.splitlines()


def logs_of(job):
    """Files with what its attempts write."""
    return sorted(Path(job.job.folder).rglob("*.log"))


def read_log(file):
    """What the step of a log wrote, without the lines of a job that was pending for a moment."""
    lines = file.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("waiting for Slurm: "))


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_variables_and_secrets_arrive_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret 'word'")
    text = "a 'b' \"c\"\n$(id); ü \\n %j"
    step = bash(
        "first",
        'printf %s "$TEXT" > text; printf %s "$HYPERPLANE_JOB_PARAMETER_YEAR" > year; '
        'printf %s "$THE_TOKEN" > token; pwd > folder; echo "$SLURM_JOB_NAME"; '
        "printf %s 'of DOS\r\n' > line; "
        "scontrol show job $SLURM_JOB_ID > shown; scontrol write batch_script $SLURM_JOB_ID script",
        env={"TEXT": text},
        secrets=("THE_TOKEN",),
    )
    job = run_job(step, runner="slurm", parameters={"year": text})
    assert job.status == DONE, job.logs()
    assert Path("text").read_text() == Path("year").read_text() == text
    assert Path("token").read_text() == "s3cret 'word'"
    assert Path("line").read_bytes() == b"of DOS\r\n"
    assert Path("folder").read_text().strip() == str(tmp_path)
    [log] = logs_of(job)
    assert read_log(log).startswith(f"hyperplane-{job.id[:8]}-")
    for name in ("shown", "script"):
        assert "s3cret" not in Path(name).read_text()
    assert job.job.runner == "slurm"


def test_steps_run_in_order_and_chunks_concurrently():
    count = "echo $CHUNK_ID >> done; sleep 0.5"
    job = run_job(
        bash("a", "sleep 0.2; touch a"),
        bash("chunks", f"test -e a && {count}", chunks=6, resources={"cores": 1, "ram_gb": 0.1}),
        bash("last", "sort done | tr -d '\\n'"),
        runner="slurm",
    )
    assert job.status == DONE
    [log] = Path(job.job.folder).glob("steps/*-last/*.log")
    assert read_log(log) == "012345"
    assert {attempt.number for attempt in job.attempts} == {1}


def test_a_killed_supervisor_costs_no_attempt(tmp_path):
    steps = [bash(name, f"echo {name} >> record; sleep 2; echo {name} >> record") for name in "ab"]
    job = submit_job(*steps, runner="slurm")
    until((tmp_path / "record").exists)
    assert kill_supervisor()
    time.sleep(4)  # the batch job ends while no supervisor is running
    assert JobHandle(job.id).wait(60) == DONE
    assert (tmp_path / "record").read_text() == "a\na\nb\nb\n"
    assert [(attempt.step, attempt.number) for attempt in job.attempts] == [("a", 1), ("b", 1)]


def test_a_batch_job_whose_id_was_not_stored_is_found_by_its_name(tmp_path):
    job = submit_job(bash("a", "echo a >> record; sleep 5"), runner="slurm")
    until((tmp_path / "record").exists)
    assert kill_supervisor()
    [id_file] = Path(job.job.folder).rglob("*.slurm")
    id_file.unlink()
    assert JobHandle(job.id).wait(60) == DONE
    assert (tmp_path / "record").read_text() == "a\n"


def test_cancelling_ends_running_and_waiting_attempts(tmp_path):
    polite = "trap 'echo asked; exit 3' TERM; touch $CHUNK_ID.begun; sleep 60 & wait"
    everything = {"cores": os.cpu_count() or 1, "ram_gb": 0.1}
    job = submit_job(
        bash("slow", polite, chunks=12, resources={**everything, "cores": 2}), runner="slurm"
    )
    until(lambda: list(tmp_path.glob("*.begun")))
    assert len(queue()) == 12
    job.cancel()
    assert job.wait(60) == CANCELLED
    until(lambda: queue() == [])
    assert "asked" in "".join(log.read_text() for log in Path(job.job.folder).rglob("*.log"))


def test_a_step_that_runs_out_of_memory_gets_more():
    hungry = "python3 -c 'import time; x = bytearray(400_000_000); time.sleep(4)'"
    job = run_job(
        bash("hungry", hungry, resources={"cores": 1, "ram_gb": 0.2}, more_memory=4),
        runner="slurm",
        max_retries=1,
        wait=120,
    )
    first, second = job.attempts
    assert (first.status, first.fault) == (FAILED, "memory"), (first, job.logs())
    assert second.status == DONE
    assert job.status == DONE


def test_the_timeout_of_a_step_counts_from_when_it_runs():
    all_of_it = {"cores": 8, "ram_gb": 0.1}
    job = run_job(
        bash("a", "sleep 6", resources=all_of_it, depends_on=()),
        bash("b", "sleep 1", resources=all_of_it, depends_on=(), timeout=6),
        bash("c", "sleep 60", resources=all_of_it, timeout=1, retries=0),
        runner="slurm",
        max_retries=0,
    )
    ended = {attempt.step: attempt.status for attempt in job.attempts}
    assert ended == {"a": DONE, "b": DONE, "c": TIMED_OUT}
    assert "exceeded the step's timeout of 1 s" in job.job.reason


def test_the_log_has_the_reason_why_a_step_is_pending():
    everything = {"cores": 8, "ram_gb": 0.1}
    steps = [bash(name, "sleep 6", resources=everything, depends_on=()) for name in "ab"]
    job = submit_job(*steps, runner="slurm")
    until(lambda: "is PENDING (" in "".join(map(Path.read_text, logs_of(job))))
    assert job.wait(60) == DONE
    # The output of the step replaces it; a line of the moment in which it starts may remain.
    assert [read_log(log) for log in logs_of(job)] == ["", ""]
    assert all(log.read_text().count("\n") <= 1 for log in logs_of(job))


def test_a_request_that_fits_no_node_fails_with_advice():
    large = {"cores": 15, "ram_gb": 0.1}
    job = submit_job(bash("a", "true", resources=large), runner="slurm", max_retries=2)
    assert job.wait(170) == FAILED
    assert "Slurm will not start job" in job.job.reason
    assert "request fewer cores or less memory per node" in job.job.reason
    assert len(job.attempts) == 1


def test_a_refusal_of_sbatch_fails_without_retries(monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    job = run_job(bash("a", "true"), runner="slurm", max_retries=3)
    assert job.status == FAILED
    assert "invalid partition specified: nowhere" in job.job.reason
    assert len(job.attempts) == 1


def test_a_batch_job_that_an_administrator_ends_is_a_failed_attempt(tmp_path):
    job = submit_job(bash("a", "touch begun; sleep 60"), runner="slurm", max_retries=0)
    until((tmp_path / "begun").exists)
    number = queue()[0].split()[0]
    subprocess.run(["scancel", number], check=True)
    assert job.wait(60) == FAILED
    [attempt] = job.attempts
    assert attempt.reason.endswith(f"Slurm ended job {number}: CANCELLED")


def test_cancelling_while_much_is_being_submitted_leaves_nothing():
    job = submit_job(bash("many", "sleep 60", chunks=40), runner="slurm")
    until(lambda: queue())
    job.cancel()
    assert job.wait(90) == CANCELLED
    until(lambda: queue() == [])
    time.sleep(3)
    assert queue() == []


def test_a_submission_without_the_commands_of_slurm_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        with pytest.raises(RequestError, match="no sbatch, squeue, scancel on the PATH"):
            submit_job(bash("a", "true"), runner="slurm")


def test_what_batch_jobs_save_is_attached_to_the_run(tmp_path):
    code = f"import hyperplane; hyperplane.save(b'x' * 5, '{tmp_path}/saved.bin')"
    text = 'echo $CHUNK_ID > "$HYPERPLANE_JOB_OUTPUT_FOLDER/n.txt"'
    save = Step(name="save", kind="command", argv=(sys.executable, "-c", code))
    job = run_job(save, bash("fan", text, chunks=3), runner="slurm")
    assert job.status == DONE, job.logs()
    found = [(each.name, each.chunk, each.size) for each in job.artifacts()]
    assert sorted(found) == [
        ("n.txt", 0, 2),
        ("n.txt", 1, 2),
        ("n.txt", 2, 2),
        ("saved.bin", -1, 5),
    ]
    for artifact in job.artifacts("fan"):
        with open_artifact(artifact) as opened:
            assert opened.read() == f"{artifact.chunk}\n".encode()
