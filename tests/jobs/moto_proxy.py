"""A proxy before moto's server, which runs the tasks of a service of Amazon as processes.

moto validates the requests and keeps what is created, logs, objects and secrets, but runs nothing.
The proxy passes all requests for a service on, runs the program of each job as a process of this
machine with the environment that the service gives it, and answers with the states of that process.
It can also lose answers, refuse requests and forget jobs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
from container_service import ContainerService, drop, send, send_signal

Object = dict[str, Any]
REGION, ACCOUNT = "eu-west-1", "123456789012"
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "sesame-sesame"}


@dataclass
class Task:
    """A container: a process of this machine, or one that does not run yet.

    ``memory`` is its limit in MiB.
    """

    words: list[str]
    environment: dict[str, str]
    stream: str
    folder: Path
    memory: int = 0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    stopped: float = 0.0
    reason: str = ""
    container_reason: str = ""
    is_gone: bool = False
    sent: int = 0
    killed_at: float = field(default=float("inf"))

    @property
    def log(self) -> Path:
        return self.folder / "log"


class MotoProxy(ContainerService):
    """The proxy, and what it shall do with requests; ``url`` is its address."""

    #: Log group of the tasks.
    log_group: ClassVar[str]

    def __init__(self, moto: str, folder: Path) -> None:
        self.moto, self.folder = moto, folder
        self.tasks: dict[str, Task] = {}
        super().__init__()

    @abstractmethod
    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        """Return the name of the operation of a request."""

    @abstractmethod
    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        """Carry out a request; return the status and the body of the answer."""

    def _processes(self) -> Iterator[subprocess.Popen[bytes] | None]:
        return (task.process for task in self.tasks.values())

    def ids(self) -> list[str]:
        """Return the ids of all jobs."""
        return list(self.tasks)

    def started(self) -> list[str]:
        """Return the ids of the jobs whose containers were started."""
        return [job_id for job_id, task in self.tasks.items() if task.started]

    def running(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""
        with self._lock:
            return [id_ for id_, task in self.tasks.items() if not task.stopped]

    def forget(self, job_id: str) -> None:
        """Make a job vanish: its container is killed, and the service does not have it."""
        with self._lock:  # in one step: of an unknown job the answer is that of moto
            task = self.tasks[job_id]
            self.tasks[job_id] = Task([], {}, "", self.folder, is_gone=True, stopped=1.0)
        if task.process is not None:
            os.killpg(task.process.pid, signal.SIGKILL)
            task.process.wait()

    def interrupt(self, job_id: str, reason: str, container_reason: str = "") -> None:
        """End a container as the service does for a reason outside of it."""
        with self._lock:
            task = self.tasks[job_id]
            task.reason, task.container_reason = reason, container_reason
            if task.process is not None:
                os.killpg(task.process.pid, signal.SIGKILL)

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        operation, content = self.operation(handler), json.loads(body or b"{}")
        with self._lock:
            self.requests.append((operation, content))
            faults = self.faults.get(operation, [])
            fault = faults.pop(0) if faults else ""
        if fault.startswith("refuse "):
            _, status, code = fault.split()
            send_error(handler, int(status), code, "injected")
            return
        answer = self.carry_out(operation, content, handler, body)
        if fault == "lose":
            drop(handler)
        elif fault.startswith("answer "):  # after the request was carried out
            send(handler, int(fault.split()[1]), b'{"message": "injected"}')
        else:
            send(handler, *answer)

    def forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        """Send a request to moto; return the status and the body of its answer."""
        connection = http.client.HTTPConnection(str(urlsplit(self.moto).netloc), timeout=60)
        headers = {name: text for name, text in handler.headers.items() if name != "Connection"}
        try:
            connection.request(str(handler.command), handler.path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def add_task(self, job_id: str, task: Task) -> None:
        """Run a task soon."""
        with self._lock:
            self.tasks[job_id] = task

    def create_folder(self) -> Path:
        """Return a new folder for a task."""
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        return folder

    def environment(self) -> dict[str, str]:
        """Return the environment of every task."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "AWS_ENDPOINT_URL": self.moto, **KEYS}

    def terminate(self, job_id: str, reason: str) -> None:
        """End a task: SIGKILL comes some seconds after SIGTERM."""
        with self._lock:
            task = self.tasks[job_id]
            if task.stopped:
                return
            task.reason = task.reason or reason
            if task.process is None:
                task.stopped = time.time()
            elif task.killed_at == float("inf"):
                task.killed_at = time.monotonic() + self.stop_seconds
                send_signal(task.process, signal.SIGTERM)

    def _drive(self) -> None:
        """Start, observe and end containers, and copy what they print to the logs of moto."""
        logs = client("logs", self.moto)
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_group(logGroupName=self.log_group)
        while not self._closing.wait(0.05):
            with self._lock:
                tasks = [task for task in self.tasks.values() if not task.stopped]
            for task in tasks:
                if task.process is None:
                    if not self.waiting_for:
                        self._start(task, logs)
                    continue
                if time.monotonic() > task.killed_at:
                    send_signal(task.process, signal.SIGKILL)
                code = task.process.poll()
                self._send_log(task, logs, whole=code is not None)
                if code is not None:
                    with self._lock:
                        if code:
                            task.reason = task.reason or self.describe_failure(task)
                        task.stopped = time.time()

    def describe_failure(self, task: Task) -> str:
        """Return the reason of a job whose program has failed."""
        del task
        return "Essential container in task exited"

    def _start(self, task: Task, logs: Any) -> None:
        logs.create_log_stream(logGroupName=self.log_group, logStreamName=task.stream)
        limit = task.memory << 20
        with task.log.open("wb") as log, self._lock:
            if task.stopped:
                return
            task.process = subprocess.Popen(
                task.words,
                env=task.environment,
                cwd=task.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
            task.started = time.time()

    def _send_log(self, task: Task, logs: Any, whole: bool) -> None:
        """Send new lines of a container as events, one for each line."""
        with task.log.open("rb") as log:
            log.seek(task.sent)
            text = log.read()
        if not whole:
            text = text[: text.rfind(b"\n") + 1]
        if not text:
            return
        task.sent += len(text)
        lines = text.decode(errors="replace").removesuffix("\n").split("\n")
        now = int(time.time() * 1000)
        # Amazon keeps no empty lines; moto refuses them.
        events = [{"timestamp": now, "message": line} for line in lines if line]
        if events:
            logs.put_log_events(
                logGroupName=self.log_group, logStreamName=task.stream, logEvents=events
            )


def send_error(handler: BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
    """Send the answer of a request that is refused."""
    text = json.dumps({"message": message, "__type": code, "code": code}).encode()
    send(handler, status, text, x_amzn_ErrorType=code)


def client(service: str, url: str) -> Any:
    """Return a client of moto's server."""
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
