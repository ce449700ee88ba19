"""All processes of a run end with its primary, on signals, and when the command is killed."""

import os
import pty
import signal
import subprocess
import time

import pytest
from scale import FULL, scaled
from training_programs import (
    CHILDREN,
    all_ended,
    find_free_ports,
    read_pids,
    run_command,
    start_command,
    wait_until,
    write_program,
)

pytestmark = pytest.mark.process

#: Chief, one parameter server, one worker, one evaluator, and a child of each.
PROCESSES = 8


def _options():
    return [
        "--distributed", "--worker-count", "1", "--parameter-server-count", "1",
        "--evaluator-count", "1", "--start-port", str(find_free_ports(3)),
    ]  # fmt: skip


def _start(tmp_path, *arguments, **popen):
    package = write_program(tmp_path, CHILDREN)
    process = start_command(package, *_options(), arguments=[str(tmp_path), *arguments], **popen)
    assert wait_until(lambda: len(read_pids(tmp_path)) == PROCESSES), read_pids(tmp_path)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"), scaled([("--by-signal", 137)], [("", 3), ("--by-signal", 137)])
)
def test_all_processes_end_with_the_primary(tmp_path, how, code):
    package = write_program(tmp_path, CHILDREN)
    result = run_command(
        package, *_options(), arguments=[str(tmp_path), "--ends", how, str(PROCESSES)]
    )
    assert result.returncode == code
    assert len(read_pids(tmp_path)) == PROCESSES
    assert all_ended(read_pids(tmp_path))


@pytest.fixture
def default_sighup():
    """SIGHUP has its default action, also if pytest runs below ``nohup``."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.mark.usefixtures("default_sighup")
@pytest.mark.parametrize(
    "number", scaled([signal.SIGTERM], [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
)
def test_a_signal_ends_all_processes(tmp_path, number):
    """The signal is sent to the command only, which passes it on to the primary."""
    process = _start(tmp_path, stderr=subprocess.PIPE)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"hyperplane train: {number.name}: waiting at most 10 s for chief to end" in err
    assert all_ended(read_pids(tmp_path))


@pytest.mark.skipif(not FULL, reason="another test sends one signal: at full scale")
def test_a_second_signal_kills_a_primary_that_ignores_the_first(tmp_path):
    process = _start(tmp_path, "--stubborn")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 137
    assert all_ended(read_pids(tmp_path))


@pytest.mark.parametrize("whole_group", scaled([False], [False, True]))
def test_all_processes_end_when_the_command_is_killed(tmp_path, whole_group):
    process = _start(tmp_path)
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(60)
    assert wait_until(lambda: all_ended(read_pids(tmp_path)), 30)


DAEMON = """
import os, sys, time
from pathlib import Path
from hyperplane.platforms.local.processes import start_daemon
script = "import os, sys, time; open(sys.argv[1] + str(os.getpid()) + '.pid', 'w'); time.sleep(60)"
with open(os.devnull, "ab") as log:
    start_daemon([sys.executable, "-c", script, sys.argv[1] + "/"], os.environ, log)
while not list(Path(sys.argv[1]).glob("*.pid")):
    time.sleep(0.05)
"""


def test_a_daemon_such_as_the_supervisor_of_jobs_outlives_the_run(tmp_path):
    package = write_program(tmp_path, DAEMON)
    assert run_command(package, arguments=[str(tmp_path)]).returncode == 0
    (pid,) = read_pids(tmp_path)
    assert not all_ended([pid])
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_primary_once(tmp_path):
    text = """
import os, sys, time
if '"chief", "index"' not in os.environ["TF_CONFIG"]:
    time.sleep(600)
interrupts = 0
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        print("ready", flush=True)
        time.sleep(0.1)
    except KeyboardInterrupt:
        interrupts += 1
        deadline = time.monotonic() + 1.5
print("interrupts:", interrupts, flush=True)
sys.exit(5)
"""
    package = write_program(tmp_path, text)
    pid, terminal = pty.fork()
    if pid == 0:
        from training_programs import command_line

        line = command_line(package, *_options())
        os.execv(line[0], line)
    output = b""
    sent = False
    while True:
        try:
            chunk = os.read(terminal, 1024)
        except OSError:  # the terminal is closed
            break
        output += chunk
        if b"ready" in output and not sent:
            os.write(terminal, b"\x03")
            sent = True
        if not chunk:
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 5, output
    assert b"interrupts: 1\r\n" in output


FAILING = """
import os, sys, time
from pathlib import Path
if '"worker", "index"' in os.environ["TF_CONFIG"]:
    sys.exit(9)
if '"chief", "index"' in os.environ["TF_CONFIG"]:
    time.sleep(float(sys.argv[1]))
    sys.exit(0)
time.sleep(600)
"""


#: Worker 1 is killed, and worker 0 or the chief fails at once because it has lost its connection.
LOSE_CONNECTION = """
import json, os, signal, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
task, waiting = config["task"], sys.argv[1]
address = ("localhost", int(config["cluster"][waiting][0].split(":")[1]))
if (task["type"], task["index"]) == (waiting, 0):
    with socket.create_server(address) as server:
        if not server.accept()[0].recv(1):
            sys.exit(3)
if (task["type"], task["index"]) != ("worker", 1):
    time.sleep(600)
while True:
    try:
        connection = socket.create_connection(address)
        break
    except OSError:
        time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _lose_connection(package, waiting):
    options = ["--worker-count", "2", "--parameter-server-count", "0", "--fail-fast"]
    port = str(find_free_ports(3))
    return run_command(
        package, "--distributed", *options, "--start-port", port, arguments=[waiting]
    )


@pytest.mark.slow
def test_a_killed_worker_is_reported_also_if_the_primary_fails_at_once(tmp_path):
    result = _lose_connection(write_program(tmp_path, LOSE_CONNECTION), "chief")
    assert result.returncode in (3, 137)
    assert "worker-1 ended with SIGKILL" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="25 runs: at full scale")
def test_the_process_that_failed_first_is_named(tmp_path):
    package = write_program(tmp_path, LOSE_CONNECTION)
    codes = [_lose_connection(package, "worker").returncode for _ in range(25)]
    # On a loaded machine the two ends are not always seen in order.
    assert codes.count(137) > 8, codes


@pytest.mark.slow
def test_a_worker_that_fails_is_reported_and_the_primary_runs_on(tmp_path):
    result = run_command(write_program(tmp_path, FAILING), *_options(), arguments=["3"])
    assert result.returncode == 0
    assert "worker-0 ended with exit code 9 before chief; chief runs on" in result.stderr


@pytest.mark.skipif(not FULL, reason="another test has a worker that fails: at full scale")
def test_fail_fast_ends_the_run_with_the_code_of_the_worker(tmp_path):
    began = time.monotonic()
    result = run_command(
        write_program(tmp_path, FAILING), *_options(), "--fail-fast", arguments=["600"]
    )
    assert result.returncode == 9
    assert "ending the run with the code of worker-0" in result.stderr
    assert time.monotonic() - began < 100
