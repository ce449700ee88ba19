"""What a job took counts all its runs, wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import dask.config
import pytest
from job_cases import bash
from typer.testing import CliRunner

from hyperplane.cli.app import app
from hyperplane.jobs import Pipeline
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_html import render_job, render_jobs
from hyperplane.jobs.job_list import JobList
from hyperplane.jobs.job_progress import ProgressLines
from hyperplane.jobs.notifications import Notification
from hyperplane.jobs.store.job_records import DONE, FAILED, PENDING, Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import render_job_report
from hyperplane.reports.prometheus_metrics import format_metrics
from hyperplane.ui import duration_chart, job_list_view, job_view

TOTAL = "1 min 17 s"


@pytest.fixture
def resumed(tmp_path) -> Iterator[Job]:
    """A job that failed after 70 s and ended well after 7 s since it was resumed."""
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        store = open_store()
        job = new_job(Pipeline.from_steps("nightly", [bash("one", "true")]))
        job = replace(job, status=FAILED, submitted=999.0, started=1000.0, ended=1070.0)
        store.add(job)
        assert store.reset(job, status=PENDING, started=0.0, ended=0.0)
        store.update(job.id, status=DONE, started=5000.0, ended=5007.0)
        yield store.get(job.id)
        store.close()


def invoke(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_resumed_job_took_the_time_of_all_its_runs(resumed: Job) -> None:
    [line] = [
        line for line in ProgressLines().lines(resumed, [], [], 6000.0) if resumed.id[:8] in line
    ]
    assert f"done in {TOTAL}" in line
    shown = {
        "job show": invoke("job", "show", resumed.id),
        "job list": invoke("job", "list"),
        "printed list": str(JobList([resumed])),
        "job in a notebook": render_job(resumed, []),
        "list in a notebook": render_jobs(JobList([resumed])),
        "report": render_job_report(resumed.id),
        "notification": str(Notification(resumed, "succeeded").rows),
        "page of jobs": job_list_view.make_job_table([resumed], "jobs"),
        "chart of jobs": duration_chart.draw_durations([resumed]),
        "page of the job": str(dict(job_view._list_facts(resumed, [], 6000.0))),
    }
    assert [name for name, text in shown.items() if TOTAL not in text] == []
    assert 'job_last_duration_seconds{pipeline="nightly"} 77.0' in format_metrics(open_store())
    assert resumed.as_dict()["earlier_seconds"] == 70


def test_a_job_that_waits_after_it_was_resumed_shows_its_earlier_runs(resumed: Job) -> None:
    waiting = replace(resumed, status=PENDING, started=0.0, ended=0.0)
    assert "1 min 10 s" in str(JobList([waiting]))
    assert "1 min 10 s" in duration_chart.draw_durations([waiting])
    never = replace(waiting, earlier_seconds=0.0)
    assert duration_chart.draw_durations([never]) == ""
