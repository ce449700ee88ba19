"""What is done with the files of an attempt when it has ended."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from artifact_cases import notebook
from job_cases import bash

from hyperplane.errors import JobStoreError
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.execution import artifact_recording, attempt_results
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.attempt_results import AttemptResults, make_result_variables
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.store.job_records import Attempt


class FakeStore:
    """A store that keeps artifacts, or raises an error."""

    def __init__(self, error=None):
        self.saved, self.error = [], error

    def save_artifacts(self, artifacts):
        if self.error is not None:
            raise self.error
        self.saved += artifacts


@pytest.fixture
def finish(tmp_path, monkeypatch):
    """Finish an attempt with a file in its output folder; return the folder of its files."""

    def finish_attempt(store, code=0, step=None, write=lambda prefix: None, name="a.txt"):
        if step is not None and step.kind == "notebook":
            (tmp_path / step.path).write_bytes(notebook())
        monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
        step = step or bash("one", "true", secrets=("API_TOKEN",))
        job = new_job(Pipeline.from_steps("p", [step], root=str(tmp_path)))
        job = replace(job, folder=str(tmp_path / "jobs" / job.id))
        prefix = job.folder_path / "steps" / "000-one" / "attempt-1"
        outputs = make_result_variables(prefix)["HYPERPLANE_JOB_OUTPUT_FOLDER"]
        prefix.with_suffix(".log").write_text("token hunter2-hunter2\n")
        if name:
            prefix.parent.joinpath(outputs, name).write_text("x")
        write(prefix)
        results = AttemptResults(store, job, None, {"API_TOKEN": "hunter2-hunter2"}, str(tmp_path))
        command = AttemptCommand((), {}, str(tmp_path), prefix)
        attempt = Attempt(job.id, step.name, -1, 1)
        secrets = asyncio.run(results.finish(step, attempt, command, code))
        assert secrets == ("hunter2-hunter2",)
        return prefix

    return finish_attempt


def test_the_log_is_masked_and_the_files_are_stored(finish):
    store = FakeStore()
    prefix = finish(store)
    assert [each.name for each in store.saved] == ["a.txt"]
    assert prefix.with_suffix(".log").read_text() == "token ***************\n"


def test_an_output_folder_without_files_is_removed(finish):
    store = FakeStore()
    prefix = finish(store, name="")
    assert store.saved == []
    assert not prefix.with_suffix(".outputs").exists()


def test_a_store_that_is_busy_is_asked_again(finish):
    error = JobStoreError("jobs.db", "the disk is full", passing=True)
    with pytest.raises(JobStoreError):
        finish(FakeStore(error))


def test_a_store_that_refuses_the_records_does_not_fail_the_attempt(finish, caplog):
    error = JobStoreError("jobs.db", "no such table", passing=False)
    with caplog.at_level(logging.WARNING):
        prefix = finish(FakeStore(error))
    assert "were not stored" in caplog.text
    assert "no such table" in caplog.text
    assert "hunter2" not in prefix.with_suffix(".log").read_text()


@pytest.mark.parametrize(
    "error", [OverflowError("too large"), UnicodeEncodeError("a", "b", 0, 1, "c")]
)
def test_an_unexpected_error_does_not_fail_the_attempt(finish, caplog, error):
    with caplog.at_level(logging.WARNING):
        finish(FakeStore(error))
    assert "were not stored" in caplog.text
    assert type(error).__name__ in caplog.text


def test_an_error_while_artifacts_are_collected_does_not_fail_the_attempt(
    finish, caplog, monkeypatch
):
    monkeypatch.setattr(attempt_results, "collect_artifacts", None)
    store = FakeStore()
    with caplog.at_level(logging.WARNING):
        finish(store)
    assert store.saved == []
    assert "were not stored" in caplog.text


@pytest.mark.parametrize(("code", "count"), [(0, 1), (1, 0), (None, 0)])
def test_the_log_says_how_many_files_are_left_out_unless_its_end_is_a_reason(
    finish, monkeypatch, code, count
):
    monkeypatch.setattr(artifact_recording, "MOST_ARTIFACTS", 0)
    prefix = finish(FakeStore(), code)
    assert prefix.with_suffix(".log").read_text().count("1 saved file not recorded") == count


def test_a_notebook_is_recorded_without_secrets(finish):
    store = FakeStore()
    step = Step(name="one", kind="notebook", path="a.ipynb", secrets=("API_TOKEN",))

    def write(prefix):
        output = {"output_type": "stream", "name": "stdout", "text": "hunter2-hunter2"}
        prefix.with_name("a.ipynb").write_bytes(notebook(output))

    prefix = finish(store, step=step, write=write)
    [executed] = [each for each in store.saved if each.kind == "notebook"]
    assert executed.size == prefix.with_name("a.ipynb").stat().st_size
    assert "hunter2" not in prefix.with_name("a.ipynb").read_text()


def test_a_log_of_a_container_that_cannot_be_masked_is_reported(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NOT_HERE", "of the submission")
    step = bash("one", "true", secrets=("NOT_HERE",))
    job = new_job(Pipeline.from_steps("p", [step], root=str(tmp_path)))
    command = AttemptCommand((), {}, str(tmp_path), tmp_path / "attempt-1")
    attempt = Attempt(job.id, step.name, -1, 1)
    for runner in (object(), LocalRunner({}, {})):
        results = AttemptResults(FakeStore(), job, runner, {}, str(tmp_path))
        assert asyncio.run(results.finish(step, attempt, command, 0)) == ()
    warned = [each for each in caplog.messages if "is not masked" in each]
    assert warned == [
        f"the log of {tmp_path}/attempt-1 is not masked: this supervisor does not have the secret "
        "NOT_HERE"
    ]
