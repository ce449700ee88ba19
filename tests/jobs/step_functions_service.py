"""Step Functions for tests: moto's server, and a proxy that runs the machines of executions.

moto keeps machines and executions, but runs nothing. The proxy runs each execution with this
package, the commands of Batch jobs as programs in a folder, and answers with its state. It refuses
a machine whose name is that of a different one, as Step Functions does and moto does not.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

from moto_proxy import ACCOUNT, KEYS, MotoProxy, Object, client

from hyperplane.asl.batch_jobs import BATCH_RESOURCES, BatchJobs
from hyperplane.asl.errors import MachineFailed
from hyperplane.asl.reading import read_machine
from hyperplane.asl.running import run_machine

ROLE = f"arn:aws:iam::{ACCOUNT}:role/states"


@dataclass
class Run:
    """An execution that runs in a thread."""

    cancel: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    changed: Object = field(default_factory=lambda: {"status": "RUNNING"})


class StepFunctionsService(MotoProxy):
    """The proxy; commands of Batch jobs run in ``folder``."""

    log_group: ClassVar[str] = "/aws/states"

    def __init__(self, moto: str, folder: Path) -> None:
        self.runs: dict[str, Run] = {}
        super().__init__(moto, folder)

    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        return str(handler.headers["X-Amz-Target"]).rpartition(".")[2]

    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        if operation == "CreateStateMachine" and self._is_other(content):
            text = {"__type": "StateMachineAlreadyExists", "message": "it is another machine"}
            return 400, json.dumps(text).encode()
        status, text = self.forward(handler, body)
        if status != 200:
            return status, text
        answer = json.loads(text or b"{}")
        if operation == "StartExecution" and answer["executionArn"] not in self.runs:
            self._run(content, answer["executionArn"])
        if operation == "StopExecution":
            self.runs[content["executionArn"]].cancel.set()
        if operation == "DescribeExecution":
            text = json.dumps({**answer, **self.runs[content["executionArn"]].changed}).encode()
        return status, text

    def close(self) -> None:
        """End all executions and the server."""
        for run in self.runs.values():
            run.cancel.set()
        super().close()
        for run in self.runs.values():
            if run.thread is not None:
                run.thread.join()

    def _is_other(self, content: Object) -> bool:
        machines = client("stepfunctions", self.moto)
        for each in machines.list_state_machines()["stateMachines"]:
            if each["name"] == content["name"]:
                found = machines.describe_state_machine(stateMachineArn=each["stateMachineArn"])
                return bool(
                    found["definition"] != content["definition"]
                    or found["roleArn"] != content["roleArn"]
                )
        return False

    def _run(self, content: Object, arn: str) -> None:
        found = client("stepfunctions", self.moto).describe_state_machine(
            stateMachineArn=content["stateMachineArn"]
        )
        machine, run = read_machine(json.loads(found["definition"])), Run()
        tasks = dict.fromkeys(BATCH_RESOURCES, BatchJobs(folder=str(self.folder)))
        given = json.loads(content["input"])

        def carry_out() -> None:
            changed: Object
            try:
                output = run_machine(machine, given, tasks, cancel=run.cancel)
                changed = {"status": "SUCCEEDED", "output": json.dumps(output)}
            except MachineFailed as error:
                kind = "ABORTED" if run.cancel.is_set() else "FAILED"
                changed = {"status": kind, "error": error.error, "cause": error.cause}
            run.changed = {**changed, "stopDate": time.time()}

        run.thread = threading.Thread(target=carry_out)
        self.runs[arn] = run
        run.thread.start()


def create_role(moto: str) -> None:
    """Create the role of machines, unless it exists."""
    iam = client("iam", moto)
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "states.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_role(RoleName="states", AssumeRolePolicyDocument=json.dumps(policy))


def variables(moto: str, proxy: str) -> dict[str, Any]:
    """Return the environment variables of a user of the proxy."""
    return {**KEYS, "AWS_ENDPOINT_URL": moto, "AWS_ENDPOINT_URL_SFN": proxy}
