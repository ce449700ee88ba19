"""Submission of batch scripts."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, install

from hyperplane.platforms.slurm import submit
from hyperplane.platforms.slurm.submit import (
    is_array_refusal,
    submit_script,
    submit_script_async,
)

pytestmark = pytest.mark.process


def submit_in_loop(*arguments: Any) -> str:
    return asyncio.run(submit_script_async(*arguments))


BOTH = pytest.mark.parametrize("submitted", [submit_script, submit_in_loop])
Submit = Callable[..., str]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlurmPrograms:
    return install(monkeypatch, tmp_path)


@BOTH
@pytest.mark.parametrize("output", ["42", "42;federated"])
def test_the_script_is_the_input_of_sbatch(
    submitted: Submit, output: str, programs: SlurmPrograms, tmp_path: Path
) -> None:
    programs.write("sbatch", f"cat > {tmp_path}/script; echo '{output}'")
    script = "#!/bin/bash\nexec true\n"
    assert submitted(script, ["--mem=1M", "--job-name=a"]) == "42"
    assert (tmp_path / "script").read_text() == script
    assert programs.calls() == ["--parsable --mem=1M --job-name=a"]


@BOTH
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("sbatch: error: invalid partition specified: nowhere", errno.EPERM),
        ("sbatch: error: Memory specification can not be satisfied", errno.EPERM),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", errno.EAGAIN),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping", errno.EAGAIN),
        ("sbatch: error: Socket timed out on send/recv operation", errno.EAGAIN),
        ("sbatch: error: Resource unavailable, try again later", errno.EAGAIN),
    ],
)
def test_a_refusal_has_the_message_of_sbatch_and_says_whether_it_may_pass(
    submitted: Submit, text: str, number: int, programs: SlurmPrograms
) -> None:
    programs.write("sbatch", f"echo '{text}' >&2; echo 'Batch job submission failed' >&2; exit 1")
    with pytest.raises(OSError, match="sbatch: error") as caught:
        submitted("#!/bin/sh\n")
    assert caught.value.errno == number
    assert caught.value.strerror == f"{text}; Batch job submission failed"
    assert not is_array_refusal(caught.value)


def test_no_answer_is_a_temporary_error(
    programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "SUBMIT_TIMEOUT_SECONDS", 0.5)
    programs.write("sbatch", "exec sleep 600")
    with pytest.raises(BlockingIOError, match="sbatch does not answer"):
        submit_script("#!/bin/sh\n")


def test_a_cluster_waits_for_the_id_of_its_job(
    programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A submission that was given up may have been accepted; without an id it is never cancelled.
    monkeypatch.setattr(submit, "SUBMIT_TIMEOUT_SECONDS", 0.2)
    programs.write("sbatch", "sleep 1; echo 4711")
    assert asyncio.run(submit.submit_script_async("#!/bin/sh\n")) == "4711"


def test_sites_without_arrays_are_recognized(programs: SlurmPrograms) -> None:
    programs.write("sbatch", "echo 'error: Invalid job array specification' >&2; exit 1")
    with pytest.raises(PermissionError) as caught:
        submit_script("#!/bin/sh\n", ["--array=0-9"])
    assert is_array_refusal(caught.value)


SURROUNDING = ("SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_CPUS_PER_TASK", "SBATCH_JOB_NAME")


@BOTH
def test_sbatch_gets_the_variables_of_this_process_without_those_of_a_surrounding_job(
    submitted: Submit, programs: SlurmPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.write("sbatch", f"env > {tmp_path}/variables; echo 7")
    settings = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_PARTITION": "long", "TOKEN": "s3cret"}
    for name, value in {**settings, **dict.fromkeys(SURROUNDING, "1")}.items():
        monkeypatch.setenv(name, value)
    assert submitted("#!/bin/sh\n") == "7"
    lines = (tmp_path / "variables").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    assert settings.items() <= variables.items()
    assert not set(SURROUNDING) & set(variables)


def test_a_job_inherits_its_environment_and_sbatch_finds_its_configuration(
    programs: SlurmPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.write("sbatch", f"env > {tmp_path}/variables; echo 7")
    of_slurm = {"PATH": os.environ["PATH"], "SLURM_CONF": "/etc/slurm.conf"}
    of_job = {"PATH": "/usr/bin:/bin", "TOKEN": "s3cret", "SLURM_JOB_ID": "1", "SLURM_CONF": "/x"}
    monkeypatch.setenv("OTHER", "of this process")
    assert submit_script("#!/bin/sh\n", ["--export=ALL"], of_slurm, of_job) == "7"
    lines = (tmp_path / "variables").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert {"TOKEN", "SLURM_CONF", "PATH"} <= set(seen)
    assert (seen["TOKEN"], seen["SLURM_CONF"]) == ("s3cret", "/etc/slurm.conf")
    assert seen["PATH"] == "/usr/bin:/bin"
    assert not {"OTHER", "SLURM_JOB_ID"} & set(seen)
    assert "s3cret" not in "".join(programs.calls())
