"""Messages of the slurm engine about jobs, with a fake squeue."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

from hyperplane.clusters.dask.slurm import job_messages
from hyperplane.errors import StartFailed
from hyperplane.platforms.slurm.job_state import SlurmJobStatus
from hyperplane.spec.settings import SlurmSettings

pytestmark = pytest.mark.process


def program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def squeue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of a fake squeue, to which a test writes the program."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "squeue"


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("PartitionTimeLimit", "shorter"),
        ("PartitionConfig", "another partition"),
        ("BadConstraints", "constraint"),
        ("InvalidAccount", "account"),
        ("InvalidQOS", "QOS"),
        ("JobHeldUser", "scontrol release"),
        ("QOSMaxCpuPerJobLimit", "per node"),
        ("AssocMaxWallDurationPerJobLimit", "shorter walltime"),
        ("AssocGrpCPUMinutesLimit", "budget"),
    ],
)
def test_permanent_reasons_end_a_start(
    squeue: Path, tmp_path: Path, reason: str, says: str
) -> None:
    program(squeue, f"echo '7|PENDING|30:00|{reason}'")
    look = job_messages.StartupMonitor(lambda: {"flights-0": "7"}, tmp_path, lambda: {"7"})
    with pytest.raises(StartFailed, match=says) as caught:
        look()
    assert f"job 7, PENDING ({reason})" in str(caught.value)


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "None"]
)
def test_temporary_reasons_are_reported(squeue: Path, tmp_path: Path, reason: str) -> None:
    program(squeue, f"echo '7|PENDING|30:00|{reason}'")
    said = job_messages.StartupMonitor(lambda: {"flights-0": "7"}, tmp_path, lambda: {"7"})()
    assert said.startswith("squeue reports: 1 job PENDING")
    assert (reason in said) == (reason != "None")


def test_a_job_that_ends_early_ends_the_start_with_what_it_printed(
    squeue: Path, tmp_path: Path
) -> None:
    (tmp_path / "flights-7.log").write_text("\n".join(["..."] * 50 + ["python: not found"]))
    program(squeue, "echo '7|FAILED|30:00|NonZeroExitCode'")
    with pytest.raises(StartFailed, match=r"job 7 ended .* FAILED \(NonZeroExitCode\)") as caught:
        job_messages.StartupMonitor(lambda: {"flights-0": "7"}, tmp_path, lambda: {"7"})()
    assert caught.value.log_tail.endswith("python: not found")
    assert caught.value.log_tail.count("\n") == 19


@pytest.mark.parametrize(
    ("incomplete", "ends"),
    [
        ({"8"}, "Raise timeout to wait longer, or request less"),
        ({"7", "8"}, "last lines of the output of job 7:\nworker speaks"),
    ],
)
def test_advice_is_about_jobs_whose_workers_are_missing(
    squeue: Path, tmp_path: Path, incomplete: set[str], ends: str
) -> None:
    (tmp_path / "flights-7.log").write_text("worker speaks\n")
    program(squeue, "echo '7|RUNNING|30:00|None'; echo '8|PENDING|30:00|Resources'")
    look = job_messages.StartupMonitor(
        lambda: {"a-0": "7", "a-1": "8"}, tmp_path, lambda: incomplete
    )
    said = look()
    assert said.endswith(ends)
    assert ("slurm.interface" in said) == ("7" in incomplete)


def test_the_intervals_between_queries_grow_from_the_first_to_the_longest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, queries = [100.0], []

    def query(job_ids: list[str]) -> None:
        queries.append(now[0])

    monkeypatch.setattr(job_messages, "query_jobs", query)
    monkeypatch.setattr(job_messages.time, "monotonic", lambda: now[0])
    monitor = job_messages.StartupMonitor(lambda: {"a-0": "7"}, tmp_path, lambda: {"7"})
    for _ in range(1000):
        monitor()
        now[0] += 0.25
    intervals = [after - before for before, after in pairwise(queries)]
    assert intervals[0] == job_messages.FIRST_INTERVAL
    assert intervals == sorted(intervals)
    assert intervals[-1] == job_messages.LONGEST_INTERVAL


@pytest.mark.parametrize(
    ("status", "walltime", "says"),
    [
        (
            SlurmJobStatus("TIMEOUT", "None", "30:00"),
            "30 minutes",
            r"limit of 30:00.*walltime is 0:30:00",
        ),
        (SlurmJobStatus("TIMEOUT", "None", "1:00"), None, r"limit of 1:00.*walltime is not set"),
        (
            SlurmJobStatus("COMPLETED", "None", "30:00"),
            "30 minutes",
            r"retired 0:28:00 after.*moved to workers",
        ),
        (SlurmJobStatus("OUT_OF_MEMORY", "None", "30:00"), None, "more memory.*ram_gb_per_proc"),
        (SlurmJobStatus("NODE_FAIL", "None", "30:00"), None, "node that failed"),
        (SlurmJobStatus("FAILED", "NonZeroExitCode", "30:00"), None, r"FAILED \(NonZeroExitCode\)"),
        (None, None, "no record of the reason"),
    ],
)
def test_why_a_job_has_ended(
    status: SlurmJobStatus | None, walltime: str | None, says: str, tmp_path: Path
) -> None:
    settings = SlurmSettings(walltime=walltime)
    text = job_messages.explain_end(settings, tmp_path, "7", "flights-0", status)
    assert text.startswith("job 7 (worker flights-0) ")
    assert re.search(says, text)
    assert "cluster.adapt()" in text


def test_a_memory_message_in_the_log_explains_a_failed_job(tmp_path: Path) -> None:
    said = (
        "slurmstepd: error: StepId=7.batch exceeded memory limit\nslurmstepd: error: Exceeded job"
    )
    (tmp_path / "flights-7.log").write_text(f"{said} memory limit\n")
    status = SlurmJobStatus("FAILED", "JobLaunchFailure", "30:00")
    text = job_messages.explain_end(SlurmSettings(), tmp_path, "7", "flights-0", status)
    assert "used more memory than it requested. Raise ram_gb_per_proc" in text
    assert text.endswith("memory limit")
