"""Programs as tasks: JSON on stdin and stdout, no shell, and no remaining processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import psutil
import pytest

from hyperplane.asl.commands import Command
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError

pytestmark = pytest.mark.process

#: Seconds in which a program starts or ends on a busy machine.
LONG = 120
ONE = {
    "StartAt": "A",
    "States": {"A": {"Type": "Task", "Resource": "work", "TimeoutSecondsPath": "$.limit",
                     "End": True}},
}  # fmt: skip
#: Starts a child, writes both process ids to a file, and waits.
FAMILY = (
    "import os, subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "with open(sys.argv[1] + '.new', 'w') as file: file.write(f'{os.getpid()} {child.pid}')\n"
    "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
    "time.sleep(600)\n"
)


def python(code, *arguments):
    return Command([sys.executable, "-c", code, *arguments])


def run(command, data=None, **more):
    return run_machine(read_machine(ONE), {"limit": LONG, "data": data}, {"work": command}, **more)


def lives(number):
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # the process may end at any time
        return False


def gone(numbers):
    """Wait briefly until processes have ended; return whether they have."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        if not any(map(lives, numbers)):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def family(tmp_path):
    """File for the ids of a process and its child, which are ended after the test."""
    file = tmp_path / "family"
    yield file
    for number in numbers_in(file) if file.exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def numbers_in(file):
    deadline = time.monotonic() + LONG
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(number) for number in file.read_text().split()]


def test_a_program_reads_json_from_stdin_and_writes_json_to_stdout():
    nasty = "a'b\"c\n$(touch x); \\ \u00e9 \U0001f600"
    command = python(
        "import json, sys; print(json.dumps([json.load(sys.stdin)['data'], sys.argv[1]]))", nasty
    )
    assert run(command, nasty) == [nasty, nasty]


def test_a_program_that_writes_nothing_returns_null_and_may_leave_its_input_unread():
    assert run(python("pass"), "x" * 1_000_000) is None


def test_a_program_that_writes_a_lot_does_not_block():
    command = python(
        "import sys; sys.stderr.write('e' * 500_000); print('\"' + 'x' * 500_000 + '\"')"
    )
    assert run(command) == "x" * 500_000


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import sys; sys.exit('no such table')", "ended with exit status 1: no such table"),
        ("import sys; sys.exit(3)", "ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended with exit status -9"),
        ("print('done')", "invalid JSON"),
        ("print('NaN')", "invalid JSON"),
    ],
)
def test_a_failed_program_reports_its_standard_error(code, cause):
    with pytest.raises(MachineFailed, match=cause) as failed:
        run(python(code))
    assert failed.value.error == "States.TaskFailed"


def test_a_missing_program_fails_the_task(tmp_path):
    with pytest.raises(MachineFailed, match="cannot be started"):
        run(Command([str(tmp_path / "nothing")]))


@pytest.mark.parametrize(
    ("argv", "wheres"),
    [
        ("ls -l", ["argv"]),
        ([], ["argv"]),
        (None, ["argv"]),
        ([""], ["argv[0]"]),
        ([None], ["argv[0]"]),
        (["ls", 5, "", b"x"], ["argv[1]", "argv[3]"]),
    ],
)
def test_a_command_must_be_a_list_of_strings(argv, wheres):
    with pytest.raises(RequestError) as refused:
        Command(argv)
    assert [fault.where for fault in refused.value.faults] == wheres


def run_too_long(code, family):
    """Run a program that does not end, until its timeout."""
    for limit in (2, 20, LONG):  # until the program has time to start on this machine
        with pytest.raises(MachineFailed) as failed:
            run_machine(read_machine(ONE), {"limit": limit}, {"work": python(code, str(family))})
        assert failed.value.error == "States.Timeout"
        if family.exists():
            return


@pytest.mark.slow
def test_a_timeout_ends_the_program_and_its_children(family):
    run_too_long(FAMILY, family)
    assert gone(numbers_in(family))


@pytest.mark.slow
def test_a_program_that_ignores_sigterm_is_killed(family):
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FAMILY
    run_too_long(code, family)
    assert gone(numbers_in(family))


def test_a_branch_that_fails_ends_the_programs_of_the_others(family):
    def bad(data):
        numbers_in(family)
        raise ValueError("no")

    def branch(name):
        state = {"Type": "Task", "Resource": name, "End": True}
        return {"StartAt": name, "States": {name: state}}

    state = {"Type": "Parallel", "Branches": [branch("program"), branch("bad")], "End": True}
    machine = read_machine({"StartAt": "A", "States": {"A": state}})
    with pytest.raises(MachineFailed) as failed:
        run_machine(machine, 1, {"program": python(FAMILY, str(family)), "bad": bad})
    assert failed.value.error == "ValueError"
    assert gone(numbers_in(family))


def test_cancelling_ends_the_program(family):
    cancel = threading.Event()
    threading.Thread(target=lambda: (numbers_in(family), cancel.set())).start()
    with pytest.raises(MachineFailed, match="Cancelled"):
        run(python(FAMILY, str(family)), cancel=cancel)
    assert gone(numbers_in(family))


@pytest.fixture
def interrupts():
    """Enable SIGINT as in a terminal: background processes and their children may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_of_the_caller_ends_the_program(family):
    main = threading.get_ident()

    def interrupt():
        numbers_in(family)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(python(FAMILY, str(family)))
    assert gone(numbers_in(family))
