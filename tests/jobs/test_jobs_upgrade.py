"""Another version of hyperplane is installed while jobs run."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
import sys

import pytest
from job_cases import LIMIT, bash, is_alive, kill_supervisor, submit_job, until_exists, wait_until
from scale import FULL

from hyperplane.core.errors import JobError
from hyperplane.jobs import supervisor, supervisor_client
from hyperplane.jobs.execution.job_folder import claim_job
from hyperplane.jobs.store.job_records import DONE
from hyperplane.jobs.store.jobs_home import jobs_folder, open_store
from hyperplane.jobs.submission.submission_environment import (
    SubmissionEnvironment,
    capture_environment,
)


def install(folder, version):
    """Put the metadata of one version of hyperplane into a folder, as pip does."""
    for former in folder.glob("hyperplane-*.dist-info"):
        shutil.rmtree(former)
    metadata = folder / f"hyperplane-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: hyperplane\nVersion: {version}\n")


@pytest.fixture
def _no_supervisor():
    """End the supervisor of other tests, which has another installation, and that of this test."""
    kill_supervisor()
    yield
    kill_supervisor()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("_no_supervisor")
def test_a_supervisor_of_the_new_version_continues_the_jobs(tmp_path, monkeypatch):
    site, begun, go, known = (tmp_path / name for name in ("site", "begun", "go", "known"))
    monkeypatch.chdir(tmp_path)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    install(site, "98.0")
    # The supervisor is started by another job, without the secret in its environment.
    hold = submit_job(bash("hold", until_exists(go)))
    monkeypatch.setenv("LATER_TOKEN", "only of this submission")
    job = submit_job(
        bash("slow", f"echo begun >> {begun}; {until_exists(go)}"),
        bash("next", f'echo "$LATER_TOKEN" > {known}', secrets=("LATER_TOKEN",)),
    )
    monkeypatch.delenv("LATER_TOKEN")
    wait_until(begun.exists)
    former = supervisor_client.supervisor_pid()
    assert former
    install(site, "99.0")
    wait_until(lambda: not is_alive(former))
    wait_until(lambda: supervisor_client.supervisor_pid() not in (None, 0, former))
    assert job.status == "in progress"
    go.touch()
    assert (hold.wait(LIMIT), job.wait(LIMIT)) == (DONE, DONE)
    assert begun.read_text() == "begun\n"
    assert known.read_text() == "only of this submission\n"
    assert [(attempt.step, attempt.number) for attempt in job.attempts] == [
        ("slow", 1),
        ("next", 1),
    ]


def test_an_installation_in_progress_is_not_another_version(monkeypatch):
    installed = ["98.0", "", "", "99.0", "99.0", "98.0", "98.0"]

    def read_version(_):
        version = installed.pop(0)
        if not version:  # pip removes the former version first
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", read_version)
    monkeypatch.setattr(supervisor, "_VERSION_CHECK_SECONDS", 0.0)
    version = supervisor._InstalledVersion()
    assert [version.has_changed() for _ in range(6)] == [False, False, False, True, False, False]


def test_metadata_without_a_file_is_not_another_version(tmp_path, monkeypatch):
    (tmp_path / "hyperplane-99.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(supervisor, "_VERSION_CHECK_SECONDS", 0.0)
    version = supervisor._InstalledVersion()
    version._loaded = "98.0"
    assert [version.has_changed() for _ in range(3)] == [False, False, False]


def test_a_job_waits_until_the_successor_has_its_environment(monkeypatch):
    folder = jobs_folder() / "jobs" / "arriving"  # its submitter adds it to the store next
    folder.mkdir(parents=True)
    sent = []

    def notify(job_id="", submission=None):
        sent.append((job_id, submission, claim_job(folder)))

    monkeypatch.setattr(supervisor_client, "notify_supervisor", notify)
    environment = SubmissionEnvironment({"TOKEN": "t"})
    outdated = supervisor.Supervisor(open_store(), capture_environment())
    outdated.submissions["arriving"] = environment
    asyncio.run(outdated._release_jobs())
    outdated.start_successor()
    assert sent == [("", None, None), ("arriving", environment, None)]
    with claim_job(folder) as claim:
        assert claim is not None


@pytest.mark.skipif(not FULL, reason="another test starts the new version: at full scale")
def test_the_supervisor_continues_if_that_of_the_new_version_does_not_start(monkeypatch):
    versions = iter(["98.0", "99.0", "99.0"])
    monkeypatch.setattr(importlib.metadata, "version", lambda _: next(versions, "99.0"))
    monkeypatch.setattr(supervisor, "_VERSION_CHECK_SECONDS", 0.0)
    environment = SubmissionEnvironment({"TOKEN": "t"})
    runs = []

    class Recorded(supervisor.Supervisor):
        async def run(self, linger=0.0):
            runs.append(dict(self.submissions))
            self.receive({"arriving": environment})
            await super().run(linger)

    def fail(*_):
        raise JobError("", "the job supervisor did not respond")

    monkeypatch.setattr(supervisor, "Supervisor", Recorded)
    monkeypatch.setattr(supervisor_client, "notify_supervisor", fail)
    kill_supervisor()
    supervisor._run_until_replaced()
    assert runs == [{}, {"arriving": environment}]


def test_no_successor_starts_while_nothing_can_be_stored(monkeypatch):
    monkeypatch.setattr(supervisor, "_VERSION_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(supervisor._InstalledVersion, "has_changed", lambda _: True)
    waiting = supervisor.Supervisor(open_store(), capture_environment())
    waiting._backoff.record_failure(OSError(28, "no space left"))

    async def run_until_stored():
        running = asyncio.ensure_future(waiting.run())
        for _ in range(3):
            waiting.receive({})
            await asyncio.sleep(0.02)
        assert not waiting.is_outdated
        waiting._backoff.record_success()
        waiting.receive({})
        await running

    asyncio.run(run_until_stored())
    assert waiting.is_outdated
