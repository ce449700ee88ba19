"""Base of the services of Amazon for tests that run the programs of drivers as processes.

The program is executed by the Python of the tests. As in the services, a run has no exit code, and
one that is cancelled is killed.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from typing import ClassVar

from container_service import send_signal
from moto_proxy import MotoProxy, Task, client

from hyperplane.platforms.object_staging import parse_staging

#: Reason of a run that was cancelled.
CANCELLED = "cancelled by a user"
#: Memory of a driver in MiB.
_MEMORY = 16 << 10


class DriverService(MotoProxy):
    """The proxy for a service; the id of a task is the name of a run."""

    log_group: ClassVar[str] = "/tests/drivers"

    def start_driver(self, run: str, script: str, words: list[str]) -> None:
        """Run the program of a driver, which is an object of a bucket, with arguments."""
        folder = self.create_folder()
        (folder / "script.py").write_bytes(read_object(self.moto, script))
        command = [sys.executable, str(folder / "script.py"), *words]
        self.add_task(run, Task(command, self.environment(), folder.name, folder, _MEMORY))

    def kill(self, run: str, reason: str) -> None:
        """End a run as the services do: its processes are killed."""
        with self._lock:
            task = self.tasks[run]
            if task.stopped:
                return
            task.reason = task.reason or reason
            if task.process is None:
                task.stopped = time.time()
            else:
                send_signal(task.process, signal.SIGKILL)

    def end_state(self, task: Task, succeeded: str) -> str:
        """Return the state of a task that has ended."""
        if task.reason == CANCELLED:
            return "CANCELLED"
        code = None if task.process is None else task.process.returncode
        return succeeded if code == 0 else "FAILED"

    def describe_failure(self, task: Task) -> str:
        """Return the last line of the error of the program."""
        lines = task.log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no output")


def read_object(moto: str, url: str) -> bytes:
    """Return the content of an object."""
    place = parse_staging(url)
    key = place.prefix.rstrip("/")
    answer = client("s3", moto).get_object(Bucket=place.bucket, Key=key)
    content: bytes = answer["Body"].read()
    return content


def create_role(moto: str, name: str, service: str) -> None:
    """Create a role that a service may assume, unless it exists."""
    iam = client("iam", moto)
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)
