"""Containers and machines that share one home: each carries its own jobs on, and no other's.

Namespaces of Linux give what sets containers and machines apart: a host name, numbers of processes,
mounts and a network. Network file systems are not tried: that needs a kernel with NFS.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

_UNSHARE = ("unshare", "--uts", "--pid", "--mount", "--net", "--fork", "--mount-proc",
            "--kill-child")  # fmt: skip
#: Execute lines of standard input: the process with number 1 of a container.
_FIRST = """
import os, signal, sys
from hyperplane.jobs import JobHandle, Pipeline, Step, submit, wake
def start(name, text):
    step = Step(name="s", kind="command", argv=("bash", "-c", text))
    return submit(Pipeline.from_steps(name, [step]), max_retries=0)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""


def _has_namespaces():
    try:
        return subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


pytestmark = pytest.mark.skipif(not _has_namespaces(), reason="no right to make namespaces")


class Container:
    """Processes with a host name, and numbers from 1, of their own."""

    def __init__(self, name, home, folder):
        environment = {
            **os.environ,
            "DASK_HYPERPLANE__JOBS__HOME": str(home),
            "DASK_HYPERPLANE__JOBS__LINGER": "1s",
        }
        first = f'hostname {name}; exec "{sys.executable}" -uc "$0"'
        self.process = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", first, _FIRST],
            cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def send(self, expression):
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()

    def heard(self):
        return self.process.stdout.readline().strip()

    def ask(self, expression):
        self.send(expression)
        return self.heard()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def container(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    made = []

    def make(name):
        made.append(Container(name, tmp_path / "home", tmp_path / "work"))
        return made[-1]

    yield make
    for one in made:
        one.end()


def lines(tmp_path, name):
    file = Path(tmp_path, "work", name)
    return file.read_text().splitlines() if file.exists() else []


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


SAY = "echo $(hostname) $(readlink /proc/self/ns/pid) >> {name}"


@pytest.mark.parametrize("names", [("twin", "twin"), ("one", "two")])
def test_jobs_run_where_they_were_submitted(container, tmp_path, names):
    both = [container(name) for name in names]
    for number, one in enumerate(both):
        one.send("os.readlink('/proc/self/ns/pid')")
        one.send(f"start('{number}', '{SAY.format(name=number)}; sleep 3').id")
    spaces, ids = zip(*[(one.heard(), one.heard()) for one in both], strict=True)
    assert len(set(spaces)) == 2
    for one, id_ in zip(both, ids, strict=True):
        one.send(f"JobHandle('{id_}').wait(60), len(JobHandle('{id_}').attempts)")
    assert [one.heard() for one in both] == ["('done', 1)"] * 2
    found = [lines(tmp_path, str(number)) for number in range(2)]
    assert found == [[f"{name} {space}"] for name, space in zip(names, spaces, strict=True)]


def test_one_machine_ends_a_job_of_another_but_no_process_of_its_own(container, tmp_path):
    one, two = container("one"), container("two")
    for number, each in enumerate((one, two)):
        each.send(f"start('{number}', 'touch {number}; exec sleep 100').id")
    first, second = one.heard(), two.heard()
    wait_for(lambda: Path(tmp_path, "work", "0").exists() and Path(tmp_path, "work", "1").exists())
    assert "its files are on" in two.ask(f"JobHandle('{first}').resume()")
    assert two.ask(f"JobHandle('{first}').cancel()") == "None"
    assert one.ask(f"JobHandle('{first}').wait(60)") == "cancelled"
    assert two.ask(f"JobHandle('{second}').status") == "in progress"
    assert two.ask(f"[each.status for each in JobHandle('{second}').attempts]") == "['in progress']"
    assert two.ask(f"JobHandle('{second}').cancel()") == "None"
    assert two.ask(f"JobHandle('{second}').wait(60)") == "cancelled"


def test_a_job_is_left_alone_until_its_container_is_gone(container, tmp_path):
    one, two = container("twin"), container("twin")
    text = f"{SAY.format(name='begun')}; [ -e there ] || sleep 100"
    id_ = one.ask(f"start('long', '{text}').id")
    two.ask("0")
    wait_for(lambda: lines(tmp_path, "begun"))
    # A supervisor of that name looks while none looks after the job, but its step runs.
    assert one.ask("os.kill(wake.running(), signal.SIGKILL)") == "None"
    assert "it is in progress already" in two.ask(f"JobHandle('{id_}').resume()")
    two.send("start('short', 'sleep 1.5').wait(60)")
    assert two.heard() == "done"
    assert len(lines(tmp_path, "begun")) == 1
    Path(tmp_path, "work", "there").touch()
    one.end()
    found = f"JobHandle('{id_}').wait(60), [each.status for each in JobHandle('{id_}').attempts]"
    assert two.ask(found) == "('done', ['lost', 'done'])"
    assert len({line.split()[1] for line in lines(tmp_path, "begun")}) == 2
