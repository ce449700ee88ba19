"""Results of attempts from recorded states of pods."""

from __future__ import annotations

import asyncio
import base64
import signal
import time
import zlib

import pytest

from hyperplane.core.artifact_reports import LINE_MARKER
from hyperplane.jobs.execution.artifact_recording import REPORTS_SUFFIX
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.failure_kinds import MEMORY, classify_failure
from hyperplane.jobs.execution.saved_reports import read_reports
from hyperplane.jobs.runners.attempt_names import attempt_job_name
from hyperplane.jobs.runners.kubernetes.pod_process import PodProcess
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.job_watcher import JobSnapshot


# Recorded states of pods.
def pod(state, phase="Running", **status):
    container = {"name": "step", "state": state, "restartCount": 0}
    return {
        "metadata": {"name": "n-x", **status.pop("metadata", {})},
        "spec": {"containers": [{"name": "step", "resources": {"limits": {"memory": "100"}}}]},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }


def ended(code, **more):
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:10Z"}
    return {"terminated": {"exitCode": code, **times, **more}}


class FakeWatcher:
    """A watcher that returns one snapshot."""

    def __init__(self, snapshot, log=b"its log\n", secret=True):
        self._snapshot, self._log, self._secret, self.deleted = snapshot, log, secret, []
        self.last_error = ""

    async def has_secret(self, name):
        return self._secret

    async def get_snapshot(self, labels, since):
        return self._snapshot

    async def read_log(self, name):
        return self._log

    async def delete(self, name):
        self.deleted.append(name)
        return True


def attempt(tmp_path, *pods, jobs=None):
    """An attempt whose pods are these, and the snapshot that its watcher returns."""
    prefix = tmp_path / "6f1d2c3b-0000-4000-8000-000000000001" / "steps" / "000-a" / "attempt-1"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    command = AttemptCommand((), {}, "", prefix)
    command.file(".log").touch()
    name = attempt_job_name(command)
    snapshot = JobSnapshot({name: {}} if jobs is None else jobs, {name: list(pods)})
    return PodProcess(command, FakeWatcher(snapshot), time.monotonic()), snapshot


def wait_for_attempt(tmp_path, *pods, **more):
    """Wait for an attempt whose pods are these; return exit code, log and process."""
    process, _ = attempt(tmp_path, *pods, **more)
    code = asyncio.run(asyncio.wait_for(process.wait(), 20))
    return code, process.command.file(".log").read_text(), process


def test_the_exit_code_and_the_times_are_recorded(tmp_path):
    code, log, process = wait_for_attempt(tmp_path, pod(ended(3), "Failed"))
    assert (code, log) == (3, "its log\n")
    assert process.end_time() - process.command.file(".pid").stat().st_mtime == 10
    assert process._watcher.deleted == [attempt_job_name(process.command)]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (143, -15), (137, -9), (255, 255)])
def test_signals_are_distinguished_from_exit_codes(tmp_path, code, expected):
    assert wait_for_attempt(tmp_path, pod(ended(code), "Failed"))[0] == expected


def test_running_out_of_memory_is_logged_with_advice(tmp_path):
    code, log, _ = wait_for_attempt(tmp_path, pod(ended(137, reason="OOMKilled"), "Failed"))
    assert code == -signal.SIGKILL
    assert "more than the memory of its pod, 1e-07 GB: request more with resources.ram_gb" in log
    assert classify_failure(code, log) == MEMORY


@pytest.mark.parametrize(
    "lost",
    [
        pod({}, "Failed", reason="Evicted", message="The node was low on\nresource: memory."),
        pod(ended(143), "Failed", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod(ended(143), "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}]),
    ],
)
def test_pods_that_kubernetes_evicts_or_deletes_are_lost(tmp_path, lost):
    code, log, process = wait_for_attempt(tmp_path, lost)
    assert code is None
    assert "Kubernetes ended the pod: " in log
    assert process._watcher.deleted


def test_a_job_that_is_gone_is_lost(tmp_path):
    assert wait_for_attempt(tmp_path, jobs={})[0] is None


def test_the_outcome_of_a_job_counts_without_its_pod(tmp_path):
    name = "hyperplane-6f1d2c3b-0000-000-a-1"
    done = {name: {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}}
    assert wait_for_attempt(tmp_path, jobs=done)[0] == 0
    failed = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    code, log, _ = wait_for_attempt(
        tmp_path / "b", jobs={name: {"status": {"conditions": [failed]}}}
    )
    assert code is None
    assert "Kubernetes ended the job: BackoffLimitExceeded" in log
    # A child that ran out of memory, and a program that continued without it.
    assert wait_for_attempt(tmp_path / "c", pod(ended(0, reason="OOMKilled"), "Succeeded"))[0] == 0


def test_a_deleted_job_is_waited_for_while_its_pod_runs(tmp_path):
    process, _ = attempt(tmp_path, pod({"running": {}}), jobs={})
    assert not asyncio.run(process._is_finished())
    process, _ = attempt(tmp_path / "b", pod(ended(143), metadata=DELETED), jobs={})
    assert asyncio.run(process._is_finished())


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_a_pod_on_a_node_that_does_not_respond_is_lost(tmp_path):
    lost = pod({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, metadata=DELETED)
    code, log, _ = wait_for_attempt(tmp_path, lost)
    assert code is None
    assert "does not respond: the attempt is lost" in log


def test_a_secret_that_comes_late_is_waited_for_and_one_that_never_comes_is_not(
    tmp_path, monkeypatch
):
    name = "hyperplane-6f1d2c3b-0000-000-a-1"
    message = f'secret "{name}" not found'
    waits = pod(
        {"waiting": {"reason": "CreateContainerConfigError", "message": message}}, "Pending"
    )
    waits["spec"]["volumes"] = [{"secret": {"secretName": name}}]
    monkeypatch.setattr("hyperplane.jobs.runners.kubernetes.pod_process.SECRET_SECONDS", -1.0)
    process, snapshot = attempt(tmp_path, waits)
    assert not asyncio.run(process._is_finished())
    process._created = None  # created by another supervisor, which was killed
    assert not asyncio.run(process._is_finished())
    process._watcher = FakeWatcher(snapshot, secret=False)
    assert asyncio.run(process._is_finished())
    assert process.exit_code() is None
    assert "the Secret of this attempt was not created" in process.command.file(".log").read_text()


def test_a_pod_that_never_starts_is_an_input_error(tmp_path):
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}}
    code, log, _ = wait_for_attempt(tmp_path, pod(waiting, "Pending"))
    assert code == 78
    assert "ErrImageNeverPull: not there; image_pull_policy is Never" in log
    no_program = ended(128, reason="StartError", message='exec: "nothing": not found')
    code, log, _ = wait_for_attempt(tmp_path / "b", pod(no_program, "Failed"))
    assert code == 127
    assert 'StartError: exec: "nothing": not found' in log


def test_an_executed_notebook_is_extracted_from_the_log(tmp_path):
    packed = base64.b64encode(zlib.compress(b"{1}")).decode()
    mark = "hyperplane-notebook:"
    printed = f"{mark}{packed[:4]}\nValueError: x\n{mark}{packed[4:]}\n"  # with a line between
    log = f"cell\n\n{printed}".encode()
    process, snapshot = attempt(tmp_path, pod(ended(1), "Failed"))
    output = tmp_path / "out" / "a.ipynb"
    process.command.file(".notebook").write_text(str(output))
    process._watcher = process._files._watcher = FakeWatcher(snapshot, log)
    assert asyncio.run(asyncio.wait_for(process.wait(), 20)) == 1
    assert output.read_bytes() == b"{1}"
    assert process.command.file(".log").read_text() == "cell\nValueError: x\n"


def test_what_a_pod_has_saved_is_extracted_from_its_log(tmp_path):
    report = '{"kind": "text", "created": 1, "url": "s3://bucket/a.txt", "size": 3}'
    log = f"one\n\n{LINE_MARKER}{report}\ntwo\n".encode()
    process, snapshot = attempt(tmp_path, pod(ended(0), "Succeeded"))
    process._watcher = process._files._watcher = FakeWatcher(snapshot, log)
    assert asyncio.run(asyncio.wait_for(process.wait(), 20)) == 0
    assert process.command.file(".log").read_text() == "one\ntwo\n"
    [found] = read_reports(process.command.file(REPORTS_SUFFIX))
    assert (found["url"], found["size"]) == ("s3://bucket/a.txt", 3)


def test_a_log_begins_with_the_warnings_of_the_job_at_any_time(tmp_path):
    class Follows(FakeWatcher):
        async def follow_log(self, name):
            yield b"its "
            raise KubernetesError("the log broke off")

    warning = "warning: no step reads the parameter 'sorce'\n"
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "wait"}}
    process, _ = attempt(tmp_path, pod(waiting, "Pending"))
    process.command.file(".preface").write_text(warning)
    files, log = process._files, process.command.file(".log")
    process._watcher = files._watcher = Follows(None)
    files.write_status("no node")
    assert log.read_text() == f"{warning}waiting for Kubernetes: no node\n"
    files.record_start("n-x", 1.0)
    assert log.read_text() == warning

    async def ends():
        files.follow("n-x")
        await asyncio.wait({files._following})
        assert log.read_text() == f"{warning}its "
        await files.save_log("n-x")

    asyncio.run(ends())
    assert log.read_text() == f"{warning}its log\n"
