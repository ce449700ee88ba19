"""``hyperplane train --runner``: a training program as a job whose processes end together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gang_cases import train

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(0)  # writes the program
    return tmp_path


def run(*words):
    script = "from hyperplane.cli import main; main()"
    command = [sys.executable, "-c", script, "train", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)


def test_the_program_runs_as_a_job_of_four_processes(folder):
    done = run(
        *("--module-name", "trainer.task", "--package-path", "trainer/", "--job-dir", "out"),
        *("--distributed", "--worker-count", "2", "--parameter-server-count", "1"),
        *("--runner", "local", "--", "0"),
    )
    assert done.returncode == 0, done.stderr + done.stdout
    records = [json.loads(file.read_text()) for file in Path("out").glob("*.json")]
    assert sorted(record["rank"] or "" for record in records) == ["", "0", "1", "2"]
    assert {tuple(record["argv"]) for record in records} == {("0", "--job-dir", "out")}


@pytest.mark.slow
def test_one_process_fails_the_job_with_its_reason():
    (Path("trainer") / "task.py").write_text("import sys; sys.exit(65)")
    words = ("--module-name", "trainer.task", "--package-path", "trainer")
    done = run(*words, "--runner", "local", "--max-retries", "2")
    assert done.returncode == 1
    assert "chief-0: exit code 65" in done.stdout + done.stderr


@pytest.mark.slow
def test_all_faults_are_reported_at_once():
    done = run(
        *("--module-name", "trainer.other", "--package-path", "trainer", "--worker-count", "2"),
        *("--start-port", "3000", "--fail-fast", "--runner", "local"),
    )
    assert done.returncode == 2
    for part in ("--worker-count", "--start-port", "--fail-fast", "trainer.other"):
        assert part in done.stderr
    assert "nothing was started" in done.stderr
    alone = run("--module-name", "trainer.task", "--max-retries", "2")
    assert "--max-retries: only with --runner" in alone.stderr
