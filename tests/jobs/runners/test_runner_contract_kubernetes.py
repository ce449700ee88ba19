"""The contract of runners on a small API server whose pods are processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
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
    """A pod whose container is a process of this machine."""

    def __init__(self, server: Any, job: Object, folder: Path) -> None:
        self._server, self.name = server, f"{job['metadata']['name']}-x"
        self._log = folder / f"{self.name}.log"
        spec = job["spec"]["template"]["spec"]
        [container] = spec["containers"]
        variables = {
            variable["name"]: expand(variable.get("value", "")) for variable in container["env"]
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [expand(word) for word in container["command"]],
                env={**os.environ, **variables},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = _now()
        server.logs[self.name] = b""
        self.content: Object = {"metadata": {"name": self.name}, "spec": spec}
        self._set_state({"running": {"startedAt": self._started}}, "Running")
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self._signal(signal.SIGKILL)
        self._thread.join()

    def _watch(self) -> None:
        listed, killed_at = False, 0.0
        while self._process.poll() is None:
            is_there = ("pods", self.name) in self._server.objects
            listed = listed or is_there  # the server lists it a moment after the start
            is_deleted = "deletionTimestamp" in self.content["metadata"]
            if is_deleted or (listed and not is_there):
                killed_at = killed_at or time.monotonic() + GRACE
                number = signal.SIGKILL if time.monotonic() > killed_at else signal.SIGTERM
                self._signal(number)
            time.sleep(0.1)
        code = self._process.returncode
        self._server.logs[self.name] = self._log.read_bytes()
        times = {"startedAt": self._started, "finishedAt": _now()}
        ended = {"exitCode": code if code >= 0 else 128 - code, **times}
        self._set_state({"terminated": ended}, "Failed" if code else "Succeeded")
        if "deletionTimestamp" in self.content["metadata"]:
            self._server.objects.pop(("pods", self.name), None)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

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
