"""Another version of hyperplane is installed while jobs run."""

from __future__ import annotations

import importlib.metadata
import os
import shutil

import pytest
from job_cases import LIMIT, bash, is_alive, kill_supervisor, submit_job, until_exists, wait_until

from hyperplane.jobs import supervisor, supervisor_client
from hyperplane.jobs.store.job_records import DONE


def install(folder, version):
    """Put the metadata of one version of hyperplane into a folder, as pip does."""
    for former in folder.glob("hyperplane-*.dist-info"):
        shutil.rmtree(former)
    metadata = folder / f"hyperplane-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: hyperplane\nVersion: {version}\n")


@pytest.fixture
def _no_supervisor():
    """End the supervisors of other tests, which find another installation, and that of this one."""
    kill_supervisor()
    yield
    kill_supervisor()


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
    assert [(one.step, one.number) for one in job.attempts] == [("slow", 1), ("next", 1)]


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
