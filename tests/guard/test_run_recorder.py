"""The record of a run that its owner writes."""

import logging
import sys

import pytest

import hyperplane
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.history import list_runs, store

SMALL = {"num_workers": 1, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}
GB = 10**9


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def figures(**worker):
    workers = [{"name": "0", "limit": GB, "peak": GB // 2, "demand": GB // 2, **worker}]
    return {"workers": workers, "tasks": [{"name": "sum", "count": 1}]}


def test_the_record_has_plan_versions_and_figures(monkeypatch):
    monkeypatch.setenv("HYPERPLANE_JOB_ID", "job-1")
    plan = hyperplane.plan_cluster(**SMALL, name="flights", engine="local")
    assert RunRecorder(plan).finish(figures(), "closed") == ""
    (record,) = list_runs()
    assert (record.cluster, record.exit_reason, record.job) == ("flights", "closed", "job-1")
    assert record.name.endswith("-flights")
    assert (record.plan.engine, record.plan.framework, record.plan.pool) == ("local", "dask", "")
    assert (record.plan.nprocs, record.plan.ram_per_proc) == (1, 500_000_000)
    assert record.plan.tuning == "fast"
    assert record.versions["python"] == sys.version.split()[0]
    assert record.versions["hyperplane"] == hyperplane.__version__
    assert record.workers[0].peak == GB // 2


def test_without_an_answer_of_the_scheduler_the_record_has_the_plan():
    RunRecorder(hyperplane.plan_cluster(**SMALL)).finish(None, "its scheduler has ended")
    (record,) = list_runs()
    assert (record.workers, record.exit_reason) == ((), "its scheduler has ended")


def test_a_summary_is_returned_if_there_is_something_to_say():
    recorder = RunRecorder(hyperplane.plan_cluster(**SMALL))
    summary = recorder.finish(figures(paused_seconds=60.0), "closed")
    assert summary.startswith("peak 0.5 of 1 GB per process, paused 60 s")


def test_a_full_disk_does_not_disturb_the_end_of_a_cluster(monkeypatch, caplog):
    def fail(record):
        raise OSError("no space left")

    monkeypatch.setattr("hyperplane.guard.run_recorder.write_run", fail)
    with caplog.at_level(logging.INFO, logger="hyperplane"):
        assert RunRecorder(hyperplane.plan_cluster(**SMALL)).finish(figures(), "closed") == ""
    assert "no space left" in caplog.text


def test_figures_that_are_no_figures_are_logged(caplog):
    RunRecorder(hyperplane.plan_cluster(**SMALL)).finish({"workers": [{"peak": -1}]}, "closed")
    assert "has no record" in caplog.text
    assert not store.history_folder().exists()
