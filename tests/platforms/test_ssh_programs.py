"""What runs on hosts, started here with pipes instead of an ssh connection."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from process_states import has_ended
from scale import FULL

from hyperplane.platforms.ssh.host_program import END_LINE
from hyperplane.platforms.ssh.hosts import HostConnectionError
from hyperplane.platforms.ssh.processes import wrap_command

ROOT = Path(__file__).parents[2]
HOST_PROGRAM = """
import os, sys, threading
from hyperplane.platforms.ssh import host_program

stop = threading.Event()
configuration = host_program.read_configuration()
host_program.end_with_connection(stop.set, grace=60)
os.write(1, b"of a task")
host_program.send_reply(variable=os.environ["WORD"], number=configuration["number"])
stop.wait()
sys.exit(7)
"""


#: Ignores the end of its connection, and has a child that does, too.
STUBBORN = """
import subprocess, sys, time
from hyperplane.platforms.ssh import host_program

owner = host_program.OwnerPipe()
child = subprocess.Popen(["sleep", "600"])
owner.call_at_end(lambda: None, grace=600.0, lost_grace=0.1)
print(child.pid, flush=True)
time.sleep(600)
"""


def start(text: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        wrap_command(["sh", "-c", text]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.process
def test_a_program_has_its_output_exit_code_and_an_empty_input() -> None:
    with start("cat; echo out; echo err >&2; exit 3") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"out\n"
        assert process.stderr.read() == b"err\n"
        assert process.wait(60) == 3


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "code"),
    [("sleep 600 & echo $!; wait", 128 + 15), ("trap '' TERM; sleep 600 & echo $!; wait", 128 + 9)],
)
def test_all_its_processes_end_with_its_input(text: str, code: int) -> None:
    with start(text) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        close(process)
        assert process.wait(60) == code
    deadline = time.monotonic() + 30
    while not has_ended(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not FULL, reason="another test closes the input: at full scale")
@pytest.mark.process
def test_an_input_that_is_closed_at_once_ends_it() -> None:
    for _ in range(5):  # setsid may not have run yet
        with start("sleep 600") as process:
            close(process)
            assert process.wait(60) in (128 + 15, 128 + 9)


@pytest.mark.slow
@pytest.mark.process
def test_what_a_program_leaves_running_ends_with_it() -> None:
    with start("sleep 600 >/dev/null 2>&1 & echo $!; exit 0") as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        assert process.wait(60) == 0
    assert has_ended(child)


@pytest.mark.process
def test_a_python_program_replies_once_and_its_output_is_apart() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST_PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        sent = {"variables": {"WORD": "x"}, "number": 5}
        process.stdin.write(json.dumps(sent).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"variable": "x", "number": 5}
        close(process)
        assert process.wait(60) == 7
        assert process.stdout.read() == b""
        assert process.stderr.read() == b"of a task"


@pytest.mark.process
def test_a_lost_connection_ends_all_processes_soon_and_an_announced_end_waits() -> None:
    def run() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", STUBBORN]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=ROOT)

    with run() as lost, run() as announced:
        for process in (lost, announced):
            assert process.stdout is not None
        child = psutil.Process(int(lost.stdout.readline()))  # type: ignore[union-attr]
        other = psutil.Process(int(announced.stdout.readline()))  # type: ignore[union-attr]
        assert announced.stdin is not None
        announced.stdin.write(END_LINE.encode())
        close(announced)
        close(lost)
        assert lost.wait(60) == 1
        deadline = time.monotonic() + 30
        while not has_ended(child):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert announced.poll() is None
        announced.kill()
        other.kill()


def test_the_error_names_each_host_and_pickles() -> None:
    error = HostConnectionError({"a": "no answer", "b": "unknown"}, 3)
    found = pickle.loads(pickle.dumps(error))
    assert str(found) == "2 hosts of 3 cannot be used:\n  a: no answer\n  b: unknown"
    assert found.faults == error.faults
