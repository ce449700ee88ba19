"""AWS Batch for tests: moto's server, and a proxy that runs the containers as processes."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import servers
from moto_proxy import ACCOUNT, KEYS, REGION, MotoProxy, Object, Task, client

IMAGE = "registry.example/flights:1"
#: Reason of a container that the kernel has ended for its memory.
OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"


class BatchService(MotoProxy):
    """The proxy for AWS Batch."""

    log_group: ClassVar[str] = "/aws/batch/job"

    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        return urlsplit(handler.path).path.rpartition("/")[2]

    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        if operation == "terminatejob":
            self._terminate(content["jobId"], content["reason"])
            return 200, b"{}"
        status, text = self.forward(handler, body)
        if status == 200 and operation == "submitjob":
            self._submit(content, json.loads(text)["jobId"])
        if status == 200 and operation == "describejobs":
            jobs = [self._describe(job) for job in json.loads(text)["jobs"]]
            text = json.dumps({"jobs": [job for job in jobs if job is not None]}).encode()
        return status, text

    def _submit(self, request: Object, job_id: str) -> None:
        arn = request["jobDefinition"]
        [definition] = client("batch", self.moto).describe_job_definitions(jobDefinitions=[arn])[
            "jobDefinitions"
        ]
        size = request.get("arrayProperties", {}).get("size")
        ids = [job_id] if size is None else [f"{job_id}:{index}" for index in range(size)]
        container = definition["containerProperties"]
        [memory] = [
            int(each["value"])
            for each in container["resourceRequirements"]
            if each["type"] == "MEMORY"
        ]
        for index, each in enumerate(ids):
            environment = {
                **self.environment(),
                "AWS_BATCH_JOB_ID": each,
                "AWS_BATCH_JQ_NAME": str(request["jobQueue"]),
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
            folder = self.create_folder()
            task = Task(
                request["containerOverrides"]["command"],
                environment,
                f"{definition['jobDefinitionName']}/default/{folder.name}",
                folder,
                memory,
            )
            self.add_task(each, task)

    def _terminate(self, job_id: str, reason: str) -> None:
        with self._lock:
            for each in list(self.tasks):
                if each == job_id or each.startswith(f"{job_id}:"):
                    self.terminate(each, reason)

    def _describe(self, job: Object) -> Object | None:
        with self._lock:
            task = self.tasks.get(job["jobId"])
            if task is None:
                return job  # an array
            if task.is_gone:
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
            state = "RUNNING" if task.started else "RUNNABLE"
            if task.stopped:
                failed = task.process is None or task.process.returncode
                state = "FAILED" if failed else "SUCCEEDED"
            changed = {"status": state, "container": container, "statusReason": reason}
            for name, at in (("startedAt", task.started), ("stoppedAt", task.stopped)):
                job.pop(name, None)
                if at:
                    changed[name] = int(at * 1000)
            return {**job, **changed}


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
