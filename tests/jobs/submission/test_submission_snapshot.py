"""Each job keeps the settings and environment of its submission, in any supervisor."""

from __future__ import annotations

import json
import os
import stat
import time

import dask.config
import pytest
from job_cases import LIMIT, bash, kill_supervisor, run_job, submit_job

from hyperplane.errors import JobError, RequestError
from hyperplane.jobs import JobHandle, Pipeline, Resources, Step, submit
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.job_control import submit_job as submit_job_record
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.jobs.submission import option_checks, submission_snapshot
from hyperplane.jobs.submission.submission_snapshot import NoticeRequest
from hyperplane.platforms.local.gpus import Gpus

pytestmark = pytest.mark.process

POOL = {"cores": 3, "ram_gb": 8, "allocatable_cores": 2, "allocatable_ram_gb": 6}


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_each_job_has_the_settings_of_its_submission():
    kill_supervisor()
    with dask.config.set({"hyperplane.jobs.grace": "100s"}):
        run_job(bash("first", "true"))  # the supervisor runs, with these settings
    with dask.config.set({"hyperplane.jobs.retry_wait": "1.5s", "hyperplane.jobs.grace": "0.2s"}):
        slow = submit_job(bash("bad", "exit 1", retries=1), max_retries=0)
        stubborn = submit_job(bash("long", "trap '' TERM; touch on; while :; do sleep 0.05; done"))
    quick = run_job(bash("bad", "exit 1", retries=1), max_retries=0)
    assert slow.wait(LIMIT) == quick.status == FAILED
    first, second = slow.attempts
    assert second.started - first.ended > 0.74
    assert submission_snapshot.load_snapshot(quick.job).settings.retry_wait == "0.1s"
    while not os.path.exists("on"):  # noqa: PTH110
        time.sleep(0.02)
    began = time.monotonic()
    stubborn.cancel()
    assert stubborn.wait(LIMIT) == "cancelled"
    assert time.monotonic() - began < 90


def test_secrets_are_read_from_the_folder_configured_at_submission(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text("s3cret-in-a-file\n")
    with dask.config.set({"hyperplane.jobs.secrets": str(tmp_path / "secrets")}):
        job = submit_job(bash("a", "echo $TOKEN | wc -c", secrets=("token",)), max_retries=0)
    assert job.wait(LIMIT) == DONE, job.job.reason
    assert job.logs() == "17\n"


def test_a_step_has_the_sizes_of_a_pool_configured_only_at_submission(monkeypatch):
    monkeypatch.setattr(option_checks, "detect_gpus", lambda: Gpus(1, ("0",), None))
    with dask.config.set({"hyperplane.pools.mine": POOL}):
        job = submit_job(bash("a", "true", resources=Resources(pool="mine", gpus=1)), max_retries=0)
        submission_snapshot.save_snapshot(job.job, {}, {})
    assert job.wait(LIMIT) == DONE, job.job.reason
    step = submission_snapshot.load_snapshot(job.job).with_pool_resources(job.job.pipeline.steps[0])
    assert step.resources == Resources(cores=2, ram_gb=6, gpus=1)
    assert ResourceAllocator(4, 8e9, 16).demand(step).millicores == 2000
    plain = bash("b", "true", resources=Resources(cores=1))
    assert submission_snapshot.load_snapshot(job.job).with_pool_resources(plain) is plain


def test_after_a_kill_steps_have_the_plain_environment_of_the_submission(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LC_TIME", "C.submitted")
    monkeypatch.setenv("OF_THE_SUBMISSION", "gone")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # Dask sets it in this process
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "of-the-job").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "bin" / "of-the-job").chmod(0o755)
    show = (
        'of-the-job; echo "$LC_TIME|${OMP_NUM_THREADS-none}|${OF_THE_SUBMISSION-none}|'
        "${OF_THE_LOOKER-none}|${HYPERPLANE_JOB_PARAMETER_STRAY-none}${HYPERPLANE_STEP_MEMORY-}|"
        '${DASK_INTERNAL_INHERIT_CONFIG-none}"'
    )
    waits = "touch on; until [ -e go ]; do sleep 0.02; done"
    job = submit_job(bash("waits", waits), bash("show", show), max_retries=0)
    while not (tmp_path / "on").exists():
        time.sleep(0.02)
    kill_supervisor()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_TIME", "C.looker")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OF_THE_LOOKER", "yes")
    monkeypatch.setenv("HYPERPLANE_JOB_PARAMETER_STRAY", "of another job")
    monkeypatch.setenv("HYPERPLANE_STEP_MEMORY", "1")  # of the step that submits
    monkeypatch.delenv("OF_THE_SUBMISSION", raising=False)
    (tmp_path / "go").touch()
    assert JobHandle(job.id).wait(LIMIT) == DONE, job.logs()
    assert job.logs("show") == "found\nC.submitted|none|none|yes|none|none\n"


def test_resume_has_the_environment_and_the_settings_of_the_resuming_process(monkeypatch):
    job = run_job(bash("a", 'echo "$LC_TIME"; [ "$LC_TIME" = C.second ]'), max_retries=0)
    assert job.status == FAILED
    monkeypatch.setenv("LC_TIME", "C.second")
    with dask.config.set({"hyperplane.jobs.grace": "3s"}):
        assert job.resume().wait(LIMIT) == DONE
    assert job.logs() == "C.second\n"
    assert submission_snapshot.load_snapshot(job.job).settings.grace == "3s"


def test_resume_keeps_the_targets_of_notifications_that_the_submission_has_named():
    def targets(job):
        snapshot = submission_snapshot.load_snapshot(job.job)
        return snapshot.settings.notify, snapshot.notify.message

    named, usual = (
        new_job(Pipeline.from_steps("p", [bash("a", "[ -e now ]")]), max_retries=0)
        for _ in range(2)
    )
    with dask.config.set({"hyperplane.jobs.notify": ["slack:#before"]}):
        jobs = [JobHandle(submit_job_record(named, notify=NoticeRequest([], "of ada")).id),
                JobHandle(submit_job_record(usual).id)]  # fmt: skip
        assert [job.wait(LIMIT) for job in jobs] == [FAILED, FAILED]
    assert list(map(targets, jobs)) == [((), "of ada"), (("slack:#before",), "")]
    with open("now", "w"), dask.config.set({"hyperplane.jobs.notify": ["slack:#after"]}):  # noqa: PTH123
        assert [job.resume().wait(LIMIT) for job in jobs] == [DONE, DONE]
    assert list(map(targets, jobs)) == [((), "of ada"), (("slack:#after",), "")]


def test_a_snapshot_has_no_secret_and_is_private(monkeypatch):
    monkeypatch.setenv("LC_SECRETIVE", "s3cret-of-a-step")
    monkeypatch.setenv("PYTHONPATH", "/opt/" + "AKIA" + "IOSFODNN7EXAMPLE")
    monkeypatch.setenv("API_TOKEN", "s3cret-too")
    with dask.config.set({"hyperplane.jobs.notify": ["slack:#alerts"]}):
        job = submit_job(bash("a", "true", secrets=("LC_SECRETIVE",)))
    assert job.wait(LIMIT) == "done"
    file = job.job.folder_path / "submission.json"
    text = file.read_text()
    assert "s3cret" not in text
    assert "AKIA" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(text)["settings"]["notify"] == ["slack:#alerts"]
    assert "store" not in json.loads(text)["settings"]
    assert submission_snapshot.load_snapshot(job.job).settings.notify == ("slack:#alerts",)


@pytest.mark.parametrize("text", ["", "[]", '{"settings": {}}', '{"settings": 7}', "\0"])
def test_an_unreadable_snapshot_counts_as_missing(text):
    job = new_job(Pipeline.from_steps("p", [bash("a", "true")]))
    submission_snapshot.save_snapshot(job, {"PATH": "/bin"}, {})
    (job.folder_path / "submission.json").write_text(text)
    assert submission_snapshot.load_snapshot(job).apply_to({"PATH": "/usr/bin"}) == {
        "PATH": "/usr/bin"
    }
    assert submission_snapshot.load_snapshot(job).settings.retry_wait == "0.1s"


def test_a_folder_that_cannot_be_used_is_reported(monkeypatch):
    job = new_job(Pipeline.from_steps("p", [bash("a", "true")]))
    job.folder_path.parent.mkdir(parents=True, exist_ok=True)
    job.folder_path.write_text("a file")
    with pytest.raises(JobError, match="cannot be used"):
        submission_snapshot.save_snapshot(job, {}, {})


def test_unknown_pools_are_reported_at_submission():
    steps = [
        Step(name="a", kind="command", argv=("true",), resources=Resources(pool="16_17")),
        Step(name="b", kind="command", argv=("true",), cluster={"pool": "hyperplane-medd"}),
        Step(name="c", kind="command", argv=("true",), cluster={"pool": "POOL_16_16"}),
    ]
    with pytest.raises(RequestError) as caught:
        submit(Pipeline.from_steps("p", steps))
    first, second = caught.value.faults
    assert (first.where, first.asked) == ("step 'a': resources.pool", "'16_17'")
    assert (second.where, second.asked) == ("step 'b': cluster.pool", "'hyperplane-medd'")
    assert "did you mean 16_16" in first.advice
    assert "hyperplane-med" in second.advice
