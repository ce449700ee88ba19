"""Rehearsals: tasks on this machine in the environment of a container of AWS Batch."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from job_cases import bash
from runner_cases import make_job
from services import until
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.core.errors import Fault
from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.runners import rehearsal
from hyperplane.jobs.runners.aws_batch.runner import AwsBatchRunner
from hyperplane.jobs.runners.rehearsal import describe_differences, rehearse
from hyperplane.jobs.runners.rehearsed_task import TaskOutcome

pytestmark = pytest.mark.process
#: Rehearses with what needs no rights; test_runners_rehearsal_limits.py has the rest.
REHEARSE = [sys.executable, "-m", "hyperplane", "job", "rehearse", "p.yaml", "--network",
            "--memory-limit", "rlimit"]  # fmt: skip
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:database"


def rehearsed(
    *steps: Step, root: Path, all_chunks: bool = False, **options: Any
) -> tuple[bool, list[TaskOutcome]]:
    outcomes: list[TaskOutcome] = []
    runner = AwsBatchRunner({}, AwsBatchRunner.resolve_options(options))
    succeeded = rehearse(
        make_job(*steps, root=root), runner, all_chunks=all_chunks, report=outcomes.append
    )
    return succeeded, outcomes


def test_tasks_have_the_environment_of_a_container_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_IN_MY_SHELL", "1")
    (tmp_path / "a.py").write_text(
        "import os\nprint(sorted(os.environ), os.getcwd(), os.listdir('.'), os.environ['ITEM'])\n"
    )
    (tmp_path / "not-sent.txt").write_text("")
    step = Step(name="a", kind="python", path="a.py", foreach=("2013", "2014"))
    succeeded, [outcome] = rehearsed(step, root=tmp_path, environ=["TZ=UTC"])
    assert succeeded, outcome.log
    assert (outcome.step, outcome.chunk, outcome.code) == ("a", 0, 0)
    assert "ONLY_IN_MY_SHELL" not in outcome.log
    assert "'AWS_BATCH_JOB_ID'" in outcome.log
    assert "'TZ'" in outcome.log
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in outcome.log
    assert "['a.py'] 2013" in outcome.log
    assert str(tmp_path) not in outcome.log


def test_a_task_has_the_arguments_of_its_cluster(tmp_path: Path) -> None:
    show = bash("a", 'echo "$HYPERPLANE_CLUSTER"', cluster={"nprocs": 2, "ram_gb_per_proc": 1})
    succeeded, [outcome] = rehearsed(show, root=tmp_path)
    assert succeeded, outcome.log
    assert outcome.log == '{"nprocs": 2, "ram_gb_per_proc": 1}\n'


def test_six_files_on_two_machines_give_the_local_result(tmp_path: Path) -> None:
    names = [f"file-{number}.csv" for number in range(1, 7)]
    (tmp_path / "share.py").write_text(
        "import argparse, os\n"
        "parser = argparse.ArgumentParser()\n"
        "for name in ('--n_machines', '--idx'):\n"
        "    parser.add_argument(name, type=int)\n"
        "given = parser.parse_args([f'--n_machines={os.environ[\"HYPERPLANE_SHARD_COUNT\"]}',\n"
        "    f'--idx={os.environ[\"CHUNK_ID\"]}'])\n"
        "import numpy as np\n"
        "files = [f'file-{number}.csv' for number in range(1, 7)]\n"
        "print(*np.array_split(files, given.n_machines)[given.idx])\n"
    )
    step = Step(
        name="share", kind="python", path="share.py", chunks=2, resources=Resources(ram_gb=8)
    )
    succeeded, outcomes = rehearsed(step, root=tmp_path, all_chunks=True)
    assert succeeded, outcomes[-1].log
    local = [" ".join(part) for part in np.array_split(names, 2)]
    assert [outcome.log.strip() for outcome in outcomes] == local


def test_steps_run_in_the_order_of_their_dependencies_until_one_fails(tmp_path: Path) -> None:
    last = bash("last", "echo last", depends_on=("middle",))
    first = bash("first", "echo first", depends_on=())
    middle = bash("middle", "echo middle; exit 3", depends_on=("first",))
    succeeded, outcomes = rehearsed(last, first, middle, root=tmp_path)
    assert not succeeded
    assert [(each.step, each.code, each.log) for each in outcomes] == [
        ("first", 0, "first\n"), ("middle", 3, "middle\n")
    ]  # fmt: skip


@pytest.mark.slow
def test_memory_and_time_are_limited(tmp_path: Path) -> None:
    words = ("python", "-c", "bytearray(3 << 30)")
    large = Step(name="large", kind="command", argv=words, resources=Resources(ram_gb=1))
    succeeded, [outcome] = rehearsed(large, root=tmp_path)
    assert not succeeded
    assert "MemoryError" in outcome.log
    enough = large.model_copy(update={"resources": Resources(ram_gb=6)})
    assert rehearsed(enough, root=tmp_path)[0]
    marker = ["sleep", "987654"]
    step = bash("slow", f"{' '.join(marker)} & wait", timeout=1)
    succeeded, [outcome] = rehearsed(step, root=tmp_path)
    assert (succeeded, outcome.code) == (False, None)

    def is_left() -> bool:
        return any(each.info["cmdline"] == marker for each in psutil.process_iter(["cmdline"]))

    until(lambda: not is_left())  # it was sent SIGKILL


def test_the_container_has_the_region_and_the_python_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tmp_path / "environment with 'python3' only"
    only.mkdir()
    interpreter = only / "python3"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    show = "import os, sys; print(sys.executable, os.environ['AWS_DEFAULT_REGION'])"
    step = Step(name="a", kind="command", argv=("python", "-c", show))
    expected = f"{sys.executable} eu-west-1\n"
    monkeypatch.setattr(sys, "executable", str(interpreter))
    succeeded, [outcome] = rehearsed(step, root=tmp_path, region="eu-west-1")
    assert (succeeded, outcome.log) == (True, expected)


def test_a_lower_limit_of_this_machine_is_kept_and_shown(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("ulimit -d\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh, "
        "resources: {ram_gb: 64}}]}\n"
    )
    done = subprocess.run(
        ["bash", "-c", f"ulimit -d {20 << 20}; exec {shlex.join(REHEARSE)}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"\n  {20 << 20}\n" in done.stdout
    assert f"at most {20 << 30} bytes of data" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_rehearsal_that_is_ended_leaves_nothing(tmp_path: Path, number: int) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "a.sh").write_text(f"trap '' TERM; echo $$ > {tmp_path}/pid; exec sleep 600\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            REHEARSE, cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)},
            stdout=output, stderr=output,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # for tests in nohup
        )  # fmt: skip
    pid = tmp_path / "pid"
    until(lambda: pid.exists() and pid.read_text())
    task = Path("/proc", pid.read_text().strip())
    assert task.exists()
    process.send_signal(number)
    if number != signal.SIGKILL:
        time.sleep(1)
        process.send_signal(number)  # the task ignores SIGTERM
    code = process.wait(20)
    until(lambda: not task.exists())
    if number == signal.SIGKILL:
        return
    assert code == (130 if number == signal.SIGINT else 128 + number), log.read_text()
    assert list(temporary.glob("hyperplane-rehearsal-*")) == []


def test_an_error_after_a_task_does_not_claim_that_nothing_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text("true\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )

    def fail(*arguments: Any) -> None:
        raise RequestError([Fault("a", "1", "2")])

    monkeypatch.setattr(rehearsal, "RehearsedTask", fail)
    result = CliRunner().invoke(app, REHEARSE[3:])
    assert "nothing was run" not in result.output
    assert "a = 1" in result.output
    result = CliRunner().invoke(app, [*REHEARSE[3:], "--runner-option", "root=/srv"])
    assert result.exit_code == 2
    assert "nothing was run" in result.output


def test_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "correct-horse-battery")
    step = bash("a", 'echo "got $DATABASE_PASSWORD"', secrets=("database/password",))
    options = {
        "secrets": [f"database/password={ARN}"],
        "execution_role": "arn:aws:iam::123456789012:role/start",
    }
    succeeded, [outcome] = rehearsed(step, root=tmp_path, **options)
    assert succeeded
    assert outcome.log.startswith("got ")
    assert "correct-horse" not in outcome.log


def test_what_cannot_be_rehearsed_is_refused_at_once(tmp_path: Path) -> None:
    steps = (bash("a", "true", gang=2), bash("b", "true", secrets=("gone",)))
    with pytest.raises(RequestError) as caught:
        rehearse(
            make_job(*steps, root=tmp_path),
            AwsBatchRunner({}, AwsBatchRunner.resolve_options({"root": "/srv"})),
            all_chunks=False,
            report=lambda outcome: None,
        )
    where = [fault.where for fault in caught.value.faults]
    assert where == ["root", "step 'b': secrets", "steps[0].gang", "step 'b': secrets"]


def test_the_command_shows_outcomes_and_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "a.sh").write_text("echo hello; exit ${CODE:-0}\n")
    (tmp_path / "p.yaml").write_text(
        "pipeline: {name: p, tasks: [{name: a, type: bash script, bash_script_path: a.sh}]}\n"
    )
    words = [*REHEARSE[3:], "--runner", "aws-batch"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert re.match(r"step 'a': exit code 0 after \d+\.\d s\n  hello\n", result.output)
    assert "differences from AWS Batch:\n  - the image of the containers is not" in result.output
    result = CliRunner().invoke(app, [*words, "-p", "code=4"])
    assert result.exit_code == 1
    assert "exit code 4" in result.output
    result = CliRunner().invoke(app, [*words[:-1], "slurm"])
    assert result.exit_code == 2
    assert "expected one of aws-batch, vertex, cloud-run, glue" in " ".join(result.output.split())


def test_differences_name_what_the_rehearsal_has_not_tested() -> None:
    job = make_job(bash("a", "true", resources=Resources(cores=3, gpus=1)))
    options = AwsBatchRunner.resolve_options({"image": "registry.example/flights:1"})
    text = "\n".join(describe_differences(job, AwsBatchRunner({}, options)))
    for part in ("image registry.example/flights:1 is not used", "RLIMIT_DATA", "at most 3 in",
                 "network", "permissions of the roles", "GPUs are those"):  # fmt: skip
        assert part in text
