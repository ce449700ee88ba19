"""A step whose cluster ran out of memory has the explanation as its reason."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

from hyperplane import errors
from hyperplane.errors import WorkerOutOfMemory
from hyperplane.guard.memory_advice import MemoryFailure, WorkerLayout, explain
from hyperplane.guard.memory_report import MemoryReport, RunningTask
from hyperplane.guard.worker_exits import explain_exit
from hyperplane.jobs.execution.failure_kinds import (
    INPUT,
    MEMORY,
    TRANSIENT,
    classify_failure,
    describe_failure,
)


def make_log() -> str:
    """Return the end of the log of a program that an explained failure ended."""
    task = RunningTask("sum-1", "sum", 1.0, 150, 0)
    report = MemoryReport("tcp://w", "0", "terminate", 480, 500, (task,), {}, 0, 1, 1, 0.0)
    text = explain(MemoryFailure("sum-1", "sum", "terminate", (report,)), WorkerLayout())
    kind = f"{WorkerOutOfMemory.__module__}.{WorkerOutOfMemory.__qualname__}"
    return f"Traceback (most recent call last):\n  File ...\n{kind}: {text}\n"


def test_a_crash_of_a_worker_is_no_lack_of_memory() -> None:
    report = {"exit_code": -11, "running": ["sum-1"], "peak": 480, "limit": 500}
    text = explain_exit("sum", "sum-1", 4, report)
    assert classify_failure(1, f"hyperplane.errors.WorkerCrash: {text}\n") == TRANSIENT


def test_it_counts_as_out_of_memory_for_more_memory_and_split() -> None:
    assert classify_failure(1, make_log()) == MEMORY


def test_the_reason_is_the_whole_explanation_in_one_line() -> None:
    reason = describe_failure(1, make_log())
    assert reason.startswith("exit code 1: task sum-1 (sum) did not fit in the memory of a worker")
    assert "Fix: initialize_cluster(..., ram_gb_per_proc=2.1)" in reason
    assert "\n" not in reason


def test_the_reason_of_other_errors_is_the_last_line() -> None:
    assert describe_failure(1, "Traceback\nValueError: x\n") == "exit code 1: ValueError: x"


def test_an_array_that_is_too_large_counts_as_out_of_memory() -> None:
    with pytest.raises(MemoryError) as caught:
        np.ones((10**9, 10**9))
    assert classify_failure(1, "".join(traceback.format_exception(caught.value))) == MEMORY


def test_the_reason_of_a_group_of_errors_is_the_last_one_of_them() -> None:
    inner = ExceptionGroup("inner", [OSError("first"), KeyError("second")])
    group = ExceptionGroup("many", [ValueError("x"), inner])
    log = "".join(traceback.format_exception(group))
    assert describe_failure(1, log) == "exit code 1: KeyError: 'second'"
    assert describe_failure(1, "a | b\n+----\n") == "exit code 1: +----"


def test_errors_of_hyperplane_that_an_input_causes_are_not_retried() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    caused = [
        kind
        for kind in kinds
        if issubclass(kind, errors.RequestError | ImportError) and not issubclass(kind, Warning)
    ]
    assert errors.UnknownArgument in caused
    for kind in caused:
        log = f"Traceback (most recent call last):\n{kind.__module__}.{kind.__name__}: 1 fault\n"
        assert classify_failure(1, log) == INPUT, kind
