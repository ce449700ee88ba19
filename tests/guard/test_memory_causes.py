"""Which tasks would end an empty worker again."""

from __future__ import annotations

import pytest
from test_memory_advice import make_report, make_task

from hyperplane.guard.memory_causes import is_certain, select_reports
from hyperplane.guard.memory_report import MemoryReport, RunningTask

ALONE = make_task()


@pytest.mark.parametrize(
    ("report", "task", "certain"),
    [
        pytest.param(make_report(ALONE), ALONE, True, id="it filled an empty worker"),
        pytest.param(
            make_report(late := make_task(memory_before=400, reserved_before=560)),
            late,
            False,
            id="others filled the worker",
        ),
        pytest.param(
            make_report(fed := make_task(memory_before=400, inputs=250)),
            fed,
            True,
            id="its inputs filled the worker",
        ),
        pytest.param(
            make_report(loaded := make_task(memory_before=250, inputs=200, inputs_held=0)),
            loaded,
            False,
            id="its inputs were on disk, so that they are in the growth",
        ),
        pytest.param(
            make_report(beside := make_task(held_before=100), held={"a": 250_000_000}),
            beside,
            False,
            id="results came from other workers meanwhile",
        ),
        pytest.param(
            make_report(beside := make_task(held_before=250), held={"a": 250_000_000}),
            beside,
            True,
            id="results were there before",
        ),
        pytest.param(
            make_report(array := make_task(memory_before=400), reserved=2000),
            array,
            False,
            id="it allocated memory that it did not use, as Arrow does",
        ),
        pytest.param(make_report(ALONE, make_task("b")), ALONE, False, id="another task ran"),
        pytest.param(make_report(ALONE, cause="spill disk"), ALONE, False, id="it was not ended"),
        pytest.param(
            make_report(ALONE, cause="kernel", peak=300, reserved=450),
            ALONE,
            False,
            id="killed far below the limit",
        ),
        pytest.param(
            make_report(sent := make_task(prefix="shuffle-transfer")),
            sent,
            False,
            id="buffers of a shuffle filled the worker",
        ),
    ],
)
def test_only_what_a_task_needs_alone_is_certain(
    report: MemoryReport, task: RunningTask, certain: bool
) -> None:
    assert is_certain(report, task) == certain


def test_reports_of_a_task_are_those_in_which_it_ran() -> None:
    reports = [make_report(make_task("a")), make_report(make_task("b")), make_report()]
    assert select_reports(reports, "a") == (reports[0],)
