"""Gang steps as pods of an Indexed Job, on a small API server whose pods are processes."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_server
import pytest
from gang_cases import MEET, TASK
from runner_cases import command, make_job
from test_runner_contract_kubernetes import ProcessPod
from test_runners_kubernetes_runner import COMMAND, settings
from typer.testing import CliRunner

from hyperplane.cli.app import app
from hyperplane.clusters.gang_plan import PLAN_VARIABLE, GangPlan, plan_program
from hyperplane.core.artifact_reports import LINE_MARKER
from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, Step
from hyperplane.jobs.execution.artifact_recording import REPORTS_SUFFIX
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.saved_reports import read_reports
from hyperplane.jobs.exporters.registry import render
from hyperplane.jobs.gang import rank_program
from hyperplane.jobs.runners import registry
from hyperplane.jobs.runners.kubernetes.attempt_manifests import build_job, build_secret
from hyperplane.jobs.runners.kubernetes.gang_files import GangFiles
from hyperplane.jobs.runners.kubernetes.gang_manifests import (
    build_gang_service,
    stage_gang_program,
)
from hyperplane.jobs.runners.kubernetes.runner import KubernetesRunner
from hyperplane.platforms.kubernetes.manifest_yaml import dump_yaml

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "jobs" / "kubernetes-gang.yaml"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
#: In place of pods, whose names DNS resolves, the processes are on this machine.
HOSTS = """
import socket, sys
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: real("127.0.0.1", *rest, **more)
listen = socket.create_server
socket.create_server = lambda address, **more: listen(("127.0.0.1", address[1]), **more)
"""

#: Two processes find the beginning of the same second.
SAME_SECOND = """
import os, time
from pathlib import Path
number = int(os.environ["HOSTNAME"].rpartition("-")[2])
Path(f"begun-{number}").touch()
while not all(map(os.path.exists, ("begun-0", "begun-1"))):
    time.sleep(0.02)
target = 3 + int(max(os.stat(name).st_mtime for name in ("begun-0", "begun-1")))
"""


def test_the_job_and_the_service_are_as_the_file_shows():
    step = command("years", "python", "-c", "x", gang=3, resources=Resources(cores=1.5, ram_gb=2))
    plain = dataclasses.replace(
        COMMAND, step_variables={PLAN_VARIABLE: GangPlan(3).to_json()}, pool=""
    )
    job = build_job(plain, step, 1.0, settings(), stage_gang_program())
    service = build_gang_service({**job, "metadata": {**job["metadata"], "uid": "u"}})
    text = f"{dump_yaml(job)}---\n{dump_yaml(service)}"
    if os.environ.get("HYPERPLANE_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return str(opened.getsockname()[1])


@pytest.fixture
def server(tmp_path_factory, monkeypatch):
    """An API server that starts a process for each pod of an Indexed Job."""
    for module in ("pod_process", "gang_process"):
        monkeypatch.setattr(f"hyperplane.jobs.runners.kubernetes.{module}.POLL_SECONDS", 0.1)
    monkeypatch.setattr("hyperplane.jobs.runners.kubernetes.gang_process.REPORT_SECONDS", 0.5)
    monkeypatch.setattr("hyperplane.platforms.kubernetes.job_watcher.CACHE_SECONDS", 0.0)
    folder, pods = tmp_path_factory.mktemp("server"), []
    (folder / "sitecustomize.py").write_text(HOSTS)
    with kubernetes_server.running_api_server(folder, monkeypatch) as running:

        def secret_of(job):
            deadline = time.monotonic() + 10
            while ("secrets", job["metadata"]["name"]) not in running.objects:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            return running.objects["secrets", job["metadata"]["name"]]

        class Pod(ProcessPod):
            def __init__(self, job, number, port):
                self.port = port
                name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
                [container] = spec["containers"]
                more = {
                    INDEX_VARIABLE: str(number), "HOSTNAME": f"{name}-{number}",
                    "PYTHONPATH": str(folder),
                }  # fmt: skip
                variables = [*container["env"], *({"name": k, "value": v} for k, v in more.items())]
                changed = {**container, "env": variables}
                inner = {**spec, "containers": [changed]}
                self.message = folder / f"{name}-{number}.ended"
                self.message.touch()
                # The name of a pod has a suffix that the name of its host lacks.
                super().__init__(
                    running,
                    {
                        "metadata": {"name": f"{name}-{number}"},
                        "spec": {"template": {"spec": inner}},
                    },
                    folder,
                )
                self.content["metadata"]["annotations"] = {INDEX: str(number)}

            def change_file(self, content):
                # A pod has all ports to itself.
                content = content.replace(b"29500", self.port.encode())
                log = b'os.environ["HOSTNAME"] + ".ended"'
                return content.replace(b'"/dev/termination-log"', log)

            def _set_state(self, state, phase):
                if "terminated" in state:
                    state["terminated"]["message"] = self.message.read_text()
                super()._set_state(state, phase)

        def start(job):
            port = free_port()
            started = [Pod(job, number, port) for number in range(job["spec"]["completions"])]
            pods.extend(started)
            return [pod.content for pod in started]

        running.keeps_running_pods = True
        running.run, running.secret_of, running.folder = start, secret_of, folder
        yield running
        for pod in pods:
            pod.end()


def attempt(folder, *argv, plan=None):
    above = folder / "6f1d2c3b-0000-4000-8000-000000000001" / "steps" / "000-one"
    above.mkdir(parents=True)
    variables = {PLAN_VARIABLE: (plan or GangPlan(2)).to_json(), "HYPERPLANE_RESTART_COUNT": "0"}
    variables["HYPERPLANE_CHECKPOINTS"] = str(folder)
    return AttemptCommand(
        argv, {**os.environ, **variables}, str(folder), above / "attempt-1",
        step_variables=variables,
    )  # fmt: skip


def run(server, started, step, *, reattach=False):
    options = registry.resolve_options("kubernetes", {"image": "registry.example/flights:1"})

    async def main():
        runner = KubernetesRunner({}, options)
        try:
            process = await runner.start(started, step, 1.0)
            [service] = server.names("services")
            assert server.objects["services", service]["spec"]["clusterIP"] == "None"
            assert server.secret_of(server.objects["jobs", service])
            if reattach:
                await process.wait_until_running()
                process = runner.reattach(started)
            return await asyncio.wait_for(process.wait(), 60)
        finally:
            await runner._watcher._connected.close()

    code = asyncio.run(main())
    assert server.names("jobs") == server.names("services") == server.names("secrets") == []
    return code


@pytest.mark.process
@pytest.mark.parametrize("reattach", [False, True])
def test_pods_meet_and_the_log_has_the_lines_of_all(server, tmp_path, reattach):
    step = command("one", "true", gang=2)
    started = attempt(tmp_path, sys.executable, "-c", MEET)
    assert run(server, started, step, reattach=reattach) == 0
    assert (server.folder / "sum").read_text() == "1 0"
    lines = started.file(".log").read_text().splitlines()
    assert sorted(lines) == [f"rank {n} | begins {n} of 2 restarts 0" for n in range(2)]


@pytest.mark.process
@pytest.mark.parametrize(("how", "code"), [("kill", -9), ("fail", 1)])
def test_a_pod_that_fails_ends_all_others(server, tmp_path, how, code):
    started = attempt(tmp_path, sys.executable, "-c", MEET, how)
    assert run(server, started, command("one", "true", gang=2)) == code
    log = started.file(".log").read_text()
    assert f"rank 1 failed with {'SIGKILL' if how == 'kill' else 'exit code 1'}" in log
    if how == "fail":
        assert log.splitlines()[-1] == "rank 1 | ValueError: no such column"


@pytest.mark.slow
@pytest.mark.process
def test_the_failure_is_that_of_the_first_process_in_the_same_second(server, tmp_path):
    script = SAME_SECOND + "time.sleep(target + 0.7 - 0.5 * number - time.time()); exit(3 + number)"
    started = attempt(tmp_path, sys.executable, "-c", script)
    assert run(server, started, command("one", "true", gang=2)) == 4
    assert "rank 1 failed with exit code 4" in started.file(".log").read_text()


@pytest.mark.slow
@pytest.mark.process
def test_a_step_ends_after_its_last_process(server, tmp_path):
    # Rank 0 ignores SIGTERM, and writes to a file until it is killed.
    script = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '1': time.sleep(1); sys.exit(3)\n"
        "while True: open('beat', 'w').write(str(time.time())); time.sleep(0.05)"
    )
    started = attempt(tmp_path, sys.executable, "-c", script)
    assert run(server, started, command("one", "true", gang=2)) == 3
    ended = (server.folder / "beat").read_text()
    time.sleep(0.5)
    assert (server.folder / "beat").read_text() == ended


@pytest.mark.process
def test_the_first_process_of_a_pod_forwards_signals_and_ends_as_its_program():
    variables = {
        PLAN_VARIABLE: GangPlan(1).to_json(), INDEX_VARIABLE: "0", "HOSTNAME": "x-0",
        "HYPERPLANE_RESTART_COUNT": "0",
    }  # fmt: skip
    words = [sys.executable, str(rank_program.__file__), "kubernetes", "x", sys.executable, "-c"]
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(
        [*words, text], env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
    ) as first:
        try:
            child = int(first.stdout.readline())
            assert child != first.pid
            first.send_signal(signal.SIGTERM)
            assert first.wait(30) == 128 + signal.SIGTERM
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
        finally:
            first.kill()


def test_what_the_pods_have_saved_is_taken_from_their_lines(tmp_path):
    started = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    started.file(".gang").write_text(GangPlan(2).to_json())
    files = GangFiles(started, None)
    for number, name in enumerate("ab"):
        report = json.dumps({"kind": "text", "created": number, "url": f"s3://bucket/{name}.txt"})
        text = f"one\n\n{LINE_MARKER}{report}\ntwo\n".encode()
        files._append(number, text[:30])
        files._append(number, text[30:])
    files.extract_reports()
    log = started.file(".log").read_text()
    assert LINE_MARKER not in log
    assert log.count("| one") == log.count("| two") == 2
    found = read_reports(started.file(REPORTS_SUFFIX))
    assert [each["url"] for each in found] == ["s3://bucket/a.txt", "s3://bucket/b.txt"]


@pytest.mark.timeout(60)  # joining the line for each part would take minutes
def test_a_log_without_line_ends_takes_linear_time(tmp_path):
    started = AttemptCommand((), {}, "", tmp_path / "attempt-1")
    started.file(".gang").write_text(GangPlan(2).to_json())
    files = GangFiles(started, None)
    for _ in range(60_000):
        files._append(0, b"x" * 1_000)
    assert not started.file(".log").exists()
    files._append(0, b"end\nnext")
    files._append(0, b"\n")
    line, after = started.file(".log").read_bytes().splitlines()
    assert line.endswith(b" | " + b"x" * 60_000_000 + b"end")
    assert after.endswith(b" | next")


def test_a_kubernetes_without_indexed_jobs_is_refused(tmp_path, monkeypatch):
    class OlderServer(kubernetes_server.ApiServer):
        def _create(self, kind, content):
            content.get("spec", {}).pop("completionMode", None)
            return super()._create(kind, content)

    monkeypatch.setattr(kubernetes_server, "ApiServer", OlderServer)
    with kubernetes_server.running_api_server(tmp_path, monkeypatch) as older:
        with pytest.raises(OSError, match=r"no Indexed Jobs.* Use Kubernetes 1\.24 or later"):
            run(older, attempt(tmp_path, "true"), command("one", "true", gang=2))
        assert older.objects == {}


@pytest.mark.process
def test_a_training_program_ends_with_its_primary(server, tmp_path):
    script = (
        "import os, time; print(os.environ['TF_CONFIG'], flush=True); "
        "time.sleep(600 * ('RANK' not in os.environ))"
    )
    plan = plan_program("trainer.task", [], workers=0, parameter_servers=1, evaluators=0)
    step = Step(name="a", kind="train", module_name="trainer.task", parameter_server_count=1)
    started = attempt(tmp_path, sys.executable, "-c", script, plan=plan)
    assert run(server, started, step) == 0
    name = "hyperplane-6f1d2c3b-0000-000-one-1"
    assert f'"chief": ["{name}-0.{name}:2222"]' in started.file(".log").read_text()


@pytest.mark.process
def test_the_command_line_runs_a_training_program(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = server.folder / "trainer"  # in the image
    package.mkdir()
    (package / "task.py").write_text(TASK)
    words = [
        *("train", "--module-name", "trainer.task", "--job-dir", "out", "--distributed"),
        *("--worker-count", "1", "--parameter-server-count", "1", "--evaluator-count", "1"),
        *("--runner", "kubernetes", "--runner-option", "image=registry.example/flights:1"),
        *("--", "0"),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    records = [json.loads(file.read_text()) for file in (server.folder / "out").glob("*.json")]
    roles = [record["config"]["task"]["type"] for record in records]
    assert sorted(roles) == ["chief", "evaluator", "ps", "worker"]
    assert {tuple(record["argv"]) for record in records} == {("0", "--job-dir", "out")}


@pytest.mark.slow
@pytest.mark.process
def test_a_process_that_fails_after_its_primary_fails_no_step(server, tmp_path, monkeypatch):
    # Both ends are in one snapshot, and in the same second.
    monkeypatch.setattr("hyperplane.jobs.runners.kubernetes.pod_process.POLL_SECONDS", 2.0)
    script = SAME_SECOND + "time.sleep(target + 0.2 + 0.5 * number - time.time()); exit(number)"
    plan = plan_program("trainer.task", [], workers=0, parameter_servers=1, evaluators=0)
    step = Step(name="a", kind="train", module_name="trainer.task", parameter_server_count=1)
    started = attempt(tmp_path, sys.executable, "-c", script, plan=plan)
    assert run(server, started, step) == 0


def test_packages_of_this_machine_and_rendered_gangs_are_refused(tmp_path):
    (tmp_path / "trainer").mkdir()
    step = Step(name="a", kind="train", module_name="trainer.task", package_path="trainer")
    runner = registry.create_runner(
        "kubernetes", {}, registry.resolve_options("kubernetes", {"image": "a/b:1"})
    )
    job = make_job(step, root=tmp_path)
    assert "root=FOLDER" in str(runner.find_unsupported(job.pipeline))
    with pytest.raises(RequestError, match="submit the job with --runner kubernetes"):
        render("kubernetes", job, image="a/b:1")


def test_the_secret_has_the_programs():
    secret = build_secret(
        {"apiVersion": "batch/v1", "kind": "Job",
         "metadata": {"name": "n", "uid": "u", "labels": {}}}, COMMAND, stage_gang_program()
    )  # fmt: skip
    program = base64.b64decode(secret["data"]["hyperplane-gang-0"])
    assert program == Path(rank_program.__file__).read_bytes()
