"""Queries of the queue, and ends of jobs, with fake commands."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path

import pytest
from slurm_programs import SlurmPrograms, install

from hyperplane.platforms.slurm import queue as slurm_queue
from hyperplane.platforms.slurm.job_state import (
    REMOVED,
    UNKNOWN,
    SlurmJobStatus,
    count_states,
    is_active,
)
from hyperplane.platforms.slurm.queue import (
    SlurmQueue,
    parse_squeue,
    query_jobs,
    query_jobs_async,
)

pytestmark = pytest.mark.process


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlurmPrograms:
    return install(monkeypatch, tmp_path)


def lines(*texts: str) -> str:
    """Shell code that prints lines."""
    return f"printf '%s\\n' {shlex.join(texts)}"


def test_squeue_is_read(programs: SlurmPrograms) -> None:
    programs.write(
        "squeue",
        lines(
            "7|PENDING|30:00|ReqNodeNotAvail, UnavailableNodes:n[1-2]|a name | of mine",
            "8_1|RUNNING|1-00:00:00|None|b",
        ),
    )
    found = query_jobs(["7", "8_1", "9"])
    assert found == {
        "7": SlurmJobStatus(
            "PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]", "30:00", "a name | of mine"
        ),
        "8_1": SlurmJobStatus("RUNNING", "None", "1-00:00:00", "b"),
    }
    assert asyncio.run(query_jobs_async(["7", "8_1", "9"])) == found
    assert "--states=all --jobs=7,8_1,9 " in programs.calls()[0]
    assert len(set(programs.calls())) == 1
    assert count_states(found, 3).endswith("n[1-2]), 1 job RUNNING, 1 job gone")


def test_jobs_without_a_record_are_missing_and_without_an_answer_all_are_unknown(
    programs: SlurmPrograms,
) -> None:
    programs.write("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert query_jobs(["7"]) == asyncio.run(query_jobs_async(["7"])) == {}
    programs.write("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert query_jobs(["7"]) is asyncio.run(query_jobs_async(["7"])) is None
    assert len(programs.calls()) == 4
    assert query_jobs([]) == asyncio.run(query_jobs_async([])) == {}
    assert len(programs.calls()) == 4


def test_a_squeue_that_is_missing_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert query_jobs(["7"]) is asyncio.run(query_jobs_async(["7"])) is None


def test_a_query_ignores_the_variables_of_a_surrounding_job(
    programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("SQUEUE_STATES", "COMPLETED")
    programs.write("squeue", 'echo "7|RUNNING|30:00|${SLURM_CLUSTERS}${SQUEUE_STATES}|a"')
    status = {"7": SlurmJobStatus("RUNNING", "", "30:00", "a")}
    assert query_jobs(["7"]) == asyncio.run(query_jobs_async(["7"])) == status


def test_lines_of_other_forms_are_left_out() -> None:
    assert parse_squeue("7|PENDING\n\nsqueue: warning\n8|RUNNING|1:00|None\n") == {
        "8": SlurmJobStatus("RUNNING", "None", "1:00")
    }


def queue() -> SlurmQueue:
    return SlurmQueue(os.environ)


def test_jobs_are_found_by_name_and_one_listing_serves_all(programs: SlurmPrograms) -> None:
    programs.write(
        "squeue",
        lines("7|PENDING|30:00|Resources|one", "8_1|RUNNING|30:00|None|two"),
    )

    async def go() -> None:
        mine = queue()
        assert await mine.find_job_id("one") == "7"
        assert await mine.find_job_id("two") == "8"
        assert await mine.find_job_id("three") == ""
        assert await mine.contains("8_1")
        assert str(mine.pending_status("7")) == "PENDING (Resources)"
        assert mine.pending_status("8_1") is None
        assert mine.pending_status("9") is None

    asyncio.run(go())
    [call] = programs.calls()
    assert "--me" in call


def test_without_an_answer_no_job_is_declared_gone(programs: SlurmPrograms) -> None:
    programs.write("squeue", "exit 1")

    async def go() -> None:
        mine = queue()
        assert await mine.find_job_id("one") is None
        assert await mine.contains("7")
        assert is_active(await mine.get_state("7"))

    asyncio.run(go())


def test_a_job_whose_submission_had_no_answer_is_found(
    programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(slurm_queue, "CACHE_SECONDS", 0.01)
    monkeypatch.setattr(slurm_queue, "NO_ANSWER_SECONDS", 0.01)
    # It appears at the second look; while Slurm does not answer, it may still appear.
    late = f"[ $(wc -l < {programs.folder}/calls) -ge 2 ] && {lines('7|PENDING|1:00|None|a')}"
    programs.write("squeue", f"{late}; true")
    assert asyncio.run(queue().find_submitted("a")) == "7"
    assert asyncio.run(queue().find_submitted("b")) == ""
    (programs.folder / "calls").unlink()
    busy = f"[ $(wc -l < {programs.folder}/calls) -ge {slurm_queue.SUBMIT_CHECKS + 3} ] || exit 1"
    programs.write("squeue", f"{busy}; {lines('8_1|PENDING|1:00|None|c')}")
    assert asyncio.run(queue().find_submitted("c")) == "8"


def test_states_are_queried_with_one_command(programs: SlurmPrograms) -> None:
    programs.write("squeue", lines("7|FAILED|30:00|None|a", "8_1|RUNNING|30:00|None|b"))

    async def go() -> list[str]:
        mine = queue()
        return await asyncio.gather(*map(mine.get_state, ("7", "8_1", "8_2", "9")))

    # A task that Slurm does not know although it knows the array has been removed.
    assert asyncio.run(go()) == ["FAILED", "RUNNING", REMOVED, UNKNOWN]
    [call] = programs.calls()
    assert "--jobs=7,8,9 " in call


def test_running_tasks_get_a_signal_and_pending_ones_are_cancelled(
    programs: SlurmPrograms,
) -> None:
    running, pending = "|RUNNING|30:00|None|b", "|PENDING|30:00|Priority|b"
    programs.write("squeue", lines(f"8_1{running}", f"8_2{pending}", f"8_3{pending}"))
    programs.write("scancel", "")

    async def go() -> list[bool]:
        mine = queue()
        return await asyncio.gather(*map(mine.terminate, ("8_1", "8_2", "8_3")))

    assert asyncio.run(go()) == [True, True, True]
    assert programs.calls()[1:] == ["8_[2,3]", "--full --signal=TERM 8_1"]


def test_jobs_that_scancel_does_not_reach_are_reported(programs: SlurmPrograms) -> None:
    programs.write(
        "scancel",
        "echo 'scancel: error: Kill job error on job id 8: Invalid job id specified' >&2; exit 1",
    )

    async def go() -> list[bool]:
        mine = queue()
        return await asyncio.gather(*map(mine.terminate, ("7", "8")))

    assert asyncio.run(go()) == [True, False]
    assert programs.calls() == ["--state=PENDING 7 8", "--full --signal=TERM 7 8"]
