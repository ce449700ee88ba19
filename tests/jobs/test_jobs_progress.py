"""Progress of jobs as a tree and as lines."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from hyperplane.jobs import Attempt, Job, Pipeline, Step
from hyperplane.jobs.execution.step_command import attempt_prefix
from hyperplane.jobs.job_progress import (
    NOT_RUN,
    WAITING,
    ProgressLines,
    render_tree,
    step_progress,
    to_plain_line,
)
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    PENDING,
    TIMED_OUT,
    WorkUnit,
)

STEPS = (
    Step(name="one", kind="command", argv=("true",)),
    Step(name="many", kind="command", argv=("true",), chunks=10),
    Step(name="book", kind="notebook", path="book.ipynb"),
)


@pytest.fixture
def pipeline(tmp_path):
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": []}))
    return Pipeline.from_steps("p", STEPS, root=tmp_path)


@pytest.fixture
def job(pipeline, tmp_path):
    def create(status=IN_PROGRESS, **more):
        return Job(
            id="0123456789abcdef", run_id="r", name="trio", job_type="basic", status=status,
            submitted=90.0, started=100.0, timeout=-1, active_timeout=-1, max_retries=0,
            definition=pipeline.to_json(), parameters={}, machine="here", runner="local",
            python="python3", folder=str(tmp_path / "job"), **more,
        )  # fmt: skip

    return create


def attempt(step, status, chunk=-1, number=1, started=100.0, ended=104.0, reason=""):
    ended = 0.0 if status == IN_PROGRESS else ended
    return Attempt("0123456789abcdef", step, chunk, number, status, started, ended, reason=reason)


def text(job, attempts, now=110.0):
    console = Console(file=io.StringIO(), width=100, markup=False)
    console.print(render_tree(job, step_progress(job, attempts, now), now))
    return console.file.getvalue()


@pytest.mark.parametrize(
    "definition",
    ["", "{", "[]", "{}", "3", r'{"name": "\ud800"}', pytest.param("[" * 100_000, id="nested")],
)
def test_a_damaged_definition_leaves_a_job_that_can_be_listed(definition, job):
    assert job().as_dict()["pipeline"] == "p"
    for status in (PENDING, FAILED):
        damaged = replace(job(status), definition=definition, reason="exit 3")
        assert damaged.as_dict()["pipeline"] == ""
        assert "01234567" in text(damaged, [])
        assert "one" in text(damaged, [attempt("one", FAILED)])


def test_steps_without_attempts_wait_or_are_not_run(job):
    assert [state.status for state in step_progress(job(PENDING), [], 1.0)] == [WAITING] * 3
    assert [state.status for state in step_progress(job(FAILED), [], 1.0)] == [NOT_RUN] * 3


@pytest.mark.parametrize("status", [DONE, FAILED, TIMED_OUT, CANCELLED, LOST])
def test_a_step_has_the_status_of_its_last_attempt(status, job):
    attempts = [attempt("one", FAILED, started=100, ended=101), attempt("one", status, number=2,
             started=102, ended=107)]  # fmt: skip
    state = step_progress(job(), attempts, 110.0)[0]
    assert (state.status, state.seconds, state.attempts) == (status, 6.0, 2)
    assert state.detail == "attempt 2"
    assert len(state.failed) == (status != DONE)


def test_the_duration_of_a_step_excludes_times_without_a_running_attempt(job):
    def seconds(attempts, now=110.0, **more):
        return step_progress(job(**more), attempts, now)[1].seconds

    # Resumed the next day.
    attempts = [attempt("many", FAILED, started=100, ended=102),
             attempt("many", DONE, number=2, started=90_000, ended=90_005)]  # fmt: skip
    assert seconds(attempts, now=90_100.0) == 7.0
    # Concurrent, nested, and with a pause.
    spans = [(100, 110), (104, 106), (105, 112), (120, 121)]
    attempts = [attempt("many", DONE, chunk, started=begun, ended=ended)
             for chunk, (begun, ended) in enumerate(spans)]  # fmt: skip
    assert seconds(attempts) == 13.0
    assert seconds([*attempts, attempt("many", IN_PROGRESS, 4, started=122)], now=125.0) == 16.0
    left = [attempt("many", IN_PROGRESS, started=100)]
    assert seconds(left, now=900.0, status=FAILED, ended=103.0) == 3.0


def test_chunks_are_counted(job):
    attempts = [attempt("many", DONE, chunk) for chunk in range(7)]
    attempts += [attempt("many", IN_PROGRESS, chunk) for chunk in (7, 8)]
    state = step_progress(job(), attempts, 110.0)[1]
    assert (state.status, state.seconds) == (IN_PROGRESS, 10.0)
    assert state.detail == "7 of 10 done, 2 in progress"
    between = step_progress(job(), attempts[:7], 110.0)[1]
    assert (between.status, between.detail) == (IN_PROGRESS, "7 of 10 done")
    assert step_progress(job(CANCELLED), attempts[:7], 110.0)[1].status == NOT_RUN
    every = [attempt("many", DONE, chunk) for chunk in range(10)]
    assert step_progress(job(), every, 110.0)[1].status == DONE


def test_a_chunk_that_failed_makes_the_step_fail_once_no_other_one_runs(job):
    attempts = [attempt("many", DONE, 0), attempt("many", FAILED, 1, reason="no data")]
    running = [*attempts, attempt("many", IN_PROGRESS, 2)]
    assert step_progress(job(), running, 110.0)[1].status == IN_PROGRESS
    assert step_progress(job(), attempts, 110.0)[1].status == FAILED
    assert "[1] no data" in text(job(), running)


def test_the_cell_of_a_notebook_is_shown_while_it_runs(job):
    now = job()
    file = attempt_prefix(now, WorkUnit("book"), 1)
    file.parent.mkdir(parents=True)
    file.with_name("attempt-1.progress").write_text("3/10")
    assert step_progress(now, [attempt("book", IN_PROGRESS)], 110.0)[2].detail == "cell 3/10"
    assert step_progress(now, [attempt("book", DONE)], 110.0)[2].detail == ""
    assert step_progress(now, [attempt("book", IN_PROGRESS, number=2)], 110.0)[2].detail == (
        "attempt 2"
    )


def test_the_installation_of_requirements_is_shown_as_a_step(pipeline, job, tmp_path):
    (tmp_path / "requirements.txt").write_text("")
    more = Pipeline.from_steps("p", STEPS, root=tmp_path, requirements="requirements.txt")
    values = {**vars(job()), "definition": more.to_json()}
    values.pop("pipeline", None)
    states = step_progress(Job(**values), [attempt("(pip install)", IN_PROGRESS)], 101.0)
    assert [state.name for state in states] == ["(pip install)", "one", "many", "book"]
    assert states[0].status == IN_PROGRESS


def test_the_tree_has_job_steps_dashboard_and_reasons(job):
    attempts = [
        attempt("one", DONE),
        *(attempt("many", FAILED, i, reason=f"r{i}") for i in range(8)),
    ]
    shown = text(job(dashboard="http://here:8787/status"), attempts)
    lines = shown.splitlines()
    assert lines[0].split() == ["trio", "(01234567)", "in", "progress", "10", "s"]
    assert lines[1] == "dashboard http://here:8787/status"
    assert lines[2].split() == ["├──", "one", "done", "4.0", "s"]
    assert "0 of 10 done, 8 failed" in lines[3]
    assert [line.split()[-1] for line in lines[4:9]] == ["r0", "r1", "r2", "r3", "r4"]
    assert "and 3 more" in lines[9]
    assert lines[-1].split() == ["└──", "book", "waits"]


def test_a_job_without_a_failed_step_shows_its_reason(job):
    shown = text(job(TIMED_OUT, ended=105.0, reason="exceeded its timeout of 5 s"), [])
    assert "exceeded its timeout of 5 s" in shown
    assert "5.0 s" in shown


def test_control_characters_in_a_reason_are_not_printed(job):
    evil = "\x1b[2Jgone [red]mark[/red]\nsecond \x07"
    shown = text(job(), [attempt("one", FAILED, reason=evil)])
    assert "\x1b[2J" not in shown
    assert "[2Jgone [red]mark[/red] second" in shown
    states = step_progress(job(), [attempt("one", FAILED, reason=evil)], 1.0)
    lines = list(ProgressLines().lines(job(reason=evil), [], states, 1.0))
    assert all(to_plain_line(line) == line for line in lines)


def new_lines(changes, job, attempts, now):
    states = step_progress(job, attempts, now)
    return [line[9:] for line in changes.lines(job, attempts, states, now)]


def test_each_change_is_reported_once(job):
    changes, waiting, now = ProgressLines(), job(PENDING), job()
    assert new_lines(changes, waiting, [], 91.0) == ["job trio (01234567): pending"]
    running = [attempt("one", IN_PROGRESS)]
    first = ["one: in progress", "job trio (01234567): in progress"]
    assert new_lines(changes, now, running, 101.0) == first
    assert new_lines(changes, now, running, 102.0) == []
    failed = [attempt("one", FAILED, reason="exit code 3")]
    assert new_lines(changes, now, failed, 105.0) == ["one: failed in 4.0 s: exit code 3"]
    again = [*failed, attempt("one", IN_PROGRESS, number=2)]
    assert new_lines(changes, now, again, 106.0) == ["one: in progress (attempt 2)"]
    done = [*failed, attempt("one", DONE, number=2, started=105.0, ended=107.0)]
    assert new_lines(changes, job(dashboard="http://x"), done, 108.0) == [
        "one: done in 6.0 s (attempt 2)",
        "dashboard http://x",
    ]
    ended = job(FAILED, ended=110.0, reason="no luck")
    assert new_lines(changes, ended, done, 110.0) == [
        "job trio (01234567): failed in 10 s: no luck"
    ]


def test_many_chunks_make_a_line_for_each_tenth_and_each_failure(pipeline, job):
    values = {**vars(job()), "definition": pipeline.to_json().replace("10", "1000")}
    values.pop("pipeline", None)
    large, changes = Job(**values), ProgressLines()
    assert large.pipeline.steps[1].chunks == 1000
    attempts: list[Attempt] = []
    lines: list[str] = []
    for chunk in range(1000):
        bad = chunk == 500
        attempts.append(
            attempt("many", FAILED if bad else DONE, chunk, reason="why" if bad else "")
        )
        if not chunk % 5:
            lines += new_lines(changes, large, attempts, 101.0)
    assert "many [500]: failed: why" in lines
    assert len(lines) <= 1 + 1 + 10 + 2


def test_lines_name_their_job_if_there_are_several(job):
    lines = new_lines(ProgressLines(several=True), job(), [attempt("one", DONE)], 101.0)
    assert lines[0] == "trio (01234567) one: done in 4.0 s"


def test_a_wait_shows_steps_by_state_and_the_running_ones(job):
    from hyperplane.jobs.job_waiting import describe_wait

    def line(job, attempts):
        states = step_progress(job, attempts, 110.0)
        return describe_wait(job, states).as_line(35.0, 200).partition("job ")[2]

    assert line(job(PENDING), []) == "trio: 0 of 3 steps done, 35 s; pending; 3 waiting"
    attempts = [
        attempt("one", DONE),
        *(attempt("many", DONE, chunk) for chunk in range(3)),
        attempt("many", IN_PROGRESS, 3),
    ]
    assert line(job(), attempts) == (
        "trio: 1 of 3 steps done, 35 s; running: many (3 of 10 done, 1 in progress); 1 waiting"
    )
    attempts = [attempt("one", FAILED), attempt("book", IN_PROGRESS, number=2)]
    assert line(job(), attempts) == (
        "trio: 0 of 3 steps done, 35 s; running: book (attempt 2); 1 failed, 1 waiting"
    )


@pytest.mark.slow
def test_wait_shows_the_job_on_standard_error_unless_it_is_turned_off(monkeypatch):
    import dask

    from hyperplane.core import progress_output, wait_display
    from hyperplane.jobs import submit

    monkeypatch.setattr(wait_display, "INTERVAL", 0.05)
    monkeypatch.setattr(progress_output, "_LEAST_PAUSE", 0.0)
    step = Step(name="rest", kind="command", argv=("sleep", "2"))
    outputs = {}
    for progress in (True, False):
        errors = outputs[progress] = io.StringIO()
        monkeypatch.setattr("sys.stderr", errors)
        job = submit(Pipeline.from_steps("waiting", [step]))
        with dask.config.set({"hyperplane.progress.delay": 0}):
            assert job.wait(progress=progress) == DONE
            assert job.wait(progress=progress) == DONE
    lines = outputs[True].getvalue().splitlines()
    assert any("0 of 1 steps done" in line and "running: rest" in line for line in lines)
    assert ": done after" in lines[-1]
    assert "steps done" not in outputs[False].getvalue()


@pytest.mark.slow
def test_a_timeout_of_wait_is_no_failure_of_the_job(monkeypatch):
    import dask

    from hyperplane.core import wait_display
    from hyperplane.jobs import submit

    monkeypatch.setattr(wait_display, "INTERVAL", 0.05)
    errors = io.StringIO()
    monkeypatch.setattr("sys.stderr", errors)
    step = Step(name="rest", kind="command", argv=("sleep", "60"))
    job = submit(Pipeline.from_steps("waiting", [step]))
    with dask.config.set({"hyperplane.progress.delay": 0}), pytest.raises(TimeoutError):
        job.wait(2)
    job.cancel()
    job.wait(progress=False)
    last = errors.getvalue().splitlines()[-1]
    assert re.search(r": still (pending|in progress) after ", last)
    assert "failed" not in errors.getvalue()
