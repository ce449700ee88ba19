"""Containers and machines that share one home: each continues only its own jobs.

Linux namespaces simulate them, each with a separate host name, process IDs, mounts and network.
Network file systems are not tested: that needs a kernel with NFS.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest
from containers import Container
from job_cases import bash
from scale import FULL

from hyperplane.jobs import Pipeline
from hyperplane.jobs.execution.job_folder import can_adopt, hold_submission_lock
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.submission import submission_snapshot

pytestmark = pytest.mark.process

#: Program of process 1 of a container: it evaluates the lines of standard input.
_FIRST = """
import os, signal, sys
from hyperplane.jobs import JobHandle, Pipeline, Step, submit, supervisor_client
def start(name, text):
    step = Step(name="s", kind="command", argv=("bash", "-c", text))
    return submit(Pipeline.from_steps(name, [step]), max_retries=0)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


@pytest.fixture
def container(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    containers = []

    def make(name):
        settings = {
            "DASK_HYPERPLANE__JOBS__HOME": str(tmp_path / "home"),
            "DASK_HYPERPLANE__JOBS__LINGER": "1s",
        }
        containers.append(Container(name, _FIRST, tmp_path / "work", settings))
        return containers[-1]

    yield make
    for each in containers:
        each.end()


def lines(tmp_path, name):
    file = Path(tmp_path, "work", name)
    return file.read_text().splitlines() if file.exists() else []


def wait_for(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


SAY = "echo $(hostname) $(readlink /proc/self/ns/pid) >> {name}"


@pytest.mark.skipif(not FULL, reason="takes ten seconds: at full scale")
def test_jobs_run_where_they_were_submitted_until_their_container_is_gone(container, tmp_path):
    both = [container("twin") for _ in range(2)]
    for number, one in enumerate(both):
        one.send("os.readlink('/proc/self/ns/pid')")
        one.send(f"start('{number}', '{SAY.format(name=number)}; sleep 1.5').id")
    spaces, ids = zip(*[(one.heard(), one.heard()) for one in both], strict=True)
    assert len(set(spaces)) == 2
    for one, id_ in zip(both, ids, strict=True):
        one.send(f"JobHandle('{id_}').wait(150), len(JobHandle('{id_}').attempts)")
    assert [one.heard() for one in both] == ["('done', 1)"] * 2
    found = [lines(tmp_path, str(number)) for number in range(2)]
    assert found == [[f"twin {space}"] for space in spaces]
    one, two = both
    text = f"{SAY.format(name='begun')}; [ -e there ] || sleep 1000"
    id_ = one.ask(f"start('long', '{text}').id")
    wait_for(lambda: lines(tmp_path, "begun"))
    # The other container with this host name has a supervisor, but the step of the job runs.
    assert one.ask("os.kill(supervisor_client.supervisor_pid(), signal.SIGKILL)") == "None"
    assert "already in progress" in two.ask(f"JobHandle('{id_}').resume()")
    two.send("start('short', 'sleep 1.5').wait(150)")
    assert two.heard() == "done"
    assert len(lines(tmp_path, "begun")) == 1
    Path(tmp_path, "work", "there").touch()
    one.end()
    found = f"JobHandle('{id_}').wait(150), [each.status for each in JobHandle('{id_}').attempts]"
    assert two.ask(found) == "('done', ['lost', 'done'])"
    assert len({line.split()[1] for line in lines(tmp_path, "begun")}) == 2


@pytest.mark.skipif(not FULL, reason="starts two containers more: at full scale")
def test_a_machine_cancels_a_job_of_another_but_ends_no_local_process(container, tmp_path):
    one, two = container("one"), container("two")
    for number, each in enumerate((one, two)):
        each.send(f"start('{number}', '{SAY.format(name=number)}; exec sleep 1000').id")
    first, second = one.heard(), two.heard()
    wait_for(lambda: lines(tmp_path, "0") and lines(tmp_path, "1"))
    assert [lines(tmp_path, str(each))[0].split()[0] for each in range(2)] == ["one", "two"]
    assert "files of this job are on" in two.ask(f"JobHandle('{first}').resume()")
    assert two.ask(f"JobHandle('{first}').cancel()") == "None"
    assert one.ask(f"JobHandle('{first}').wait(150)") == "cancelled"
    assert two.ask(f"JobHandle('{second}').status") == "in progress"
    assert two.ask(f"[each.status for each in JobHandle('{second}').attempts]") == "['in progress']"
    assert two.ask(f"JobHandle('{second}').cancel()") == "None"
    assert two.ask(f"JobHandle('{second}').wait(150)") == "cancelled"


def test_a_job_is_not_adopted_while_it_is_being_submitted_or_runs_a_step(tmp_path, monkeypatch):
    job = new_job(Pipeline.from_steps("p", [bash("a", "true")]))
    monkeypatch.setattr(submission_snapshot, "running_system", lambda: "another-boot-1")
    submission_snapshot.save_snapshot(job, {}, {})
    assert submission_snapshot.read_running_system(job) == "another-boot-1"
    with hold_submission_lock(job):
        assert not can_adopt(job)
    assert can_adopt(job)
    (job.folder_path / "steps" / "000-a").mkdir(parents=True)
    with (job.folder_path / "steps" / "000-a" / "attempt-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not can_adopt(job)
    assert can_adopt(job)


def test_a_job_is_adopted_if_a_step_folder_is_removed_during_the_check(monkeypatch):
    job = new_job(Pipeline.from_steps("p", [bash("a", "true")]))
    monkeypatch.setattr(submission_snapshot, "running_system", lambda: "another-boot-1")
    submission_snapshot.save_snapshot(job, {}, {})
    (job.folder_path / "steps" / "000-a").mkdir(parents=True)
    real, removed = os.scandir, []

    def after_removal(path):
        if str(path).endswith("000-a"):
            shutil.rmtree(path)
            removed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", after_removal)
    assert can_adopt(job)
    assert removed
