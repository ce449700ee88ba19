"""Killed supervisors and steps: jobs go on, and nothing that is done is done again."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter

import psutil
import pytest
from job_cases import LIMIT, bash, kill, kill_supervisor, ran, submitted
from scale import scaled

from hyperplane.engines.running_system import running_system, started
from hyperplane.jobs import JobHandle, wake
from hyperplane.jobs.processes import Command, Process
from hyperplane.jobs.states import DONE, LOST

pytestmark = pytest.mark.process

MOMENTS = scaled(6, 24)
VICTIMS = ("supervisor", "step", "all")


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def processes_of(job):
    """The processes of a job's steps, whoever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HYPERPLANE_JOB_ID") == job.id:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_step_goes_on_when_the_supervisor_is_killed_and_is_not_repeated(tmp_path):
    job = submitted(
        bash("slow", f"echo begun >> {tmp_path}/told; sleep 1; echo ended >> {tmp_path}/told")
    )
    while not (tmp_path / "told").exists():
        time.sleep(0.01)
    assert kill_supervisor()
    assert JobHandle(job.id[:13]).wait(LIMIT) == DONE
    assert (tmp_path / "told").read_text() == "begun\nended\n"
    assert [one.number for one in job.attempts] == [1]


def test_a_step_that_ended_while_nobody_looked_is_done(tmp_path):
    job = submitted(bash("short", f"touch {tmp_path}/begun; sleep 0.3"), bash("next", "true"))
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    assert kill_supervisor()
    while processes_of(job):
        time.sleep(0.02)
    gone = time.time()
    time.sleep(1.5)
    assert job.resume().wait(LIMIT) == DONE
    assert [(one.step, one.number) for one in job.attempts] == [("short", 1), ("next", 1)]
    assert job.attempts[0].ended <= gone


def test_a_step_that_was_killed_with_its_supervisor_is_begun_again(tmp_path):
    job = submitted(
        bash("slow", f"echo x >> {tmp_path}/begun; [ -e {tmp_path}/there ] || sleep 60")
    )
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    assert kill_supervisor()
    for process in processes_of(job):
        kill(process.pid)
    (tmp_path / "there").touch()
    assert job.wait(LIMIT) == DONE
    assert [one.status for one in job.attempts] == [LOST, DONE]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_at_any_moment_a_kill_loses_nothing_and_repeats_nothing(tmp_path):
    def steps(folder):
        def write(name):
            return f"sleep 0.03; echo {name}$CHUNK_ID > {folder}/{name}$CHUNK_ID; sleep 0.02"

        return (
            bash("first", write("first")),
            bash("fan", write("fan"), chunks=4, max_parallel=2),
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
        assert ran(*steps(tmp_path / "calm")).status == DONE
        whole = time.monotonic() - began
    draw, hit = random.Random(7), Counter()
    for moment in range(MOMENTS):
        folder = tmp_path / str(moment)
        folder.mkdir()
        job = submitted(*steps(folder))
        victim = VICTIMS[moment % len(VICTIMS)]
        # The first ones early, and steps: the machine may be faster now than it was.
        early = moment < len(VICTIMS) or victim == "step"
        time.sleep(draw.uniform(0, whole / 3 if early else whole))
        struck = False
        if victim != "step":
            struck = kill_supervisor()
        if victim != "supervisor":
            for process in processes_of(job)[: None if victim == "all" else 1]:
                struck |= kill(process.pid)
            while victim == "step" and not struck and not job.job.processed:
                for process in processes_of(job)[:1]:  # the next one
                    struck = kill(process.pid)
        hit[victim] += struck
        done = {(one.step, one.chunk) for one in job.attempts if one.status == DONE}
        before = Counter((one.step, one.chunk) for one in job.attempts)
        going_on = job.resume() if job.job.status == "failed" else job
        assert going_on.wait(LIMIT) == DONE
        after = Counter((one.step, one.chunk) for one in job.attempts)
        assert {unit: after[unit] for unit in done} == {unit: before[unit] for unit in done}
        ends = Counter((one.step, one.chunk) for one in job.attempts if one.status == DONE)
        assert set(ends.values()) == {1}
        assert result(folder) == result(tmp_path / "calm")
    assert min(hit[victim] for victim in VICTIMS) >= scaled(1, 4), hit


def test_a_job_that_cannot_be_read_ends_and_others_go_on(tmp_path):
    from hyperplane.jobs.home import the_store

    bad, good = submitted(bash("a", "sleep 0.3")), submitted(bash("b", "sleep 0.3"))
    store = the_store()
    kill_supervisor()
    store.update(bad.id, definition='{"name": "p"}', status="pending")
    assert good.wait(LIMIT) == DONE
    assert bad.wait(LIMIT) == "failed"
    assert "RequestError" in bad.job.reason


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_job_that_is_cancelled_while_nobody_looks_ends_its_steps(tmp_path):
    job = submitted(
        bash("slow", f"echo $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid; sleep 60")
    )
    wait_for(tmp_path / "pid")
    assert kill_supervisor()
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    assert not alive(int((tmp_path / "pid").read_text()))
    assert [one.status for one in job.attempts] == ["cancelled"]


def test_a_step_that_was_in_time_is_done_however_late_somebody_looks(tmp_path):
    text = f"echo x >> {tmp_path}/ran; sleep 0.5"
    job = submitted(bash("quick", text, timeout=3), max_retries=0)
    wait_for(tmp_path / "ran")
    assert kill_supervisor()
    time.sleep(3.5)
    assert job.wait(LIMIT) == DONE
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_daemon_of_a_step_does_not_hold_up_the_job(tmp_path):
    text = f"setsid sleep 900 & echo $! > {tmp_path}/pid; touch {tmp_path}/ran; sleep 0.5"
    job = submitted(bash("leaves", text))
    wait_for(tmp_path / "ran")
    assert kill_supervisor()
    try:
        assert job.wait(LIMIT) == DONE
    finally:
        kill(int((tmp_path / "pid").read_text()))


def test_programs_below_the_step_have_time_to_end(tmp_path):
    polite = (
        f"trap 'sleep 0.5; echo saved > {tmp_path}/saved; exit' TERM; "
        f"touch {tmp_path}/on; while :; do sleep 0.05; done"
    )
    job = submitted(bash("outer", f'bash -c "{polite}" & sleep 60; true'))
    wait_for(tmp_path / "on")
    job.cancel()
    assert job.wait(LIMIT) == "cancelled"
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_retries_are_counted_over_kills(tmp_path):
    text = f"echo x >> {tmp_path}/ran; sleep 0.3; exit 1"
    job = submitted(bash("bad", text, retries=1), max_retries=0)
    for times in range(2):
        while not (tmp_path / "ran").exists() or len((tmp_path / "ran").read_text()) < 2 * (
            times + 1
        ):
            time.sleep(0.01)
        kill_supervisor()
        job.resume() if job.job.processed else None
        wake.tell()
    assert job.wait(LIMIT) == "failed"
    assert (tmp_path / "ran").read_text() == "x\n" * 2


def test_a_store_that_is_away_for_a_while_ends_no_step(tmp_path):
    import sqlalchemy as sql

    from hyperplane.jobs.home import store_url

    job = submitted(bash("slow", f"touch {tmp_path}/on; sleep 2; echo to the end"))
    wait_for(tmp_path / "on")
    engine = sql.create_engine(store_url())
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE hyperplane_jobs RENAME TO away"))
    time.sleep(1.2)
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE away RENAME TO hyperplane_jobs"))
    engine.dispose()
    assert job.wait(LIMIT) == DONE
    assert job.logs() == "to the end\n"
    assert len(job.attempts) == 1


def test_a_process_that_has_its_number_elsewhere_is_not_signalled(tmp_path):
    command = Command((), {}, "", tmp_path / "attempt-1")
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        told = f"{stranger.pid} {started(stranger.pid)}"
        for system, reached in ((running_system(), True), ("another-boot-4026531836", False)):
            command.file(".pid").write_text(f"{told} {system}")
            assert Process(command)._signal(0) is reached
    finally:
        stranger.kill()
        stranger.wait()
