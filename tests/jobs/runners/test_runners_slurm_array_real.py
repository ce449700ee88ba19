"""Chunks as one job array of a real Slurm: environment, retries and ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from job_cases import bash, run_job, submit_job
from test_jobs_killed import kill_supervisor
from test_runners_slurm_real import _in_its_own_folder, _slurm, queue, read_log, until  # noqa: F401

from hyperplane.jobs import JobHandle
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.slurm.runner import SlurmRunner
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SMALL = {"cores": 1, "ram_gb": 0.1}
LARGE = {"cores": 4, "ram_gb": 0.1}  # two of them at once


@pytest.fixture(autouse=True)
def calls(tmp_path, monkeypatch):
    """The calls of Slurm's programs, each with its arguments."""
    record, folder = tmp_path / "calls", tmp_path / "counting"
    folder.mkdir()
    for name in ("sbatch", "scancel"):
        program = folder / name
        program.write_text(
            # One write per line: concurrent calls would mix their lines.
            f"#!/bin/sh\nprintf '%s\\n' \"{name} $*\" >> {record}\n"
            f'[ -e {folder}/refuse ] && case "$*" in *--array*) echo "sbatch: error: Batch job '
            'submission failed: Invalid job array specification" >&2; exit 1;; esac\n'
            f'exec {shutil.which(name)} "$@"\n'
        )
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def calls(name):
        lines = record.read_text().splitlines() if record.exists() else []
        return [line.split() for line in lines if line.startswith(f"{name} ")]

    return calls


def count_attempts(job):
    """Return the number of attempts at each chunk."""
    return Counter(attempt.chunk for attempt in job.attempts)


def test_two_hundred_chunks_need_few_calls_and_have_separate_variables(
    tmp_path, monkeypatch, calls
):
    monkeypatch.setenv("THE_TOKEN", "s3cret 'word'")
    items = [f"a '{n}' \"c\"\n$(id); ü \\n %a" for n in range(200)]
    names = ("CHUNK_ID", "ITEM", "HYPERPLANE_SHARD_INDEX", "HYPERPLANE_JOB_PARAMETERS", "YEAR")
    step = bash(
        "many",
        "".join(f'printf "%s\\0" "${name}" >> got.$CHUNK_ID; ' for name in (*names, "THE_TOKEN"))
        + "pwd; echo chunk $CHUNK_ID; env | grep ^SLURM_ARRAY_; [ $CHUNK_ID = 7 ] || exit 0; "
        "scontrol show job $SLURM_JOB_ID > shown; "
        "scontrol write batch_script $SLURM_JOB_ID script > written 2>&1; "
        "cat /proc/*/cmdline > processes 2> gone; true",
        foreach=tuple(items),
        secrets=("THE_TOKEN",),
        resources=SMALL,
    )
    job = run_job(step, runner="slurm", parameters={"year": "ü '"}, wait=120)
    assert job.status == DONE, job.job.reason
    assert set(count_attempts(job).values()) == {1}
    for chunk, item in enumerate(items):
        *got, parameters, year, token, _ = Path(f"got.{chunk}").read_text().split("\0")
        assert got == [str(chunk), item, str(chunk)]
        assert json.loads(parameters) == {"year": "ü '", "chunk_id": str(chunk), "item": item}
        assert (year, token) == ("ü '", "s3cret 'word'")
    logs = [read_log(log) for log in sorted(Path(job.job.folder).rglob("attempt-1.log"))]
    assert logs == [f"{tmp_path}\nchunk {n}\n" for n in range(200)]
    assert 1 <= len(calls("sbatch")) <= 4
    for name in ("shown", "script", "processes", "calls"):
        assert Path(name).read_text(errors="replace")
        assert "s3cret" not in Path(name).read_text(errors="replace")
    files = [file for file in Path(job.job.folder).rglob("*") if file.is_file()]
    assert not [file for file in files if b"s3cret" in file.read_bytes()]
    tasks = [file for file in files if file.suffix == ".tasks"]
    assert {file.stat().st_mode & 0o777 for file in tasks} == {0o600}


def test_only_the_failed_chunk_is_retried(calls):
    fails = '[ "$CHUNK_ID" != 2 ] || [ -e tried ] || { touch tried; exit 3; }'
    job = run_job(bash("a", fails, chunks=6, resources=SMALL), runner="slurm", max_retries=1)
    assert job.status == DONE
    assert count_attempts(job) == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1, 5: 1}
    # A single attempt is an ordinary batch job.
    assert ["--array" in " ".join(words) for words in calls("sbatch")] == [True, False]


def test_only_the_chunk_that_ran_out_of_memory_gets_more(calls):
    size = "$((CHUNK_ID == 1 ? 400000000 : 1))"
    hungry = f"python3 -c 'import sys, time; x = bytearray(int(sys.argv[1])); time.sleep(4)' {size}"
    job = run_job(
        bash("a", hungry, chunks=3, resources={"cores": 1, "ram_gb": 0.2}, more_memory=4),
        runner="slurm",
        max_retries=1,
        wait=120,
    )
    assert job.status == DONE
    assert count_attempts(job) == {0: 1, 1: 2, 2: 1}
    assert [
        (attempt.chunk, attempt.fault) for attempt in job.attempts if attempt.status == FAILED
    ] == [(1, "memory")]
    memory_options = [[word for word in words if "--mem" in word] for words in calls("sbatch")]
    assert memory_options == [["--mem=191M"], ["--mem=763M"]]


def test_cancelling_when_half_is_done_leaves_nothing(tmp_path, calls):
    polite = (
        "trap 'echo asked; exit 3' TERM; [ $CHUNK_ID -ge 4 ] || exit 0; touch $CHUNK_ID.begun; "
        "sleep 600 & wait"
    )
    job = submit_job(bash("slow", polite, chunks=40, resources=LARGE), runner="slurm")
    until(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
    until(lambda: sum(attempt.status == DONE for attempt in job.attempts) == 4)
    job.cancel()
    began = time.monotonic()
    assert job.wait(150) == CANCELLED
    assert time.monotonic() - began < 120
    until(lambda: queue() == [])
    ended = Counter(attempt.status for attempt in job.attempts)
    assert ended == {DONE: 4, CANCELLED: 36}
    logs = [log.read_text() for log in Path(job.job.folder).rglob("*.log")]
    assert sum("asked" in log for log in logs) == 2
    assert len(list(tmp_path.glob("*.begun"))) == 2
    assert len(calls("scancel")) <= 12


@pytest.mark.parametrize("written", ["yes", "not yet", "lost"])
def test_a_killed_supervisor_costs_no_attempt(tmp_path, calls, written):
    script = "echo $CHUNK_ID >> record; sleep 1; echo $CHUNK_ID >> record"
    job = submit_job(bash("a", script, chunks=6, resources=LARGE), runner="slurm")
    until((tmp_path / "record").exists)
    assert kill_supervisor()
    [id_file] = Path(job.job.folder).rglob("array-*.slurm")
    if written == "lost":
        id_file.unlink()
    elif written == "not yet":
        id_file.write_text("")
    time.sleep(1.5)  # some end while no supervisor is running
    assert JobHandle(job.id).wait(60) == DONE
    assert Counter((tmp_path / "record").read_text().split()) == dict.fromkeys("012345", 2)
    assert set(count_attempts(job).values()) == {1}
    assert len(calls("sbatch")) == 1


def test_a_task_ended_by_an_administrator_fails_and_the_others_continue(tmp_path):
    job = submit_job(
        bash(
            "a",
            # The second does not end before the signal arrives, which may be later than scancel.
            "touch $CHUNK_ID.begun; until [ -e go ] && [ $CHUNK_ID != 1 ]; do sleep 0.1; done",
            chunks=4,
            resources=LARGE,
        ),
        runner="slurm",
        max_retries=0,
    )
    until(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
    whole = queue()[0].partition("_")[0]
    # The first of these runs, the second waits.
    subprocess.run(["scancel", f"{whole}_1", f"{whole}_3"], check=True)
    Path("go").touch()
    assert job.wait(60) == FAILED
    assert [
        attempt.status for attempt in sorted(job.attempts, key=lambda attempt: attempt.chunk)
    ] == [
        *(DONE, FAILED),
        *(DONE, FAILED),
    ]
    for attempt in job.attempts:
        ended = f"Slurm ended job {whole}_{attempt.chunk}: CANCELLED"
        assert attempt.reason.endswith(ended if attempt.status == FAILED else ""), attempt
    assert sorted(file.name for file in tmp_path.glob("*.begun")) == [
        f"{n}.begun" for n in (0, 1, 2)
    ]


def test_without_arrays_each_chunk_is_a_single_batch_job(tmp_path, calls):
    (tmp_path / "counting" / "refuse").touch()
    job = run_job(bash("a", "echo $CHUNK_ID", chunks=5, resources=SMALL), runner="slurm")
    assert job.status == DONE
    assert len(calls("sbatch")) == 6
    assert sorted(read_log(log) for log in Path(job.job.folder).rglob("*.log")) == [
        f"{n}\n" for n in range(5)
    ]


def test_chunks_of_different_thousands_form_separate_arrays(tmp_path, calls):
    step = bash("a", "true", chunks=9, resources=SMALL)
    chunks = (3, 999, 1000, 1003, 1999, 123456)

    async def go():
        runner = SlurmRunner(dict(os.environ), {})
        commands = [
            AttemptCommand(
                (sys.executable, "-c", "import os; print(os.environ['N'])"),
                {**os.environ, "N": str(n)},
                str(tmp_path),
                tmp_path / "j%b" / "steps" / "000-a" / f"chunk-{n:05d}" / "attempt-1",
            )
            for n in chunks
        ]
        started = await asyncio.gather(*(runner.start(attempt, step, 1.0) for attempt in commands))
        return await asyncio.gather(*(attempt.wait() for attempt in started))

    assert asyncio.run(go()) == [0] * len(chunks)
    for n in chunks:
        [log] = tmp_path.glob(f"j*/steps/000-a/chunk-{n:05d}/attempt-1.log")
        assert read_log(log) == f"{n}\n"
    assert len(calls("sbatch")) == 3
