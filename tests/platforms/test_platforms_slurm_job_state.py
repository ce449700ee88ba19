"""States of jobs, and what they mean."""

from __future__ import annotations

import pytest

from hyperplane.platforms.slurm import job_state
from hyperplane.platforms.slurm.job_state import (
    SlurmJobStatus,
    describe_blocked,
    is_active,
    is_ended,
    is_infrastructure_failure,
    is_out_of_memory,
)

#: As in the manual of squeue.
FINAL = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
OTHERS = (
    *("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING"),
    *("SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"),
)


@pytest.mark.parametrize("state", [*FINAL, *OTHERS])
def test_a_state_is_final_or_active(state: str) -> None:
    assert is_ended(state) == (state in FINAL)
    assert is_active(state) == (state in OTHERS)
    status = SlurmJobStatus(state, "None", "30:00")
    assert status.is_ended == (state in FINAL)
    assert status.is_leaving_queue == (state in FINAL or state == "COMPLETING")


def test_a_job_that_slurm_does_not_know_is_neither_active_nor_ended() -> None:
    for state in (job_state.UNKNOWN, job_state.REMOVED):
        assert not is_active(state)
        assert not is_ended(state)


def test_only_failures_of_machines_and_scheduler_are_not_the_fault_of_a_job() -> None:
    failures = {state for state in (*FINAL, *OTHERS) if is_infrastructure_failure(state)}
    assert failures == {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"}


@pytest.mark.parametrize(
    ("state", "log", "expected"),
    [
        ("OUT_OF_MEMORY", "", True),
        ("FAILED", "slurmstepd: error: Exceeded job memory limit", True),
        ("FAILED", "slurmstepd: error: Exceeded step memory limit at some point", True),
        ("FAILED", "error: Detected 1 oom_kill event in StepId=7.batch", True),
        ("FAILED", "MemoryError of a program", False),
        ("TIMEOUT", "", False),
    ],
)
def test_memory_is_in_the_state_or_in_the_output(state: str, log: str, expected: bool) -> None:
    assert is_out_of_memory(state, log) is expected


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("PartitionTimeLimit", "shorter"),
        ("PartitionConfig", "another partition"),
        ("PartitionNodeLimit", "another partition"),
        ("BadConstraints", "constraint"),
        ("InvalidAccount", "account"),
        ("QOSNotAllowed", "QOS"),
        ("JobHeldUser", "scontrol release"),
        ("JobHoldMaxRequeue", "scontrol release"),
        ("QOSMaxCpuPerJobLimit", "per node"),
        ("AssocMaxWallDurationPerJobLimit", "shorter walltime"),
        ("AssocGrpCPUMinutesLimit", "budget"),
        ("MaxMemPerLimit", "request less"),
        ("DependencyNeverSatisfied", "depends"),
    ],
)
def test_permanent_reasons_have_advice(reason: str, says: str) -> None:
    status = SlurmJobStatus("PENDING", reason, "30:00")
    text = describe_blocked("7", status)
    assert text.startswith(f"Slurm will not start job 7, PENDING ({reason}): ")
    assert says in text
    assert status.is_held == reason.startswith("JobHeld")
    assert describe_blocked("7", SlurmJobStatus("RUNNING", reason, "30:00")) == ""


@pytest.mark.parametrize(
    "reason",
    [
        *("Resources", "Priority", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "None"),
        *("Dependency", "BeginTime", "ReqNodeNotAvail, UnavailableNodes:n[1-2]"),
    ],
)
def test_temporary_reasons_have_no_advice(reason: str) -> None:
    status = SlurmJobStatus("PENDING", reason, "30:00")
    assert describe_blocked("7", status) == ""
    assert not status.is_held


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("TIMEOUT", "time limit of 30:00"),
        ("OUT_OF_MEMORY", "more memory than it requested"),
        ("PREEMPTED", "higher priority"),
        ("NODE_FAIL", "node that failed"),
        ("BOOT_FAIL", "node that failed"),
        ("CANCELLED", "was cancelled"),
        ("DEADLINE", "ended: DEADLINE (reason)"),
    ],
)
def test_the_end_of_a_job_is_explained(state: str, says: str) -> None:
    assert says in SlurmJobStatus(state, "reason", "30:00").end_reason
