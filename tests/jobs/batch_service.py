"""AWS Batch for tests: moto's server, and a proxy that runs the containers as processes.

moto validates the requests and keeps jobs, definitions, logs, objects and secrets, but runs no
container without Docker. The proxy passes all requests for Batch on, runs the command of each
submitted job as a process of this machine with the environment that Batch gives it, and answers
with the states of that process. It can also lose answers, refuse requests and forget jobs.
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
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import servers
from container_service import ContainerService, drop, send, send_signal

Object = dict[str, Any]
REGION, ACCOUNT = "eu-west-1", "123456789012"
IMAGE = "registry.example/flights:1"
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "sesame-sesame"}
#: Reason of a container that the kernel has ended for its memory.
OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"


@dataclass
class Task:
    """A container: a process of this machine, or one that does not run yet."""

    definition: Object
    environment: dict[str, str]
    stream: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    stopped: float = 0.0
    reason: str = ""
    container_reason: str = ""
    state: str = "RUNNABLE"
    sent: int = 0
    killed_at: float = field(default=float("inf"))

    @property
    def log(self) -> Path:
        return self.folder / "log"


class BatchService(ContainerService):
    """The proxy, and what it shall do with requests; ``url`` is its address."""

    def __init__(self, moto: str, folder: Path) -> None:
        self.moto, self.folder = moto, folder
        self.tasks: dict[str, Task] = {}
        super().__init__()

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
        """Make a job vanish: its container is killed, and Batch does not have it."""
        with self._lock:  # in one step: of an unknown job the answer is that of moto
            task = self.tasks[job_id]
            self.tasks[job_id] = Task({}, {}, "", self.folder, state="GONE", stopped=1.0)
        if task.process is not None:
            os.killpg(task.process.pid, signal.SIGKILL)
            task.process.wait()

    def interrupt(self, job_id: str, reason: str, container_reason: str = "") -> None:
        """End a container as Batch does for a reason outside of it."""
        with self._lock:
            task = self.tasks[job_id]
            task.reason, task.container_reason = reason, container_reason
            if task.process is not None:
                os.killpg(task.process.pid, signal.SIGKILL)

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        operation = urlsplit(handler.path).path.rpartition("/")[2]
        content = json.loads(body or b"{}")
        with self._lock:
            self.requests.append((operation, content))
            faults = self.faults.get(operation, [])
            fault = faults.pop(0) if faults else ""
        if fault.startswith("refuse "):
            _, status, code = fault.split()
            text = json.dumps({"message": "injected", "__type": code, "code": code}).encode()
            send(handler, int(status), text, x_amzn_ErrorType=code)
            return
        if operation == "terminatejob":
            self._terminate(content["jobId"], content["reason"])
            status, text = 200, b"{}"
        else:
            status, text = self._forward(handler, body)
        if status == 200 and operation == "submitjob":
            self._submit(content, json.loads(text)["jobId"])
        if status == 200 and operation == "describejobs":
            jobs = [self._describe(job) for job in json.loads(text)["jobs"]]
            text = json.dumps({"jobs": [job for job in jobs if job is not None]}).encode()
        if fault == "lose":
            drop(handler)
            return
        if fault.startswith("answer "):  # after the request was carried out
            send(handler, int(fault.split()[1]), b'{"message": "injected"}')
            return
        send(handler, status, text)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(str(urlsplit(self.moto).netloc), timeout=60)
        headers = {name: text for name, text in handler.headers.items() if name != "Connection"}
        try:
            connection.request(str(handler.command), handler.path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _submit(self, request: Object, job_id: str) -> None:
        arn = request["jobDefinition"]
        [definition] = client("batch", self.moto).describe_job_definitions(jobDefinitions=[arn])[
            "jobDefinitions"
        ]
        size = request.get("arrayProperties", {}).get("size")
        ids = [job_id] if size is None else [f"{job_id}:{index}" for index in range(size)]
        container = definition["containerProperties"]
        for index, each in enumerate(ids):
            environment = {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "AWS_ENDPOINT_URL": self.moto,
                "AWS_BATCH_JOB_ID": each,
                "AWS_BATCH_JQ_NAME": str(request["jobQueue"]),
                **KEYS,
            }
            if size is not None:
                environment["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
                environment["AWS_BATCH_JOB_ARRAY_SIZE"] = str(size)
            pairs = [
                *container.get("environment", []),
                *request["containerOverrides"].get("environment", []),
            ]
            environment |= {pair["name"]: pair["value"] for pair in pairs}
            secrets = client("secretsmanager", self.moto)
            for secret in container.get("secrets", []):
                value = secrets.get_secret_value(SecretId=secret["valueFrom"])["SecretString"]
                environment[secret["name"]] = value
            folder = self.folder / uuid.uuid4().hex
            folder.mkdir()
            task = Task(
                {**container, "command": request["containerOverrides"]["command"]},
                environment,
                f"{definition['jobDefinitionName']}/default/{folder.name}",
                folder,
            )
            with self._lock:
                self.tasks[each] = task

    def _terminate(self, job_id: str, reason: str) -> None:
        with self._lock:
            children = [id_ for id_ in self.tasks if id_ == job_id or id_.startswith(f"{job_id}:")]
            for task in map(self.tasks.__getitem__, children):
                if task.stopped:
                    continue
                task.reason = task.reason or reason
                if task.process is None:
                    task.state, task.stopped = "FAILED", time.time()
                elif task.killed_at == float("inf"):
                    task.killed_at = time.monotonic() + self.stop_seconds
                    send_signal(task.process, signal.SIGTERM)

    def _describe(self, job: Object) -> Object | None:
        with self._lock:
            task = self.tasks.get(job["jobId"])
            if task is None:
                return job  # an array
            if task.state == "GONE":
                return None
            container = {name: job["container"][name] for name in ("command", "environment")}
            if task.started:
                container["logStreamName"] = task.stream
            if task.stopped and task.process is not None:
                code = task.process.returncode
                container["exitCode"] = code if code >= 0 else 128 - code
                if task.container_reason:
                    container["reason"] = task.container_reason
            reason = task.reason if task.stopped else self.waiting_for
            changed = {"status": task.state, "container": container, "statusReason": reason}
            for name, at in (("startedAt", task.started), ("stoppedAt", task.stopped)):
                job.pop(name, None)
                if at:
                    changed[name] = int(at * 1000)
            return {**job, **changed}

    def _drive(self) -> None:
        """Start, observe and end containers, and copy what they print to the logs of moto."""
        logs = client("logs", self.moto)
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_group(logGroupName="/aws/batch/job")
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
                _send_log(task, logs, whole=code is not None)
                if code is not None:
                    with self._lock:
                        if code:
                            task.reason = task.reason or "Essential container in task exited"
                        task.state = "FAILED" if code else "SUCCEEDED"
                        task.stopped = time.time()

    def _start(self, task: Task, logs: Any) -> None:
        logs.create_log_stream(logGroupName="/aws/batch/job", logStreamName=task.stream)
        [memory] = [
            int(each["value"])
            for each in task.definition["resourceRequirements"]
            if each["type"] == "MEMORY"
        ]
        limit = memory << 20
        with task.log.open("wb") as log, self._lock:
            if task.stopped:
                return
            task.process = subprocess.Popen(
                task.definition["command"],
                env=task.environment,
                cwd=task.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
            task.state, task.started = "RUNNING", time.time()


def _send_log(task: Task, logs: Any, whole: bool) -> None:
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
    # Batch keeps no empty lines; moto refuses them.
    events = [{"timestamp": now, "message": line} for line in lines if line]
    if events:
        logs.put_log_events(
            logGroupName="/aws/batch/job", logStreamName=task.stream, logEvents=events
        )


def client(service: str, url: str) -> Any:
    """Return a client of moto's server."""
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[str]:
    """Run moto's server with a role, a bucket, and queues of Fargate and of EC2; yield its URL."""
    with servers.s3(folder) as url:
        settings = json.dumps({"batch": {"use_docker": False}}).encode()
        request = urllib.request.Request(f"{url}/moto-api/config", settings, method="POST")
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()
        client("s3", url).create_bucket(
            Bucket="flights", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        iam, ec2, batch = (client(name, url) for name in ("iam", "ec2", "batch"))
        role = iam.create_role(RoleName="steps", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        profile = iam.create_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]["Arn"]
        network = {
            "subnets": [ec2.describe_subnets()["Subnets"][0]["SubnetId"]],
            "securityGroupIds": [ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]],
        }
        kinds = {
            "fargate": {"type": "FARGATE", "maxvCpus": 16},
            "ec2": {
                "type": "EC2", "minvCpus": 0, "maxvCpus": 64, "desiredvCpus": 0,
                "instanceTypes": ["m5.xlarge"], "instanceRole": profile,
            },
        }  # fmt: skip
        for name, resources in kinds.items():
            environment = batch.create_compute_environment(
                computeEnvironmentName=f"{name}-nodes", type="MANAGED", state="ENABLED",
                serviceRole=role, computeResources={**resources, **network},
            )  # fmt: skip
            batch.create_job_queue(
                jobQueueName=f"{name}-jobs", state="ENABLED", priority=1,
                computeEnvironmentOrder=[
                    {"order": 1, "computeEnvironment": environment["computeEnvironmentArn"]}
                ],
            )  # fmt: skip
        yield url


def variables(moto: str, proxy: str) -> dict[str, str]:
    """Return the environment variables of a user of the proxy."""
    return {**KEYS, "AWS_ENDPOINT_URL": moto, "AWS_ENDPOINT_URL_BATCH": proxy}


def options(**others: Any) -> Object:
    """Return options of a submission to the queue of Fargate."""
    role = f"arn:aws:iam::{ACCOUNT}:role/steps"
    return {
        "region": REGION,
        "queue": "fargate-jobs",
        "image": IMAGE,
        "staging": "s3://flights/jobs",
        "platform": "fargate",
        "job_role": role,
        "execution_role": role,
        **others,
    }
