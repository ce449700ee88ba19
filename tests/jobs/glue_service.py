"""AWS Glue for tests: moto's server, and a proxy that runs the scripts of jobs as processes.

A script is executed by the Python of the tests. Like Glue, the proxy passes the arguments of the
job and its own, has no exit codes, and refuses a second run of a job at the same time.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import driver_service
from driver_service import DriverService, read_object
from moto_proxy import ACCOUNT, KEYS, REGION, Object, Task, client

from hyperplane.platforms.aws.glue_workers import WORKERS

ROLE = f"arn:aws:iam::{ACCOUNT}:role/glue"
#: Message of a run that the kernel has ended for its memory.
OUT_OF_MEMORY = "Command Failed due to Out of Memory"
#: Arguments that Glue passes to the scripts of all jobs.
_OWN_ARGUMENTS = ["--job-bookmark-option", "job-bookmark-disable", "--JOB_NAME", "x"]


class GlueService(DriverService):
    """The proxy for AWS Glue; the id of a task is that of a run."""

    log_group: ClassVar[str] = "/aws-glue/python-jobs/output"

    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        return str(handler.headers["X-Amz-Target"]).rpartition(".")[2]

    def jobs(self) -> list[str]:
        """Return the names of all jobs."""
        return [job["Name"] for job in client("glue", self.moto).get_jobs()["Jobs"]]

    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        if operation == "BatchStopJobRun":  # which moto does not have
            return 200, json.dumps(self._stop(content)).encode()
        if operation == "CreateJob" and content["Name"] in self.jobs():
            return _refuse("AlreadyExistsException", "the job exists")
        if operation == "StartJobRun" and self._is_active(content["JobName"]):
            return _refuse("ConcurrentRunsExceededException", "Concurrent runs exceeded")
        status, text = self.forward(handler, body)
        if status == 200 and operation == "StartJobRun":
            self._run(content["JobName"], json.loads(text)["JobRunId"])
        if status == 200 and operation == "GetJobRun":
            run = json.loads(text)["JobRun"]
            if self.tasks[run["Id"]].is_gone:
                return _refuse("EntityNotFoundException", "no such run")
            text = json.dumps({"JobRun": self._describe(run)}).encode()
        return status, text

    def _is_active(self, name: str) -> bool:
        with self._lock:
            return any(
                task.environment.get("JOB") == name and not task.stopped
                for task in self.tasks.values()
            )

    def _run(self, name: str, run_id: str) -> None:
        job = client("glue", self.moto).get_job(JobName=name)["Job"]
        folder = self.create_folder()
        script = folder / "script.py"
        script.write_bytes(read_object(self.moto, job["Command"]["ScriptLocation"]))
        pairs = [word for pair in job["DefaultArguments"].items() for word in pair]
        dpus = job.get("MaxCapacity") or job["WorkerType"]
        [memory] = [
            worker.memory
            for worker in WORKERS[job["Command"]["Name"]]
            if dpus in (worker.dpus, worker.name)
        ]
        environment = {**self.environment(), "JOB": name}
        words = [sys.executable, str(script), *_OWN_ARGUMENTS, *pairs]
        self.add_task(run_id, Task(words, environment, run_id, folder, memory))

    def _stop(self, content: Object) -> Object:
        stopped, errors = [], []
        for run_id in content["JobRunIds"]:
            each = {"JobName": content["JobName"], "JobRunId": run_id}
            with self._lock:
                task = self.tasks.get(run_id)
                if task is None or task.is_gone:
                    detail = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "no run"}
                    errors.append({**each, "ErrorDetail": detail})
                    continue
                self.terminate(run_id, "stopped")
            stopped.append(each)
        return {"SuccessfulSubmissions": stopped, "Errors": errors}

    def _describe(self, run: Object) -> Object:
        task = self.tasks[run["Id"]]
        with self._lock:
            state, message = "RUNNING" if task.started else "WAITING", ""
            if task.killed_at != float("inf"):
                state = "STOPPING"
            if task.stopped:
                code = None if task.process is None else task.process.returncode
                state = "SUCCEEDED" if code == 0 else "FAILED"
                if task.reason == "stopped":
                    state = "STOPPED"
                message = "" if state in ("SUCCEEDED", "STOPPED") else task.reason
            changed: Object = {
                "JobRunState": state,
                "LogGroupName": "/aws-glue/python-jobs",
                "StateDetail": "" if task.started else self.waiting_for,
                "ErrorMessage": message,
                "StartedOn": task.started or run["StartedOn"],
            }
            run.pop("CompletedOn", None)
            if task.stopped:
                changed["CompletedOn"] = task.stopped
            return {**run, **changed}


def _refuse(code: str, message: str) -> tuple[int, bytes]:
    return 400, json.dumps({"message": message, "__type": code}).encode()


def create_role(moto: str) -> None:
    """Create the role of jobs, unless it exists."""
    driver_service.create_role(moto, "glue", "glue")


def variables(moto: str, proxy: str) -> dict[str, str]:
    """Return the environment variables of a user of the proxy."""
    return {**KEYS, "AWS_ENDPOINT_URL": moto, "AWS_ENDPOINT_URL_GLUE": proxy}


def options(**others: Any) -> Object:
    """Return options of a submission."""
    return {"region": REGION, "role": ROLE, "staging": "s3://flights/glue", **others}
