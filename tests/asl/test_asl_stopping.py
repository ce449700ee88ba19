"""Early end of executions: failures, timeouts and cancellation."""

from __future__ import annotations

import pickle
import threading
import time

import asl_corpus
import pytest
from asl_corpus import each, one, parallel, task

from hyperplane.asl.errors import BranchStopped, MachineFailed
from hyperplane.asl.execution_scope import ExecutionScope, run_concurrently
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import HyperplaneError

#: Longest wait of a task, in seconds; a test that waits for it is too slow.
LONG = 120


class BlockingTask:
    """A task that blocks until it is released, at most for ``LONG`` seconds."""

    def __init__(self):
        self.released, self.ended = threading.Event(), threading.Event()

    def __call__(self, data=None):
        self.released.wait(LONG)
        self.ended.set()


def test_a_branch_that_fails_stops_the_waits_and_tasks_of_the_others():
    slow = BlockingTask()
    waiting = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 900, "End": True}}}
    machine = parallel(waiting, task("slow", "S"), task("bad", "B"))

    def bad(data):
        raise LookupError("gone")

    try:
        with pytest.raises(MachineFailed) as failed:
            run_machine(machine, 1, {"slow": slow, "bad": bad})
        assert not slow.ended.is_set()
    finally:
        slow.released.set()
    assert (failed.value.error, failed.value.state) == ("LookupError", "A[2].B")
    assert isinstance(failed.value.__cause__, LookupError)


def test_items_after_the_one_that_failed_do_not_start():
    started = []

    def work(number):
        started.append(number)
        if number == 3:
            raise ValueError
        return number

    with pytest.raises(MachineFailed):
        run_machine(each(MaxConcurrency=1), list(range(100)), {"work": work})
    assert started == [0, 1, 2, 3]


def test_a_task_that_exceeds_its_limit_fails_with_a_timeout_that_task_failed_does_not_catch():
    work = BlockingTask()
    catch = [
        {"ErrorEquals": ["States.TaskFailed"], "Next": "Wrong"},
        {"ErrorEquals": ["States.Timeout"], "ResultPath": "$.e", "Next": "TimedOut"},
    ]
    state = {"Type": "Task", "Resource": "work", "TimeoutSecondsPath": "$.limit", "Catch": catch}
    machine = read_machine(
        {
            "StartAt": "A",
            "States": {
                "A": {**state, "Next": "TimedOut"},
                "TimedOut": {"Type": "Succeed", "OutputPath": "$.e.Error"},
                "Wrong": {"Type": "Fail"},
            },
        }
    )
    try:
        assert run_machine(machine, {"limit": 1}, {"work": work}) == "States.Timeout"
        assert not work.ended.is_set()
    finally:
        work.released.set()


def test_a_timeout_error_of_a_task_is_not_a_states_timeout():
    def work(data):
        raise TimeoutError("the other side")

    machine = one({"Type": "Task", "Resource": "work", "TimeoutSeconds": 9})
    with pytest.raises(MachineFailed) as failed:
        run_machine(machine, 1, {"work": work})
    assert failed.value.error == "TimeoutError"


def test_the_timeout_of_the_machine_is_neither_retried_nor_caught():
    work = BlockingTask()
    machine = read_machine(
        {
            "TimeoutSeconds": 1,
            "StartAt": "A",
            "States": {
                "A": {
                    "Type": "Task",
                    "Resource": "work",
                    "Retry": [{"ErrorEquals": ["States.ALL"]}],
                    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "B"}],
                    "Next": "B",
                },
                "B": {"Type": "Succeed"},
            },
        }
    )
    started = time.monotonic()
    try:
        with pytest.raises(MachineFailed) as failed:
            run_machine(machine, 1, {"work": work})
        assert not work.ended.is_set()
    finally:
        work.released.set()
    assert (failed.value.error, failed.value.state) == ("States.Timeout", "")
    assert time.monotonic() - started > 0.9


def test_a_machine_with_a_cycle_ends_at_its_timeout():
    clock = asl_corpus.Clock()
    states = {
        "A": {"Type": "Wait", "Seconds": 10, "Next": "B"},
        "B": {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": True, "Next": "A"}]},
        "C": {"Type": "Succeed"},
    }
    states["B"]["Default"] = "C"
    machine = read_machine({"StartAt": "A", "TimeoutSeconds": 95, "States": states})
    with pytest.raises(MachineFailed, match="exceeded its TimeoutSeconds"):
        run_machine(machine, None, {}, sleep=clock.sleep, now=clock.now)
    assert clock.waits == [10] * 9 + [5]


@pytest.mark.parametrize("kind", ["wait", "timestamp", "retry", "function", "map"])
def test_cancelling_ends_waits_retries_tasks_and_maps(kind):
    cancel, reached, blocking = threading.Event(), threading.Event(), BlockingTask()

    def work(data):
        reached.set()
        if kind == "retry":
            raise OSError
        blocking()

    def on_event(event):
        if kind in ("wait", "timestamp"):
            reached.set()

    machine = {
        "wait": lambda: one({"Type": "Wait", "Seconds": 900}),
        "timestamp": lambda: one({"Type": "Wait", "Timestamp": "9999-01-01T00:00:00Z"}),
        "function": lambda: one({"Type": "Task", "Resource": "work"}),
        "map": each,
        "retry": lambda: one(
            {
                "Type": "Task",
                "Resource": "work",
                "Retry": [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 900}],
            }
        ),
    }[kind]()
    threading.Thread(target=lambda: (reached.wait(LONG), cancel.set())).start()
    try:
        # Waits of 900 s would exceed the timeout of the test if they were not stopped.
        with pytest.raises(MachineFailed) as failed:
            run_machine(machine, [1] * 50, {"work": work}, cancel=cancel, on_event=on_event)
        assert not blocking.ended.is_set()
    finally:
        blocking.released.set()
    assert failed.value.error == "Cancelled"


def test_no_thread_remains_after_an_execution():
    before = set(threading.enumerate())
    machine = parallel(*(task(name=name) for name in "XYZ"))
    run_machine(machine, 1, {"work": lambda data: data}, cancel=threading.Event())
    deadline = time.monotonic() + LONG
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == set()


def test_a_scope_inside_a_stopped_scope_is_stopped_at_once():
    calls, scope = [], ExecutionScope()
    scope.stop()
    with scope.on_stop(lambda: calls.append("called")), scope.inner() as inner:
        assert calls == ["called"]
        assert inner.stopped
        with pytest.raises(BranchStopped):
            inner.wait(LONG)
    assert run_concurrently(ExecutionScope(), [], 1) == []


def test_machine_failed_can_be_pickled_with_its_fields():
    error = pickle.loads(pickle.dumps(MachineFailed("Mine", "because", "A[0].B")))
    assert isinstance(error, HyperplaneError)
    assert isinstance(error, RuntimeError)
    assert (error.error, error.cause, error.state) == ("Mine", "because", "A[0].B")
    assert str(error) == "the machine failed in state A[0].B with Mine: because"
