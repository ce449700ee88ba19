"""Attempts on a small API server: Jobs, their pods, logs and ends, through kr8s."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys

import pytest
from job_cases import run_job
from kubernetes_server import running_api_server
from runner_cases import command

from hyperplane.cli.job_foreground import run_in_foreground
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.job_control import new_job
from hyperplane.jobs.runners import registry
from hyperplane.jobs.runners.kubernetes import pod_process
from hyperplane.jobs.runners.kubernetes.measured_command import stage_measuring_programs
from hyperplane.jobs.runners.kubernetes.step_pod import JOB_LABEL
from hyperplane.jobs.store.job_records import DONE, FAILED
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.platforms.kubernetes import job_watcher
from hyperplane.platforms.kubernetes.api import KubernetesApi

ID = "6f1d2c3b-0000-4000-8000-000000000001"


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(pod_process, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(job_watcher, "CACHE_SECONDS", 0.0)
    with running_api_server(tmp_path, monkeypatch) as api_server:
        yield api_server


def create_runner():
    options = registry.resolve_options("kubernetes", {"image": "registry.example/flights:1"})
    return registry.create_runner("kubernetes", {}, options)


async def using(runner, work):
    """Return the result of a coroutine, and close the connection that a supervisor keeps."""
    try:
        return await work
    finally:
        await runner._watcher._connected.close()


def attempt(folder):
    prefix = folder / ID / "steps" / "000-a" / "attempt-1"
    prefix.parent.mkdir(parents=True)
    script = folder / "a.py"
    script.write_text("print(1)")
    attempt_command = AttemptCommand(
        ("python", "/var/lib/hyperplane/a.py"), {}, "/var/lib/hyperplane", prefix,
        secret_variables={"TOKEN": "s3cret"}, script=script,
    )  # fmt: skip
    attempt_command.file(".log").touch()
    return attempt_command


def pod_of(manifest, state, phase):
    status = {"name": "step", "state": state}
    return {
        "metadata": {"name": f"{manifest['metadata']['name']}-x"},
        "spec": manifest["spec"]["template"]["spec"],
        "status": {"phase": phase, "containerStatuses": [status]},
    }


def test_the_job_of_an_attempt_is_deleted_after_its_log_is_copied(tmp_path, server):
    attempt_command, seen = attempt(tmp_path), []

    def run(manifest):
        seen.append(manifest)
        times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:10Z"}
        server.logs[f"{manifest['metadata']['name']}-x"] = b"1\n"
        return [pod_of(manifest, {"terminated": {"exitCode": 3, **times}}, "Failed")]

    server.run = run
    runner = create_runner()
    assert runner.unavailable_reason() == ""

    async def main():
        process = await runner.start(attempt_command, command("a", "true"), 1.0)
        [secret] = [one for (kind, _), one in server.objects.items() if kind == "secrets"]
        data = {key: base64.b64decode(text) for key, text in secret["data"].items()}
        programs = {file.key: file.content for file in stage_measuring_programs()}
        assert data == {"TOKEN": b"s3cret", "hyperplane-file": b"print(1)", **programs}
        assert secret["metadata"]["labels"][JOB_LABEL] == ID
        await process.wait_until_running()
        return await process.wait()

    assert asyncio.run(using(runner, main())) == 3
    assert attempt_command.file(".log").read_text() == "1\n"
    assert attempt_command.file(".pid").read_text() == f"{seen[0]['metadata']['name']}-x"
    assert server.objects == {}, "the pod and the Secret end with the Job"


def test_an_attempt_of_another_supervisor_is_found_by_its_name(tmp_path, server):
    attempt_command = attempt(tmp_path)
    server.run = lambda manifest: [
        pod_of(manifest, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "")
    ]

    runner, other = create_runner(), create_runner()

    async def end():
        process = other.reattach(attempt_command)
        await process.wait_until_running()
        assert process.exit_code() is None
        return await process.end(0.0)

    asyncio.run(using(runner, runner.start(attempt_command, command("a", "true"), 1.0)))
    [name] = server.names("pods")
    server.logs[name] = b"begun\n"
    assert asyncio.run(using(other, end())) is None
    assert attempt_command.file(".log").read_text() == "begun\n"
    assert server.objects == {}


def test_a_refusal_of_the_api_server_is_reported(tmp_path, server):
    server.refusals["POST", "jobs"] = [422]
    runner = create_runner()
    work = runner.start(attempt(tmp_path), command("a", "true"), 1.0)
    with pytest.raises(PermissionError, match=r"refuses the manifest \(create jobs\): refused"):
        asyncio.run(using(runner, work))
    assert server.objects == {}
    server.refusals["GET", "jobs"] = [403] * 4
    assert "not allowed to list jobs" in create_runner().unavailable_reason()


@pytest.mark.process
def test_a_submitted_job_runs_its_steps_in_order_and_deletes_everything(tmp_path, server):
    order = []

    def run(manifest):
        step = manifest["metadata"]["annotations"]["hyperplane.dev/step-name"]
        order.append(step)
        name = f"{manifest['metadata']['name']}-x"
        server.logs[name] = f"this is {step}\n".encode()
        times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
        code = 65 if step == "last" else 0
        return [pod_of(manifest, {"terminated": {"exitCode": code, **times}}, "Failed")]

    server.run = run
    steps = [
        command("first", "true", depends_on=()),
        command("chunks", "true", chunks=3, depends_on=("first",)),
        command("last", "true", depends_on=("chunks",)),
    ]
    options = {"image": "registry.example/flights:1"}
    job = run_job(*steps, runner="kubernetes", runner_options=options, max_retries=2)
    assert order == ["first", *["chunks"] * 3, "last"], "an error of the input is not retried"
    assert (job.status, [record.exit_code for record in job.attempts]) == (FAILED, [0, 0, 0, 0, 65])
    assert job.logs("first") == "this is first\n"
    assert server.objects == {}


@pytest.mark.process
def test_a_job_in_the_foreground_closes_its_connections(tmp_path, server, monkeypatch):
    def run(manifest):
        server.logs[f"{manifest['metadata']['name']}-x"] = b""
        times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
        return [pod_of(manifest, {"terminated": {"exitCode": 0, **times}}, "Succeeded")]

    server.run = run
    sessions = []
    connect = KubernetesApi.connect

    async def record(self):
        await connect(self)
        sessions.append(self.kr8s)

    monkeypatch.setattr(KubernetesApi, "connect", record)
    options = {"image": "registry.example/flights:1"}
    job = new_job(
        Pipeline.from_steps("p", [command("a", "true")]),
        runner="kubernetes",
        runner_options=options,
    )
    ended = asyncio.run(run_in_foreground(open_store(), job, options, quiet=True))
    assert ended.status == DONE
    assert sessions
    assert all(session._session.is_closed for session in sessions)


@pytest.mark.process
def test_without_kr8s_options_are_checked_and_the_advice_names_it():
    text = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Hidden(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, *more):\n"
        "        return None if name.startswith('kr8s') else super().find_spec(name, *more)\n"
        "sys.meta_path[sys.meta_path.index(PathFinder)] = Hidden\n"
        "from hyperplane.jobs.runners.registry import create_runner, resolve_options\n"
        "options = resolve_options('kubernetes', {'image': 'a:1'})\n"
        "print(create_runner('kubernetes', {}, options).unavailable_reason())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "install kr8s with: pip install 'hyperplane[kubernetes]'\n", done.stderr
