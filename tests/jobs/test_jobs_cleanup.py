"""Removal of ended jobs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.errors import JobError, RequestError
from hyperplane.jobs import Pipeline, Step, job_cleanup, job_control, resume
from hyperplane.jobs.job_cleanup import clean_jobs
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, IN_PROGRESS, PENDING, Attempt
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store
from hyperplane.jobs.submission.submission_environment import capture_environment
from hyperplane.jobs.supervisor import Supervisor
from hyperplane.platforms.local.file_locks import try_lock

DAY = 86_400


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("DASK_HYPERPLANE__JOBS__HOME", str(folder))
    with dask.config.set({"hyperplane.jobs.home": str(folder)}):
        yield folder
        open_store().close()


def add(pipeline="p", age=0.0, status=DONE, **more):
    step = Step(name="one", kind="command", argv=("true",))
    job = new_job(Pipeline.from_steps(pipeline, [step]))
    at = time.time() - age
    ended = 0.0 if status in (PENDING, IN_PROGRESS) else at
    job = replace(job, **{"status": status, "submitted": at, "ended": ended, **more})
    if "folder" not in more:
        logs = Path(job.folder) / "steps"
        logs.mkdir(parents=True)
        (logs / "attempt-1.log").write_bytes(b"x" * 1000)
    open_store().add(job)
    open_store().save_attempt(Attempt(job.id, "one", -1, 1))
    return job


def ids(jobs):
    return [each.job.id for each in jobs]


def stored():
    return {job.id for job in open_store().find()}


def test_old_jobs_beyond_the_newest_of_each_pipeline_are_removed():
    jobs = [add("p", age * DAY) for age in (50, 40, 35, 1)]
    other = add("q", 90 * DAY)
    assert ids(clean_jobs(30 * DAY, 2, dry_run=True)) == [jobs[0].id, jobs[1].id]
    assert stored() == {*(job.id for job in jobs), other.id}
    removed = clean_jobs(30 * DAY, 2)
    assert ids(removed) == [jobs[0].id, jobs[1].id]
    assert [each.size for each in removed] == [1000, 1000]
    assert stored() == {jobs[2].id, jobs[3].id, other.id}
    assert [Path(job.folder).exists() for job in jobs] == [False, False, True, True]
    assert open_store().attempts(jobs[0].id) == []
    assert ids(clean_jobs(30 * DAY)) == [other.id, jobs[2].id]
    assert clean_jobs(keep=1) == []
    assert ids(clean_jobs(keep=0, pipeline="p")) == [jobs[3].id]


def test_the_number_of_a_removed_job_is_not_used_again():
    add("numbered")
    assert len(clean_jobs(keep=0)) == 1
    assert open_store().get(add("numbered").id).number == 2


def test_jobs_that_have_not_ended_or_are_in_use_are_never_removed(home):
    kept = [add(age=99 * DAY, status=status) for status in (PENDING, IN_PROGRESS)]
    running = add(age=99 * DAY, status=CANCELLED)
    foreign = add(age=99 * DAY, machine="eve@elsewhere")
    ended = add(age=99 * DAY, status=FAILED)
    lock = Path(running.folder, "steps", "attempt-1.lock")
    with lock.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        assert ids(clean_jobs(0)) == [ended.id]
    assert stored() == {*(job.id for job in kept), running.id, foreign.id}
    assert ids(clean_jobs(0)) == [running.id]
    assert not list((home / "jobs").glob(".removed-*"))


def test_a_job_that_is_resumed_meanwhile_is_not_removed(monkeypatch):
    job = add(status=FAILED)
    listed = open_store().find()
    open_store().update(job.id, status=PENDING)
    store = type(open_store())
    monkeypatch.setattr(store, "find", lambda self, **filters: listed)
    assert clean_jobs(keep=0) == []
    assert Path(job.folder, "steps", "attempt-1.log").exists()


def test_a_removal_that_fails_changes_nothing(monkeypatch):
    job = add()

    def fail(*arguments):
        raise OSError("no permission")

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(JobError, match=r"no permission.*not removed"):
        clean_jobs(keep=0)
    assert stored() == {job.id}
    assert Path(job.folder, "steps", "attempt-1.log").exists()


def test_folders_outside_the_folder_of_jobs_are_kept(tmp_path, home):
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("x")
    wrong = add(folder=str(outside))
    above = add(id="..", folder=str(home / "jobs" / ".."))
    link = add()
    Path(link.folder, "steps", "attempt-1.log").unlink()
    Path(link.folder, "steps").rmdir()
    Path(link.folder).rmdir()
    Path(link.folder).symlink_to(outside)
    removed = {each.job.id: each.kept_folder for each in clean_jobs(keep=0)}
    assert removed == {wrong.id: str(outside), above.id: above.folder, link.id: ""}
    assert (outside / "file").read_text() == "x"
    assert (home / "jobs.db").exists()
    assert not Path(link.folder).is_symlink()
    assert stored() == set()


def test_leftovers_of_a_killed_cleanup_and_missing_folders_are_no_problem(home):
    job = add()
    Path(job.folder).rename(home / "jobs" / f".removed-{job.id}")
    other_file = home / "jobs" / "foreign.txt"
    other_file.write_text("kept")
    assert ids(clean_jobs(keep=0)) == [job.id]
    assert [file.name for file in (home / "jobs").iterdir()] == ["foreign.txt"]


def test_the_folder_of_a_job_in_the_store_is_moved_back_after_a_killed_cleanup(home):
    """It was killed between the move of the folder and the removal of the job."""
    job = add()
    gone = home / "jobs" / f".removed-{job.id}"
    Path(job.folder).rename(gone)
    assert clean_jobs(keep=100) == []
    assert stored() == {job.id}
    assert Path(job.folder, "steps", "attempt-1.log").exists()
    assert not gone.exists()


def test_the_folder_of_a_former_version_is_removed_after_30_days(home, monkeypatch):
    """Its name has no store: the job may be in another one."""
    gone = home / "jobs" / ".removed-former"
    (gone / "steps").mkdir(parents=True)
    clean_jobs(keep=0)
    assert gone.exists()
    now = time.time()
    monkeypatch.setattr(job_cleanup.time, "time", lambda: now + 31 * DAY)
    clean_jobs(keep=0)
    assert not gone.exists()


class Killed(BaseException):
    """As if the process had ended."""


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_a_killed_cleanup_left_is_removed_with_its_own_store_only(
    home, tmp_path, monkeypatch, is_stored
):
    """It was killed after the move of the folder, before or after the removal of the job."""
    job = add()
    remove, rename = JobStore.remove_ended, Path.rename

    def refuse(*_):
        raise OSError("killed")  # nothing is moved back

    def rename_once(path, target):
        rename(path, target)
        patch.setattr(Path, "rename", refuse)
        if is_stored:
            raise Killed

    def remove_and_end(store, job_id, before_commit):
        remove(store, job_id, before_commit)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_once)
        patch.setattr(JobStore, "remove_ended", remove_and_end)
        with pytest.raises(Killed):
            clean_jobs(keep=0)
    (left,) = (home / "jobs").glob(".removed-*")
    with dask.config.set({"hyperplane.jobs.store": f"sqlite:///{tmp_path}/other.db"}):
        assert clean_jobs(keep=0) == []
        open_store().close()
    assert (left / "steps" / "attempt-1.log").exists()
    assert stored() == ({job.id} if is_stored else set())
    clean_jobs(keep=1)
    assert not left.exists()
    assert Path(job.folder, "steps", "attempt-1.log").exists() == is_stored


def test_one_process_removes_jobs_at_a_time(home):
    job = add()
    with (home / ".cleanup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JobError, match="another process removes jobs now"):
            clean_jobs(keep=0)
        assert ids(clean_jobs(keep=0, dry_run=True)) == [job.id]
    assert ids(clean_jobs(keep=0)) == [job.id]


def test_jobs_after_one_that_cannot_be_removed_are_removed(monkeypatch):
    first, second = add(age=DAY), add()
    rename = Path.rename

    def fail(path, target):
        if path.name == first.id:
            raise OSError("no permission")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(JobError, match=r"no permission.*not removed"):
        clean_jobs(keep=0)
    assert stored() == {first.id}
    assert not Path(second.folder).exists()


def test_a_removed_job_cannot_be_resumed():
    job = add(status=FAILED)
    clean_jobs(keep=0)
    with pytest.raises(JobError, match="no such job"):
        resume(job.id)


@pytest.mark.parametrize(
    "moment", ["save_snapshot", "remove_cancel_marker", "hold_submission_lock"]
)
def test_a_job_that_is_removed_while_it_is_resumed_is_named(monkeypatch, moment):
    job = add(status=FAILED)
    unchanged = getattr(job_control, moment)

    def clean_before(*arguments, **options):
        assert ids(clean_jobs(keep=0)) == [job.id]
        return unchanged(*arguments, **options)

    monkeypatch.setattr(job_control, moment, clean_before)
    monkeypatch.setattr(job_control.supervisor_client, "notify_supervisor", lambda *_: None)
    with pytest.raises(JobError, match=f"{job.id}.*removed at the same time"):
        resume(job.id)
    assert stored() == set()
    assert not Path(job.folder).exists()


@pytest.mark.parametrize("limits", [{}, {"older_than": -1.0}, {"keep": -1}])
def test_missing_and_negative_limits_are_errors(limits):
    with pytest.raises(RequestError):
        clean_jobs(**limits)


def test_the_command_prints_jobs_and_bytes():
    job = add("nightly", 40 * DAY)
    command = ["job", "clean", "--older-than", "30d", "--keep", "0"]
    shown = CliRunner().invoke(app, [*command, "--dry-run"])
    assert f"{job.id[:8]} nightly #1 done 1 kB\n" in shown.stdout
    assert "1 job would be removed, " in shown.stdout
    assert stored() == {job.id}
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (document["bytes"], document["dry_run"]) == (1000, False)
    assert [each["run_name"] for each in document["jobs"]] == ["nightly #1"]
    assert stored() == set()
    wrong = CliRunner().invoke(app, ["job", "clean", "--older-than", "soon"])
    assert wrong.exit_code == 2
    assert "30d" in wrong.stderr
    assert CliRunner().invoke(app, ["job", "clean"]).exit_code == 2


def test_the_command_uses_the_limits_of_the_configuration():
    old, new = add("nightly", 40 * DAY), add("nightly", 1 * DAY)
    with dask.config.set({"hyperplane.jobs.clean_older_than": "30d"}):
        answer = CliRunner().invoke(app, ["job", "clean", "--dry-run", "--json"])
        assert [each["id"] for each in json.loads(answer.stdout)["jobs"]] == [old.id]
        answer = CliRunner().invoke(app, ["job", "clean", "--keep", "0", "--dry-run", "--json"])
        assert len(json.loads(answer.stdout)["jobs"]) == 2
    with dask.config.set({"hyperplane.jobs.clean_keep": 1}):
        assert CliRunner().invoke(app, ["job", "clean"]).exit_code == 0
    assert stored() == {new.id}


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, 3),
        ({"clean_older_than": "30d"}, 2),
        ({"clean_keep": 1}, 1),
        ({"clean_keep": 0, "clean_older_than": "30d"}, 2),
        ({"clean_keep": 0}, 0),
    ],
)
def test_a_supervisor_removes_the_jobs_beyond_the_limits(settings, left):
    for age in (40, 2, 1):
        add("nightly", age * DAY)
    running = add("nightly", 50 * DAY, IN_PROGRESS, machine="another")
    with dask.config.set({f"hyperplane.jobs.{key}": each for key, each in settings.items()}):
        supervisor = Supervisor(open_store(), capture_environment())
        asyncio.run(supervisor.run(linger=0.1))
    assert len(stored() - {running.id}) == left
    assert running.id in stored()


def test_a_supervisor_continues_if_jobs_cannot_be_removed(caplog):
    add("nightly", 40 * DAY)
    with (
        dask.config.set({"hyperplane.jobs.clean_keep": 0}),
        try_lock(jobs_folder() / ".cleanup.lock"),
    ):
        asyncio.run(Supervisor(open_store(), capture_environment()).run(linger=0.1))
    assert "another process removes jobs now" in caplog.text
    assert len(stored()) == 1
