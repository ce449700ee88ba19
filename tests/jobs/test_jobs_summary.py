"""Summaries that ``checkjobs`` shows of several jobs over several polls."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from job_cases import bash

from hyperplane import notebook_common as nc
from hyperplane.jobs import Pipeline, job_summary
from hyperplane.jobs.job_control import cancel, new_job
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS
from hyperplane.jobs.store.jobs_home import open_store

INTERVAL = 0.02


@pytest.fixture
def three(monkeypatch):
    """Three jobs that no supervisor runs."""
    monkeypatch.setattr(job_summary, "ensure_supervisor", lambda store: None)
    jobs = [new_job(Pipeline.from_steps("p", [bash("a", "true")])) for _ in range(3)]
    for job in jobs:
        # A supervisor started by an earlier test may be running.
        open_store().add(replace(job, machine="other@elsewhere"))
    yield [job.id for job in jobs]
    for job in jobs:
        cancel(job.id)


def watch(ids, changes, monkeypatch):
    """Return the last summary and the number of polls; ``changes`` are new statuses by poll."""
    count = 0

    async def pause(seconds):
        nonlocal count
        assert seconds == INTERVAL
        count += 1
        for job_id, status in changes.get(count, {}).items():
            open_store().update(job_id, status=status)

    # Patched only in this module: other threads sleep, too.
    fake_asyncio = SimpleNamespace(sleep=pause, to_thread=asyncio.to_thread)
    monkeypatch.setattr(job_summary, "asyncio", fake_asyncio)
    text = asyncio.run(nc.checkjobs(ids, loop=True, interval=INTERVAL))
    return text, count


def test_the_same_summary_is_shown_once(three, monkeypatch, capsys):
    a, b, c = three
    changes = {
        5: {a: IN_PROGRESS},
        9: {a: DONE, b: IN_PROGRESS, c: IN_PROGRESS},
        20: {b: DONE, c: FAILED},
    }
    text, count = watch(three, changes, monkeypatch)
    assert count == 20
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("Progress")] == [
        "Progress: 0.0%", "Progress: 0.0%", "Progress: 33.3%",
    ]  # fmt: skip
    assert shown.count("#### Jobs summary") == 3
    assert text.endswith(f"{a} done None\n{b} done None\n{c} failed None")
    assert "2 done | 0 timed out | 0 cancelled | 1 failed\n\nProgress: 100.0%" in text


def test_a_job_that_is_named_twice_is_counted_once(three):
    a, b, _ = three
    text = asyncio.run(nc.checkjobs([a, b, a[:13], a]))
    assert "0 / 2 in progress\n\n2 / 2 pending\n\n0 / 2 processed" in text
    assert text.endswith(f"#### Dask dashboards\n{a} pending None\n{b} pending None")


def test_a_notebook_shows_the_last_summary_only(three, monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    display = type(sys)("IPython.display")
    display.clear_output = lambda wait: calls.append(wait)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    a, b, c = three
    watch(three, {2: {a: DONE}, 4: {b: DONE, c: DONE}}, monkeypatch)
    assert calls == [True, False]
