"""Cloud Run for tests: the requests for jobs of one task, whose containers are processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from container_service import send_signal
from google_service import (
    NUMBER,
    PROJECT,
    REGION,
    Action,
    GoogleJob,
    GoogleService,
    LogLine,
    Object,
    Refused,
    Request,
    now,
    split_lines,
)

from hyperplane.platforms.gcp.cloud_run_sizes import round_to_cloud_run
from hyperplane.platforms.gcp.task_log import CLOUD_RUN_LOGS, LogSource
from hyperplane.platforms.task_size import TaskSize

#: Message of a task that exceeded its memory; its exit code is then 0.
OUT_OF_MEMORY = "The configured memory limit was reached."
INTERNAL = "An internal error occurred."
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(kw_only=True)
class Job(GoogleJob):
    """A job with its execution and its task."""

    description: Object
    execution: Object
    task: Object = field(default_factory=dict)
    read: int = 0

    @property
    def log_key(self) -> str:
        return str(self.execution["name"]).rpartition("/")[2]

    @property
    def has_ended(self) -> bool:
        return "completionTime" in self.execution


class CloudRunService(GoogleService[Job]):
    """The server of jobs; ``jobs`` has those that were not deleted."""

    source: ClassVar[LogSource] = CLOUD_RUN_LOGS

    def __init__(self, folder: Path) -> None:
        self.deleted: dict[str, Job] = {}
        #: Names of jobs that the tests leave on purpose.
        self.foreign: list[str] = []
        #: Secrets of the Secret Manager.
        self.secrets = {"flights-database": "sesame-sesame"}
        super().__init__(folder)

    def _all(self) -> dict[str, Job]:
        return {**self.deleted, **self.jobs}

    def _build_entry(self, job: str, line: LogLine) -> Object:
        labels = {"job_name": job.rpartition("-")[0], "location": REGION, "project_id": PROJECT}
        return {
            "logName": f"projects/{PROJECT}/logs/run.googleapis.com%2Fstdout",
            "labels": {"run.googleapis.com/execution_name": job},
            "resource": {"type": "cloud_run_job", "labels": labels},
        }

    # Requests

    def _operation(self, request: Request) -> str:
        is_check = request.query.get("validateOnly") == ["true"]
        return "jobs.validate" if is_check else request.method.short

    def _shown(self, request: Request) -> Any:
        if "jobId" in request.query:
            return {"jobId": request.query["jobId"][0], **request.body}
        return request.body

    def _actions(self) -> dict[str, Action]:
        return {
            "jobs.create": self._create,
            "jobs.get": lambda each: self._find_job(each.values["name"]).description,
            "jobs.list": self._list,
            "jobs.delete": self._delete,
            "executions.get": lambda each: self._find_execution(each.values["name"]).execution,
            "executions.cancel": self._cancel,
            "tasks.list": self._list_tasks,
        }

    def _create(self, request: Request) -> Object:
        self._check_parent(request)
        [name], body = request.query["jobId"], request.body
        full_name = f"projects/{PROJECT}/locations/{REGION}/jobs/{name}"
        token = body.get("startExecutionToken", "")
        if not _NAME.fullmatch(name) or len(name) + len(token) >= 63:
            raise Refused(400, "only lowercase, digits and hyphens; less than 64 characters")
        if full_name in self.jobs:
            raise Refused(409, f"Resource '{name}' already exists.", "ALREADY_EXISTS")
        self._check_template(body["template"]["template"])
        operation = f"projects/{PROJECT}/locations/{REGION}/operations/{uuid.uuid4()}"
        if self._operation(request) == "jobs.validate":
            return {"name": operation, "done": True}
        folder = self.folder / name
        folder.mkdir()
        execution: Object = {
            "name": f"{full_name}/executions/{name}-{token}",
            "job": full_name,
            "taskCount": 1,
            "createTime": now(),
            "conditions": [{"type": "Completed", "state": "CONDITION_RECONCILING"}],
        }
        described = {**body, "name": full_name, "createTime": now(), "executionCount": 1}
        self.jobs[full_name] = Job(description=described, execution=execution, folder=folder)
        # Numbers of projects are in the answers.
        number = full_name.replace(PROJECT, NUMBER)
        kind = "type.googleapis.com/google.cloud.run.v2.Job"
        return {"name": operation, "metadata": {"@type": kind, "name": number}}

    def _check_template(self, task: Object) -> None:
        """Refuse what the documentation of Cloud Run does not allow."""
        [container] = task["containers"]
        limits = container["resources"]["limits"]
        size = TaskSize(
            float(limits["cpu"]), int(limits["memory"].removesuffix("Mi")),
            int(limits.get("nvidia.com/gpu", 0)),
        )  # fmt: skip
        if round_to_cloud_run(size) != size:
            raise Refused(400, "Invalid value specified for cpu or memory.")
        if bool(size.gpus) != ("nodeSelector" in task):
            raise Refused(400, "nodeSelector is required with a GPU.")
        if int(task["timeout"].removesuffix("s")) > (3600 if size.gpus else 604_800):
            raise Refused(400, "timeout: must be at most 168 hours.")
        if "latest" not in container["image"] and not container["image"].endswith(":1"):
            raise Refused(400, f"Image '{container['image']}' not found.")
        for variable in container["env"]:
            reference = variable.get("valueSource", {}).get("secretKeyRef", {})
            if reference and reference["secret"] not in self.secrets:
                raise Refused(400, f"Secret {reference['secret']} was not found.")

    def _find_job(self, name: str) -> Job:
        if name not in self.jobs:
            raise Refused(404, f"Resource '{name}' was not found.")
        return self.jobs[name]

    def _find_execution(self, name: str) -> Job:
        job = self._find_job(name.partition("/executions/")[0])
        if job.execution.get("name") != name:
            raise Refused(404, f"Resource '{name}' was not found.")
        return job

    def _list(self, request: Request) -> Object:
        self._check_parent(request)
        return {"jobs": [job.description for job in self.jobs.values()]}

    def _delete(self, request: Request) -> Object:
        job = self._find_job(request.values["name"])
        self.deleted[request.values["name"]] = self.jobs.pop(request.values["name"])
        if job.process is not None and not job.has_ended:
            send_signal(job.process, signal.SIGKILL)
        return {"name": f"projects/{PROJECT}/locations/{REGION}/operations/{uuid.uuid4()}"}

    def _cancel(self, request: Request) -> Object:
        job = self._find_execution(request.values["name"])
        if job.has_ended:
            raise Refused(400, "The execution has completed.")
        job.cancelled = True
        if job.process is None:
            self._end(job)
        job.request_end(self.stop_seconds)
        return {"name": f"projects/{PROJECT}/locations/{REGION}/operations/{uuid.uuid4()}"}

    def _list_tasks(self, request: Request) -> Object:
        return {"tasks": [self._find_execution(request.values["parent"]).task]}

    # Containers

    def _advance(self, job: Job) -> None:
        if job.process is None:
            if not self.waiting_for:
                self._start(job)
            return
        if time.monotonic() > job.killed_at:
            send_signal(job.process, signal.SIGKILL)
        code = job.process.poll()
        with (job.folder / "log").open("rb") as log:
            log.seek(job.read)
            size, lines = split_lines(log.read(), whole=code is not None)
        job.read += size
        job.lines += [LogLine(now(), "", line) for line in lines]
        if code is not None:
            self._end(job)

    def _end(self, job: Job) -> None:
        """Let an execution end with the code of its container, if it has one."""
        code = job.process.returncode if job.process else None
        condition: Object = {"type": "Completed", "state": "CONDITION_FAILED"}
        result: Object = {}
        count = "failedCount"
        if job.cancelled:
            condition |= {"executionReason": "CANCELLED", "message": "Cancelled by the user."}
            count = "cancelledCount"
        elif job.message == OUT_OF_MEMORY:
            result = {"exitCode": 0, "status": {"code": 2, "message": job.message}}
            condition["message"] = f"Task {job.log_key}-task0 failed with message: {job.message}"
        elif job.message:
            condition |= {"reason": "INTERNAL", "message": job.message}
        elif code == 0:
            condition["state"], count = "CONDITION_SUCCEEDED", "succeededCount"
        else:
            condition |= {"executionReason": "NON_ZERO_EXIT_CODE", "message": "Task failed."}
            result = {"status": {"code": 2, "message": "The container exited with an error."}}
            result |= {"termSignal": -code} if code and code < 0 else {"exitCode": code}
        job.task = {"name": f"{job.execution['name']}/tasks/{job.log_key}-task0"}
        job.task["lastAttemptResult"] = result
        job.execution.pop("runningCount", None)
        job.execution |= {"conditions": [condition], "completionTime": now(), count: 1}

    def _start(self, job: Job) -> None:
        template = job.description["template"]["template"]
        [container] = template["containers"]
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CLOUD_RUN_JOB": job.log_key.rpartition("-")[0],
            "CLOUD_RUN_EXECUTION": job.log_key,
            "CLOUD_RUN_TASK_INDEX": "0",
            "CLOUD_RUN_TASK_COUNT": "1",
            "CLOUD_RUN_TASK_ATTEMPT": "0",
        }
        for each in container["env"]:
            reference = each.get("valueSource", {}).get("secretKeyRef")
            text = self.secrets[reference["secret"]] if reference else each["value"]
            environment[each["name"]] = text
        # The bucket is mounted there.
        [volume], [mount] = template["volumes"], container["volumeMounts"]
        assert volume["name"] == mount["name"]
        folder, *arguments = container["args"]
        assert folder == mount["mountPath"]
        words = [str(self.buckets / volume["gcs"]["bucket"]), *arguments]
        limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
        with (job.folder / "log").open("wb") as log:
            job.process = subprocess.Popen(
                [*container["command"], *words],
                env=environment,
                cwd=job.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
        job.execution |= {"startTime": now(), "runningCount": 1}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[CloudRunService]:
    """Run a server."""
    service = CloudRunService(folder)
    try:
        yield service
    finally:
        service.close()
