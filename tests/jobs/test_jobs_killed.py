"""Killed supervisors and steps: jobs go on, and nothing that is done is done again."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import psutil
import pytest
from job_cases import bash, ran, submitted

from hyperplane.jobs import JobHandle, wake
from hyperplane.jobs.states import DONE, LOST

MOMENTS = 50


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_supervisor():
    pid = wake.running()
    if pid:
        kill(pid)
        while wake.running() is not None:
            time.sleep(0.005)
    return bool(pid)


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
    assert JobHandle(job.id[:13]).wait(30) == DONE
    assert (tmp_path / "told").read_text() == "begun\nended\n"
    assert [one.number for one in job.attempts] == [1]


def test_a_step_that_ended_while_nobody_looked_is_done(tmp_path):
    job = submitted(bash("short", f"touch {tmp_path}/begun; sleep 0.3"), bash("next", "true"))
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    assert kill_supervisor()
    while processes_of(job):
        time.sleep(0.02)
    assert job.resume().wait(30) == DONE
    assert [(one.step, one.number) for one in job.attempts] == [("short", 1), ("next", 1)]


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
    assert job.wait(30) == DONE
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
    began = time.monotonic()
    assert ran(*steps(tmp_path / "calm")).status == DONE
    whole = time.monotonic() - began
    draw, hit = random.Random(7), Counter()
    for moment in range(MOMENTS):
        folder = tmp_path / str(moment)
        folder.mkdir()
        job = submitted(*steps(folder))
        time.sleep(draw.uniform(0, whole))
        victim = draw.choice(("supervisor", "step", "all"))
        struck = False
        if victim != "step":
            struck = kill_supervisor()
        if victim != "supervisor":
            found = processes_of(job)
            for process in found if victim == "all" else found[:1]:
                struck |= kill(process.pid)
        hit[victim] += struck
        done = {(one.step, one.chunk) for one in job.attempts if one.status == DONE}
        before = Counter((one.step, one.chunk) for one in job.attempts)
        assert job.resume().wait(60) == DONE if job.job.status == "failed" else job.wait(60) == DONE
        after = Counter((one.step, one.chunk) for one in job.attempts)
        assert {unit: after[unit] for unit in done} == {unit: before[unit] for unit in done}
        ends = Counter((one.step, one.chunk) for one in job.attempts if one.status == DONE)
        assert set(ends.values()) == {1}
        assert result(folder) == result(tmp_path / "calm")
    assert min(hit.values()) >= 5, hit


def test_a_job_that_cannot_be_read_ends_and_others_go_on(tmp_path):
    from hyperplane.jobs.home import the_store

    bad, good = submitted(bash("a", "sleep 0.3")), submitted(bash("b", "sleep 0.3"))
    store = the_store()
    kill_supervisor()
    store.update(bad.id, definition='{"name": "p"}', status="pending")
    assert good.wait(30) == DONE
    assert bad.wait(30) == "failed"
    assert "RequestError" in bad.job.reason
