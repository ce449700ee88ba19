"""Lists of jobs from Python; the command line shows the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from job_cases import bash

import hyperplane
from hyperplane.errors import RequestError
from hyperplane.jobs import Job, Pipeline
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.jobs.store.jobs_home import open_store

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def three():
    pipeline = Pipeline.from_steps("p", [bash("a", "true")])
    cases = ((DONE, "", 1), (FAILED, "nightly.list", 2), (DONE, "nightly.list", 3))
    for status, schedule, at in cases:
        job = new_job(pipeline, name="of.this.list", schedule=schedule)
        later = 4e9 + at  # after all jobs of other tests
        open_store().add(replace(job, status=status, submitted=later, ended=later))
    yield
    with open_store()._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM hyperplane_jobs WHERE name = 'of.this.list'")


def list_numbers(*arguments, **options):
    return [round(job.submitted - 4e9) for job in hyperplane.jobs.list_jobs(*arguments, **options)]


def test_jobs_are_found_by_status_name_and_schedule_the_last_first():
    assert list_numbers(name="of.this.list") == [3, 2, 1]
    assert list_numbers("done", name="of.this.list") == [3, 1]
    assert list_numbers(["done", "timed-out"], limit=2) == [3, 1]
    assert list_numbers(schedule="nightly.list") == [3, 2]
    assert list_numbers("failed", schedule="nightly.list", limit=None) == [2]
    assert list_numbers(name="unknown") == []
    assert list_numbers(limit=1) == [3]


def test_listed_jobs_convert_to_json_and_have_a_short_repr():
    (job,) = hyperplane.jobs.list_jobs(limit=1)
    assert isinstance(job, Job)
    assert json.loads(json.dumps(job.as_dict()))["name"] == "of.this.list"
    assert "definition" not in repr(job)


def test_a_list_prints_as_a_table():
    lines = str(hyperplane.jobs.list_jobs(name="of.this.list")).splitlines()
    assert lines[0].split() == ["id", "run", "name", "status", "submitted", "took", "reason"]
    assert len(lines) == 4
    start = lines[0].index("status")
    assert [line[start:].split()[0] for line in lines[1:]] == ["done", "failed", "done"]
    assert repr(hyperplane.jobs.list_jobs(name="unknown")) == "no jobs"
    assert "Job(" not in repr(hyperplane.jobs.list_jobs(limit=2))


def test_all_invalid_filters_are_reported_together():
    with pytest.raises(RequestError) as caught:
        hyperplane.jobs.list_jobs(["done", "faild"], limit=0)
    first, second = caught.value.faults
    assert (first.asked, first.advice) == ("'faild'", "did you mean failed?")
    assert (second.where, second.asked) == ("limit", "0")


@pytest.mark.parametrize("given", ["in-progres", 3])
def test_an_unknown_status_is_reported_as_it_was_given(given):
    with pytest.raises(RequestError) as caught:
        hyperplane.jobs.list_jobs(given)
    assert caught.value.faults[0].asked == repr(given)
