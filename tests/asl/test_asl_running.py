"""Execution of machines: concurrency, events, retries and refused arguments."""

from __future__ import annotations

import contextvars
import datetime as dt
import threading
import time
from collections import Counter

import asl_corpus
import pytest
from asl_corpus import each, one, parallel, task

from hyperplane.asl.commands import Command
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine
from hyperplane.errors import RequestError

#: Timeout of tests, in seconds.
LONG = 120


class Gauge:
    """A task that counts its concurrent calls.

    Parameters
    ----------
    expected : int
        Number of concurrent calls that each call waits for, because a busy machine starts threads
        late.
    """

    def __init__(self, expected):
        self.lock, self.now, self.most = threading.Lock(), 0, 0
        self.expected, self.reached = expected, threading.Event()

    def __call__(self, data):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.most >= self.expected:
                self.reached.set()
        assert self.reached.wait(LONG)
        time.sleep(0.02)  # for more concurrent calls than allowed
        with self.lock:
            self.now -= 1
        return data


def test_branches_run_concurrently():
    barrier = threading.Barrier(3)
    machine = parallel(*(task(name=name) for name in "XYZ"))
    output = run_machine(machine, 1, {"work": lambda data: barrier.wait(LONG) >= 0}, max_workers=3)
    assert output == [True, True, True]


def test_items_run_concurrently_and_their_outputs_are_in_order():
    barrier = threading.Barrier(4)

    def work(number):
        barrier.wait(LONG)
        time.sleep((4 - number) * 0.01)
        return number * 10

    assert run_machine(each(), [0, 1, 2, 3], {"work": work}, max_workers=4) == [0, 10, 20, 30]


@pytest.mark.parametrize(("limit", "workers", "most"), [(2, 8, 2), (0, 3, 3), (9, 2, 2), (1, 8, 1)])
def test_concurrent_items_are_limited_by_the_machine_and_by_max_workers(limit, workers, most):
    gauge = Gauge(most)
    machine = each(MaxConcurrency=limit)
    output = run_machine(machine, list(range(12)), {"work": gauge}, max_workers=workers)
    assert output == list(range(12))
    assert gauge.most == most


def test_tasks_in_maps_in_maps_share_the_limit_and_do_not_block_each_other():
    gauge = Gauge(2)
    inner = {"Type": "Map", "ItemProcessor": task(), "End": True}
    machine = one({"Type": "Map", "ItemProcessor": {"StartAt": "J", "States": {"J": inner}}})
    data = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert run_machine(machine, data, {"work": gauge}, max_workers=2) == data
    assert gauge.most == 2


def test_tasks_have_the_context_variables_of_the_caller_and_a_copy_of_their_input():
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the caller")
    data = {"l": [1]}

    def work(payload):
        payload["l"].append(2)
        return [variable.get(), payload["l"]]

    machine = parallel(task(name="X"), task(name="Y"))
    output = ["of the caller", [1, 2]]
    assert run_machine(machine, data, {"work": work}) == [output, output]
    assert data == {"l": [1]}


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), object()])
def test_a_task_that_returns_a_value_that_is_not_json_fails(value):
    with pytest.raises(MachineFailed, match="is not JSON") as failed:
        run_machine(one({"Type": "Task", "Resource": "work"}), 1, {"work": lambda data: value})
    assert failed.value.error == "States.TaskFailed"


def test_a_task_that_raises_system_exit_fails():
    def work(data):
        raise SystemExit(3)

    with pytest.raises(MachineFailed) as failed:
        run_machine(one({"Type": "Task", "Resource": "work"}), 1, {"work": work})
    assert (failed.value.error, failed.value.cause) == ("SystemExit", "3")


def test_data_that_nests_too_deep_fails_the_state():
    deep = "[" * 900 + "]" * 900
    state = {"Type": "Pass", "Parameters": {"x.$": "States.ArrayUnique(States.StringToJson($))"}}
    with pytest.raises(MachineFailed) as failed:
        run_machine(one(state), deep, {})
    assert failed.value.error in ("States.Runtime", "States.IntrinsicFailure")


def test_all_events_of_an_execution():
    events = []
    state = {
        "Type": "Task",
        "Resource": "flaky",
        "Retry": [{"ErrorEquals": ["ConnectionError"], "MaxAttempts": 1}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "End"}],
        "Next": "End",
    }
    inner = {"StartAt": "I", "States": {"I": state, "End": {"Type": "Fail", "Error": "Mine"}}}
    clock = asl_corpus.Clock()
    machine = one({"Type": "Map", "ItemProcessor": inner})
    with pytest.raises(MachineFailed):
        run_machine(
            machine, [{"failures": 9}], asl_corpus.tasks(None), on_event=events.append,
            sleep=clock.sleep, now=clock.now,
        )  # fmt: skip
    assert [(event.kind, event.path, event.error) for event in events] == [
        ("entered", ("A",), ""),
        ("entered", ("A", 0, "I"), ""),
        ("retried", ("A", 0, "I"), "ConnectionError"),
        ("caught", ("A", 0, "I"), "ConnectionError"),
        ("entered", ("A", 0, "End"), ""),
        ("failed", ("A", 0, "End"), "Mine"),
        ("failed", ("A",), "Mine"),
    ]
    assert (events[2].attempt, events[2].wait, events[2].cause) == (2, 1.0, "failure 1")
    assert [event.at for event in events] == sorted(event.at for event in events)


def test_the_times_of_events_are_in_utc():
    east = dt.timezone(dt.timedelta(hours=2))
    events = []
    now = dt.datetime(2026, 1, 1, 1, tzinfo=east)
    run_machine(one({"Type": "Pass"}), 1, {}, on_event=events.append, now=lambda: now)
    assert [event.at.isoformat() for event in events] == ["2025-12-31T23:00:00+00:00"] * 2


def test_events_of_many_threads_come_one_at_a_time():
    inside, kinds = [], []

    def on_event(event):
        inside.append(1)
        time.sleep(0.001)
        assert len(inside) == 1
        kinds.append(event.kind)
        inside.pop()

    run_machine(
        each(), list(range(50)), {"work": lambda data: data}, on_event=on_event, max_workers=8
    )
    assert Counter(kinds) == {"entered": 51, "succeeded": 51}


def test_an_exception_in_on_event_reaches_the_caller():
    def on_event(event):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_machine(each(), [1, 2], {"work": lambda data: data}, on_event=on_event)


def test_full_jitter_waits_between_zero_and_the_delay():
    state = {
        "Type": "Task",
        "Resource": "flaky",
        "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 30, "IntervalSeconds": 8,
                   "BackoffRate": 1, "JitterStrategy": "FULL"}],
    }  # fmt: skip
    clock = asl_corpus.Clock()
    tasks = asl_corpus.tasks(None)
    run_machine(one(state), {"failures": 30}, tasks, sleep=clock.sleep, now=clock.now)
    assert len(set(clock.waits)) > 20
    assert all(0 <= wait <= 8 for wait in clock.waits)


def test_a_delay_that_overflows_is_replaced_by_max_delay_seconds():
    state = {
        "Type": "Task",
        "Resource": "flaky",
        "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 400, "BackoffRate": 1e300}],
    }
    clock = asl_corpus.Clock()
    machine = one({**state, "Retry": [{**state["Retry"][0], "MaxDelaySeconds": 60}]})
    run_machine(machine, {"failures": 9}, asl_corpus.tasks(None), sleep=clock.sleep, now=clock.now)
    assert clock.waits == [1] + [60] * 8


def test_unsupported_machines_are_refused_before_the_start():
    states = {
        "A": {"Type": "Task", "Resource": "work", "HeartbeatSeconds": 5, "Next": "B"},
        "B": {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Next": "C"},
        "C": {"Type": "Task", "Resource": "arn:aws:states:::x:y.waitForTaskToken", "Next": "D"},
        "D": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Next": "E",
              "Parameters": {"FunctionName": "unknown"}},
        "E": {"Type": "Map", "End": True, "ResultWriter": {},
              "ItemReader": {"Resource": "arn:aws:states:::s3:getObject"},
              "ItemProcessor": {**task("lost"), "ProcessorConfig": {"Mode": "DISTRIBUTED"}}},
    }  # fmt: skip
    calls = []
    with pytest.raises(RequestError) as refused:
        run_machine(read_machine({"StartAt": "A", "States": states}), 1, {"work": calls.append})
    assert [fault.where for fault in refused.value.faults] == [
        "States.A.HeartbeatSeconds",
        "States.B.Resource",
        "States.C.Resource",
        "States.D.Parameters.FunctionName",
        "States.E.ResultWriter",
        "States.E.ItemReader.Resource",
        "States.E.ItemProcessor.States.I.Resource",
    ]
    assert calls == []


def test_all_faults_of_the_arguments_are_reported_together():
    tasks = {"a": ["ls"], 5: print, "c": Command(["ls"])}
    with pytest.raises(RequestError) as refused:
        run_machine({}, {1, 2}, tasks, max_workers=0)
    wheres = [fault.where for fault in refused.value.faults]
    assert wheres == ["machine", "input", "tasks['a']", "tasks[5]", "max_workers"]
    with pytest.raises(RequestError, match="a mapping of resources"):
        run_machine(each(), 1, [print])


def test_changing_the_output_does_not_change_the_machine():
    machine = one({"Type": "Pass", "Result": {"l": []}})
    run_machine(machine, 1, {})["l"].append(1)
    assert run_machine(machine, 1, {}) == {"l": []}


def test_a_task_that_is_named_by_the_input_and_is_not_there_is_a_failure_with_advice():
    state = {
        "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True,
        "Parameters": {"FunctionName.$": "$.name"},
    }  # fmt: skip
    machine = read_machine({"StartAt": "A", "States": {"A": state}})
    with pytest.raises(MachineFailed) as failed:
        run_machine(machine, {"name": "clean"}, {"load": len, "save": len})
    assert (failed.value.error, failed.value.cause) == (
        "States.Runtime",
        "there is no task for the function clean: the tasks are load, save; pass a task for it, "
        "under the resource, the name of what it runs or that of the state",
    )


def test_an_input_that_no_rule_matches_is_a_failure_with_advice():
    rule = {"Variable": "$", "NumericEquals": 1, "Next": "B"}
    states = {"A": {"Type": "Choice", "Choices": [rule]}, "B": {"Type": "Succeed"}}
    with pytest.raises(MachineFailed) as failed:
        run_machine(read_machine({"StartAt": "A", "States": states}), 2, {})
    assert (failed.value.error, failed.value.cause) == (
        "States.NoChoiceMatched",
        "no rule of Choices matches the input; add one that does, or a Default",
    )
