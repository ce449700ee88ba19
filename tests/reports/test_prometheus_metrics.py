"""Figures of jobs, the supervisor and clusters for Prometheus."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.clusters import records
from hyperplane.clusters.records import ClusterRecord
from hyperplane.jobs import Pipeline, Step, supervisor_client
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, FAILED, IN_PROGRESS, PENDING, Attempt
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.reports import prometheus_metrics
from hyperplane.reports.prometheus_metrics import format_metrics


@pytest.fixture(autouse=True)
def home(tmp_path):
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "home")}):
        yield
        open_store().close()


def add(pipeline, status, submitted=1000.0, started=0.0, ended=0.0, **more):
    step = Step(name="one", kind="command", argv=("true",))
    job = new_job(Pipeline.from_steps(pipeline, [step]))
    times = {"submitted": submitted, "started": started, "ended": ended}
    open_store().add(replace(job, status=status, **times, **more))
    return job


def read():
    """Return the samples by name and labels."""
    return {
        (sample.name.removeprefix("hyperplane_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(format_metrics(open_store()))
        for sample in family.samples
    }


def test_jobs_are_counted_by_pipeline_and_status():
    add("nightly", DONE, 1000, 1010, 1100)
    add("nightly", DONE, 2000, 2010, 2050)
    add("nightly", FAILED, 2500, 2510, 2520)
    add('odd "name" with \\ and é', DONE, 1, 2, 3)
    add("hourly", PENDING, time.time() - 100)
    add("hourly", PENDING, time.time() - 5)
    add("elsewhere", DONE, 1, 2, 3, machine="ada@another")
    samples = read()
    assert samples["jobs", "nightly", DONE] == 2
    assert samples["jobs", "nightly", FAILED] == 1
    assert samples["jobs", 'odd "name" with \\ and é', DONE] == 1
    assert samples["jobs", "hourly", PENDING] == 2
    assert not [key for key in samples if "elsewhere" in key]
    assert samples["job_last_end_timestamp_seconds", "nightly", DONE] == 2050
    assert samples["job_last_end_timestamp_seconds", "nightly", FAILED] == 2520
    assert samples["job_last_duration_seconds", "nightly"] == 40
    assert 100 <= samples["job_longest_wait_seconds",] < 160
    assert samples["supervisor_up",] == 0


def test_running_steps_are_counted():
    job = add("wide", IN_PROGRESS, 1000, 1010)
    for chunk, status in enumerate([DONE, IN_PROGRESS, IN_PROGRESS]):
        open_store().save_attempt(Attempt(job.id, "one", chunk, 1, status))
    with supervisor_client.hold_supervisor_lock():
        samples = read()
    assert samples["steps_running", "wide", "one"] == 2
    assert samples["job_longest_wait_seconds",] == 0
    assert samples["supervisor_up",] == 1


def test_an_empty_store_has_figures():
    samples = read()
    assert samples["job_longest_wait_seconds",] == samples["supervisor_up",] == 0


def test_pipelines_beyond_the_limit_have_no_figures(monkeypatch):
    monkeypatch.setattr(prometheus_metrics, "_MAX_PIPELINES", 2)
    for number in range(4):
        add(f"p{number}", DONE, 1000 + number, 1010, 1100)
    assert {key[1] for key in read() if key[0] == "jobs"} == {"p2", "p3"}


def test_jobs_that_have_not_ended_are_not_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(prometheus_metrics, "_MAX_PIPELINES", 2)
    now = time.time()
    running = add("running", IN_PROGRESS, now - 4000, now - 3900)
    open_store().save_attempt(Attempt(running.id, "one", -1, 1, IN_PROGRESS))
    for number in range(4):
        add(f"p{number}", DONE, now - 100 + number, now - 90, now - 80)
    samples = read()
    assert {key[1] for key in samples if key[0] == "jobs"} == {"running", "p3"}
    assert samples["steps_running", "running", "one"] == 1
    for number in range(3):
        add(f"w{number}", PENDING, now - 3000 + number)
    samples = read()
    assert {key[1] for key in samples if key[0] == "jobs"} == {"w2", "w1"}
    assert 3000 <= samples["job_longest_wait_seconds",] < 3060


def test_running_clusters_have_their_size(tmp_path):
    record = ClusterRecord(
        name="flights", engine="local", scheduler="tcp://127.0.0.1:1", dashboard="",
        pid=os.getpid(), started=records.own_start_time(), workers=4, threads=8,
        ram_gb=16.0, scratch=str(tmp_path / "scratch"),
    )  # fmt: skip
    records.write(record)
    try:
        samples = read()
    finally:
        records.remove("flights", str(tmp_path / "scratch"))
    assert samples["cluster_workers", "flights", "local"] == 4
    assert samples["cluster_threads", "flights", "local"] == 8
    assert samples["cluster_memory_limit_bytes", "flights", "local"] == 16e9


def test_the_command_prints_or_writes_the_figures(tmp_path):
    add("nightly", DONE, 1000, 1010, 1100)
    line = 'hyperplane_jobs{pipeline="nightly",status="done"} 1.0\n'
    assert line in CliRunner().invoke(app, ["metrics"]).stdout
    file = tmp_path / "hyperplane.prom"
    assert CliRunner().invoke(app, ["metrics", "-o", str(file)]).exit_code == 0
    assert line in file.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["hyperplane.prom"]
    wrong = CliRunner().invoke(app, ["metrics", "-o", str(tmp_path / "figures.txt")])
    assert wrong.exit_code == 2
    assert ".prom" in wrong.stderr
    missing = CliRunner().invoke(app, ["metrics", "-o", str(Path(tmp_path, "no", "a.prom"))])
    assert missing.exit_code == 2
    assert "folder that exists" in missing.stderr
