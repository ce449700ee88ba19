"""EMR Serverless for tests: moto's server, and a proxy that runs drivers as processes.

moto keeps applications and runs, but no run ever ends, and it ignores tokens. The proxy runs the
program of a run with the Python of the tests, and starts no second one for a token.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from driver_service import CANCELLED, DriverService, create_role
from moto_proxy import ACCOUNT, KEYS, REGION, Object, client

ROLE = f"arn:aws:iam::{ACCOUNT}:role/serverless"
#: Method and pattern of the path -> operation.
_OPERATIONS = {
    ("POST", "/applications/[^/]+/jobruns"): "StartJobRun",
    ("GET", "/applications/[^/]+/jobruns"): "ListJobRuns",
    ("GET", "/applications/[^/]+/jobruns/[^/]+"): "GetJobRun",
    ("DELETE", "/applications/[^/]+/jobruns/[^/]+"): "CancelJobRun",
}


class EmrServerlessService(DriverService):
    """The proxy for EMR Serverless; the id of a task is ``APPLICATION/RUN``."""

    def __init__(self, moto: str, folder: Any) -> None:
        #: Token -> answer to the request that had it first.
        self.tokens: dict[str, bytes] = {}
        super().__init__(moto, folder)

    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        path = urlsplit(handler.path).path
        for (method, pattern), name in _OPERATIONS.items():
            if handler.command == method and re.fullmatch(pattern, path):
                return name
        return "GetApplication"

    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        _, _, application, *rest = urlsplit(handler.path).path.split("/")
        run = f"{application}/{rest[1]}" if len(rest) > 1 else ""
        if operation == "StartJobRun" and content["clientToken"] in self.tokens:
            return 200, self.tokens[content["clientToken"]]
        task = self.tasks.get(run)
        if task is not None and task.is_gone:
            error = {"message": "no such run", "__type": "ResourceNotFoundException"}
            return 404, json.dumps(error).encode()
        if operation == "CancelJobRun" and task is not None:
            self.kill(run, CANCELLED)
            return 200, json.dumps({"applicationId": application, "jobRunId": rest[1]}).encode()
        if operation == "ListJobRuns":  # moto compares the text of createdAtAfter with times
            handler.path = urlsplit(handler.path).path
        status, text = self.forward(handler, body)
        if status != 200:
            return status, text
        answer = json.loads(text)
        if operation == "StartJobRun":
            self.tokens[content["clientToken"]] = text
            driver = content["jobDriver"]["sparkSubmit"]
            words = driver["entryPointArguments"]
            self.start_driver(f"{application}/{answer['jobRunId']}", driver["entryPoint"], words)
        elif operation == "GetJobRun":
            self._describe(run, answer["jobRun"])
        return status, json.dumps(answer).encode()

    def create_application(self, **others: Any) -> str:
        """Create an application and return its id."""
        answer = client("emr-serverless", self.moto).create_application(
            name="steps", releaseLabel="emr-7.10.0", type="SPARK", **others
        )
        return str(answer["applicationId"])

    def _describe(self, run: str, described: Object) -> None:
        task = self.tasks[run]
        with self._lock:
            state = "RUNNING" if task.started else "SCHEDULED"
            if task.stopped:
                state = self.end_state(task, "SUCCESS")
            details = task.reason if task.stopped else self.waiting_for
            described.update(state=state, stateDetails=details)
            described.pop("endedAt", None)
            if task.started:
                described["startedAt"] = task.started
            if task.stopped:
                described["endedAt"] = task.stopped


def create_roles(moto: str) -> None:
    """Create the role of runs, unless it exists."""
    create_role(moto, "serverless", "emr-serverless")


def variables(moto: str, proxy: str) -> dict[str, str]:
    """Return the environment variables of a user of the proxy."""
    return {**KEYS, "AWS_ENDPOINT_URL": moto, "AWS_ENDPOINT_URL_EMR_SERVERLESS": proxy}


def options(application: str, **others: Any) -> Object:
    """Return options of a submission."""
    chosen = {"application": application, "role": ROLE, "staging": "s3://flights/serverless"}
    return {"region": REGION, **chosen, **others}
