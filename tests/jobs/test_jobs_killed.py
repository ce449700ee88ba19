"""Killed supervisors and steps: jobs continue, and nothing that is done is repeated."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dask.config
import psutil
import pytest
from job_cases import (
    LIMIT,
    bash,
    is_alive,
    kill,
    kill_supervisor,
    run_job,
    submit_job,
    until_exists,
    wait_until,
)
from scale import FULL, scaled

from hyperplane.jobs import JobHandle, supervisor_client
from hyperplane.jobs.store.job_records import DONE, IN_PROGRESS, LOST
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = pytest.mark.process

MOMENTS = scaled(4, 24)
VICTIMS = ("supervisor", "step", "all")


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def processes_of(job):
    """Return the processes of a job's steps, whichever supervisor started them."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HYPERPLANE_JOB_ID") == job.id:
                processes.append(process)
        except psutil.Error:
            continue
    return processes


@pytest.mark.slow
def test_a_step_continues_after_its_supervisor_is_killed_and_is_not_repeated(tmp_path):
    record, go = tmp_path / "record", tmp_path / "go"
    job = submit_job(
        bash("slow", f"echo begun >> {record}; {until_exists(go)}; echo ended >> {record}")
    )
    wait_until(record.exists)
    assert kill_supervisor()
    go.touch()
    assert JobHandle(job.id[:13]).wait(LIMIT) == DONE
    assert (tmp_path / "record").read_text() == "begun\nended\n"
    assert [attempt.number for attempt in job.attempts] == [1]


@pytest.mark.slow
def test_the_first_sigint_ends_a_supervisor_and_its_step_continues(tmp_path):
    record, go = tmp_path / "record", tmp_path / "go"
    job = submit_job(
        bash("slow", f"echo begun >> {record}; {until_exists(go)}; echo ended >> {record}")
    )
    wait_until(record.exists)
    supervisor = supervisor_client.supervisor_pid()
    assert supervisor
    os.kill(supervisor, signal.SIGINT)
    wait_until(lambda: not is_alive(supervisor))
    go.touch()
    assert JobHandle(job.id).wait(LIMIT) == DONE
    assert record.read_text() == "begun\nended\n"


@pytest.mark.slow
def test_a_step_that_ended_without_a_supervisor_is_done(tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"
    job = submit_job(bash("short", f"touch {begun}; {until_exists(go)}"), bash("next", "true"))
    wait_until(begun.exists)
    assert kill_supervisor()
    go.touch()
    wait_until(lambda: not processes_of(job))
    gone = time.time()
    time.sleep(1.5)
    assert job.resume().wait(LIMIT) == DONE
    assert [(attempt.step, attempt.number) for attempt in job.attempts] == [
        ("short", 1),
        ("next", 1),
    ]
    assert job.attempts[0].ended <= gone


def test_a_step_killed_with_its_supervisor_is_started_again(tmp_path):
    begun, there = tmp_path / "begun", tmp_path / "there"
    job = submit_job(bash("slow", f"echo x >> {begun}; {until_exists(there)}"))
    wait_until(begun.exists)
    assert kill_supervisor()
    # All at once: the wrapper would record how the program ended.
    os.killpg(os.getpgid(processes_of(job)[0].pid), signal.SIGKILL)
    wait_until(lambda: not processes_of(job))
    there.touch()
    assert job.wait(LIMIT) == DONE
    assert [attempt.status for attempt in job.attempts] == [LOST, DONE]


@pytest.mark.skipif(not FULL, reason="each other test kills at one moment: at full scale")
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_at_any_moment_a_kill_loses_nothing_and_repeats_nothing(tmp_path):
    def steps(folder, before_chunk_1="true"):
        def write(name):
            return f"sleep 0.03; echo {name}$CHUNK_ID > {folder}/{name}$CHUNK_ID; sleep 0.02"

        fan = f'[ "$CHUNK_ID" != 1 ] || {{ {before_chunk_1}; }}; {write("fan")}'
        return (
            bash("first", write("first")),
            bash("fan", fan, chunks=4, max_parallel=2),
            bash("side", write("side"), depends_on=("first",)),
            bash(
                "last", f"cat {folder}/f* {folder}/side > {folder}/last", depends_on=("fan", "side")
            ),
        )

    def result(folder):
        return (folder / "last").read_text()

    (tmp_path / "calm").mkdir()
    for _ in range(2):  # the first time the supervisor may have to start
        began = time.monotonic()
        assert run_job(*steps(tmp_path / "calm")).status == DONE
        whole = time.monotonic() - began
    draw = random.Random(7)
    for moment in range(MOMENTS):
        folder = tmp_path / str(moment)
        folder.mkdir()
        held, go = folder / "held", folder / "go"
        # Half of the kills happen while a step certainly runs; its duration is unknown.
        sure = moment < MOMENTS // 2
        job = submit_job(*steps(folder, f"touch {held}; {until_exists(go)}" if sure else "true"))
        if sure:
            wait_until(held.exists)
        else:
            time.sleep(draw.uniform(0, whole))
        victim, struck = VICTIMS[moment % len(VICTIMS)], False
        if victim != "step":
            struck = kill_supervisor()
            assert struck or not sure
        if victim != "supervisor":
            for process in processes_of(job)[: None if victim == "all" else 1]:
                struck |= kill(process.pid)
            while sure and not struck:  # it had ended by then: the next one
                for process in processes_of(job)[:1]:
                    struck = kill(process.pid)
        go.touch()
        done = {(attempt.step, attempt.chunk) for attempt in job.attempts if attempt.status == DONE}
        before = Counter((attempt.step, attempt.chunk) for attempt in job.attempts)
        going_on = job.resume() if job.job.status == "failed" else job
        assert going_on.wait(LIMIT) == DONE
        after = Counter((attempt.step, attempt.chunk) for attempt in job.attempts)
        assert {unit: after[unit] for unit in done} == {unit: before[unit] for unit in done}
        ends = Counter(
            (attempt.step, attempt.chunk) for attempt in job.attempts if attempt.status == DONE
        )
        assert set(ends.values()) == {1}
        assert result(folder) == result(tmp_path / "calm")


def test_a_damaged_job_fails_and_others_continue(tmp_path):
    go = tmp_path / "go"
    bad, good = submit_job(bash("a", until_exists(go))), submit_job(bash("b", until_exists(go)))
    # A step that has not started could have read the job before the change.
    wait_until(lambda: {bad.status, good.status} == {IN_PROGRESS})
    assert kill_supervisor()
    open_store().update(bad.id, definition='{"name": "p"}', status="pending")
    go.touch()
    assert good.wait(LIMIT) == DONE
    assert bad.wait(LIMIT) == "failed"
    assert "RequestError" in bad.job.reason


@pytest.mark.slow
def test_a_job_cancelled_without_a_supervisor_ends_its_steps(tmp_path):
    job = submit_job(
        bash("slow", f"echo $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid; sleep 600")
    )
    wait_until((tmp_path / "pid").exists)
    assert kill_supervisor()
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))
    assert [attempt.status for attempt in job.attempts] == ["cancelled"]


def test_a_step_that_ended_in_time_is_done_however_late_the_next_poll(tmp_path):
    go = tmp_path / "go"
    text = f"echo x >> {tmp_path}/ran; {until_exists(go)}"
    job = submit_job(bash("quick", text, timeout=LIMIT), max_retries=0)
    wait_until((tmp_path / "ran").exists)
    assert kill_supervisor()
    go.touch()
    wait_until(lambda: not processes_of(job))
    # The next poll is long after the step's timeout: it started and ended an hour ago.
    (attempt,) = job.attempts
    open_store().save_attempt(replace(attempt, started=attempt.started - 3600))
    for trace in Path(job.job.folder_path, attempt.log).parent.iterdir():
        os.utime(trace, (trace.stat().st_atime, trace.stat().st_mtime - 3600))
    assert job.wait(LIMIT) == DONE
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_daemon_of_a_step_does_not_hold_up_the_job(tmp_path):
    go = tmp_path / "go"
    text = f"setsid sleep 900 & echo $! > {tmp_path}/pid; touch {tmp_path}/ran; {until_exists(go)}"
    job = submit_job(bash("leaves", text))
    wait_until((tmp_path / "ran").exists)
    assert kill_supervisor()
    go.touch()
    try:
        assert job.wait(LIMIT) == DONE
    finally:
        kill(int((tmp_path / "pid").read_text()))


def test_child_processes_of_a_step_get_the_grace_period(tmp_path):
    polite = (
        f"trap 'sleep 0.5; echo saved > {tmp_path}/saved; exit' TERM; "
        f"touch {tmp_path}/on; while :; do sleep 0.05; done"
    )
    with dask.config.set({"hyperplane.jobs.grace": "100s"}):
        job = submit_job(bash("outer", f'bash -c "{polite}" & sleep 600; true'))
    wait_until((tmp_path / "on").exists)
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    assert (tmp_path / "saved").read_text() == "saved\n"


@pytest.mark.skipif(not FULL, reason="another test kills the supervisor: at full scale")
def test_the_number_of_retries_includes_those_before_a_kill_of_the_supervisor(tmp_path):
    def tries():
        return len(ran_.read_text().split()) if ran_.exists() else 0

    ran_ = tmp_path / "ran"
    go = f"'{tmp_path}/go.'$(wc -l < {ran_})"
    text = f"echo x >> {ran_}; until [ -e {go} ]; do sleep 0.02; done; exit 1"
    job = submit_job(bash("bad", text, retries=1), max_retries=0)
    for times in (1, 2):
        wait_until(lambda times=times: tries() == times)
        assert kill_supervisor()
        (tmp_path / f"go.{times}").touch()
        supervisor_client.notify_supervisor()
    assert job.wait(LIMIT) == "failed"
    assert tries() == 2


def test_steps_continue_while_the_store_is_unavailable(tmp_path):
    import sqlalchemy as sql

    from hyperplane.jobs.store.jobs_home import store_url

    on, go = tmp_path / "on", tmp_path / "go"
    job = submit_job(bash("slow", f"touch {on}; {until_exists(go)}; echo to the end"))
    wait_until(on.exists)
    engine = sql.create_engine(store_url(), connect_args={"timeout": LIMIT})
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE hyperplane_jobs RENAME TO away"))
    time.sleep(1.2)
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE away RENAME TO hyperplane_jobs"))
    engine.dispose()
    go.touch()
    assert job.wait(LIMIT) == DONE
    assert job.logs() == "to the end\n"
    assert len(job.attempts) == 1
