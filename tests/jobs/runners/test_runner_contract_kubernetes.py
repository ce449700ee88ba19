"""The contract of runners on a small API server whose pods are processes of this machine."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import kubernetes_server
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.jobs import Pipeline

Object = dict[str, Any]
#: Seconds from SIGTERM to SIGKILL.
GRACE = 1.0


def expand(text: str) -> str:
    """Replace ``$$`` as Kubernetes does in words and variables; none of them refers to another."""
    return text.replace("$$", "$")


class ProcessPod:
    """A pod whose container is a process of this machine, with the Python of the tests.

    It starts when its Secrets exist, and finds their files below a folder. The first process gets
    SIGTERM, and all get SIGKILL.
    """

    def __init__(self, server: Any, job: Object, folder: Path, path: str = "") -> None:
        self._server, self.name = server, f"{job['metadata']['name']}-x"
        self._folder, self._log = folder, folder / f"{self.name}.log"
        self._path = path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._spec = job["spec"]["template"]["spec"]
        server.logs[self.name] = b""
        self.content: Object = {"metadata": {"name": self.name}, "spec": self._spec}
        self._set_state({"waiting": {"reason": "ContainerCreating"}}, "Pending")
        self._is_listed, self._ends = False, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self._ends.set()
        self._thread.join()

    def change_file(self, content: bytes) -> bytes:
        """Return what a file of the pod has in place of the content of a Secret."""
        return content

    def _run(self) -> None:
        secrets = [
            volume["secret"]["secretName"] for volume in self._spec["volumes"] if "secret" in volume
        ]
        while not all(("secrets", name) in self._server.objects for name in secrets):
            if self._is_deleted() or self._ends.wait(0.02):
                return
        self._watch(self._start(secrets))

    def _start(self, secrets: list[str]) -> subprocess.Popen[bytes]:
        [container] = self._spec["containers"]
        data: dict[str, str] = {}
        for name in secrets:
            data |= self._server.objects["secrets", name]["data"]
        words = [expand(word) for word in container["command"]]
        for mount in container["volumeMounts"]:
            if "subPath" in mount:
                file = Path(f"{self._folder}/{self.name}{mount['mountPath']}")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(self.change_file(base64.b64decode(data[mount["subPath"]])))
                words = [word.replace(mount["mountPath"], str(file)) for word in words]
        variables = {
            variable["name"]: expand(variable.get("value", "")) for variable in container["env"]
        }
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                words,
                env={**os.environ, "PATH": self._path, **variables},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = _now()
        self._set_state({"running": {"startedAt": self._started}}, "Running")
        return process

    def _is_deleted(self) -> bool:
        is_there = ("pods", self.name) in self._server.objects
        self._is_listed = self._is_listed or is_there  # it is listed a moment after the start
        is_deleted = "deletionTimestamp" in self.content["metadata"]
        return is_deleted or (self._is_listed and not is_there)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        killed_at = 0.0
        while process.poll() is None:
            if self._is_deleted() and not killed_at:
                killed_at = time.monotonic() + GRACE
                process.terminate()
            if self._ends.is_set() or (killed_at and time.monotonic() > killed_at):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.1)
        with suppress(ProcessLookupError):  # the first process has ended
            os.killpg(process.pid, signal.SIGKILL)
        code = process.returncode
        self._server.logs[self.name] = self._log.read_bytes()
        times = {"startedAt": self._started, "finishedAt": _now()}
        ended = {"exitCode": code if code >= 0 else 128 - code, **times}
        self._set_state({"terminated": ended}, "Failed" if code else "Succeeded")
        if "deletionTimestamp" in self.content["metadata"]:
            self._server.objects.pop(("pods", self.name), None)

    def _set_state(self, state: Object, phase: str) -> None:
        statuses = [{"name": "step", "state": state}]
        self.content["status"] = {"phase": phase, "containerStatuses": statuses}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class TestKubernetes(RunnerContract):
    name = "kubernetes"

    @pytest.fixture
    def options(
        self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[dict[str, Any]]:
        monkeypatch.setattr("hyperplane.jobs.runners.kubernetes.pod_process.POLL_SECONDS", 0.1)
        monkeypatch.setattr("hyperplane.platforms.kubernetes.job_watcher.CACHE_SECONDS", 0.0)
        folder, pods = tmp_path_factory.mktemp("server"), []
        with kubernetes_server.running_api_server(folder, monkeypatch) as server:

            def start(job: Object) -> list[Object]:
                pods.append(ProcessPod(server, job, folder))
                return [pods[-1].content]

            server.run = start
            yield {"image": "registry.example/flights:1"}
            for pod in pods:
                pod.end()

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        del options["image"]
        return "image=registry/name:tag"

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        (folder / "needs.txt").write_text("polars\n")
        pipeline = make_job(STEP, root=folder, requirements="needs.txt").pipeline
        return pipeline, "no requirements on kubernetes"

    async def finish(self, runner: Any) -> None:
        if runner._watcher is not None and runner._watcher._connected is not None:
            await runner._watcher._connected.close()
