"""Amazon EMR for tests: moto's server, and a proxy that runs the programs of steps as processes.

moto keeps clusters and steps, but no step ever runs, and none can be cancelled. The proxy runs the
program that the arguments of spark-submit name with the Python of the tests. As on EMR, a step has
no exit code, a cluster ends with its only step, and a cancelled step is killed.
"""

from __future__ import annotations

import contextlib
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from driver_service import CANCELLED, DriverService, create_role
from moto_proxy import KEYS, REGION, Object, client

#: Names of the default roles of EMR.
SERVICE_ROLE, PROFILE = "EMR_DefaultRole", "EMR_EC2_DefaultRole"


class EmrService(DriverService):
    """The proxy for EMR; the id of a task is a cluster, or ``CLUSTER/STEP`` of a shared one."""

    def operation(self, handler: BaseHTTPRequestHandler) -> str:
        return str(handler.headers["X-Amz-Target"]).rpartition(".")[2]

    def carry_out(
        self, operation: str, content: Object, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes]:
        if operation == "CancelSteps":  # which moto does not have
            return 200, json.dumps(self._cancel(content)).encode()
        cluster = content.get("ClusterId") or (content.get("JobFlowIds") or [""])[0]
        task = self.tasks.get(cluster)
        if task is not None and task.is_gone:
            return _refuse(f"Cluster id '{cluster}' is not valid.")
        status, text = self.forward(handler, body)
        if status != 200:
            is_unknown = operation == "DescribeCluster" and status == 500
            return (
                _refuse(f"Cluster id '{cluster}' is not valid.") if is_unknown else (status, text)
            )
        answer = json.loads(text or b"{}")
        if operation == "RunJobFlow" and content.get("Steps"):
            self._run(answer["JobFlowId"], content["Steps"][0])
        elif operation == "AddJobFlowSteps":
            [step_id] = answer["StepIds"]
            self._run(f"{content['JobFlowId']}/{step_id}", content["Steps"][0])
        elif operation == "TerminateJobFlows":
            self.kill(cluster, CANCELLED)
        elif operation == "ListSteps":
            steps = [self._describe_step(cluster, step) for step in answer["Steps"]]
            answer["Steps"] = [step for step in steps if step is not None]
        elif operation == "DescribeCluster":
            self._describe_cluster(answer["Cluster"])
        return status, json.dumps(answer).encode()

    def start_cluster(self) -> str:
        """Start a cluster of a user, which waits for steps; return its id."""
        request = {
            "Name": "shared",
            "LogUri": "s3n://flights/cluster-logs/",
            "ReleaseLabel": "emr-7.10.0",
            "ServiceRole": SERVICE_ROLE,
            "JobFlowRole": PROFILE,
            "Instances": {
                "KeepJobFlowAliveWhenNoSteps": True,
                "InstanceCount": 1,
                "MasterInstanceType": "m5.xlarge",
            },
        }
        return str(client("emr", self.moto).run_job_flow(**request)["JobFlowId"])

    def _run(self, run: str, step: Object) -> None:
        words = step["HadoopJarStep"]["Args"]
        assert step["HadoopJarStep"]["Jar"] == "command-runner.jar"
        assert words[0] == "spark-submit"
        index = next(index for index, word in enumerate(words) if word.startswith("s3://"))
        self.start_driver(run, words[index], words[index + 1 :])

    def _cancel(self, content: Object) -> Object:
        assert content["StepCancellationOption"] == "TERMINATE_PROCESS"
        infos = []
        for step_id in content["StepIds"]:
            task = self.tasks.get(f"{content['ClusterId']}/{step_id}")
            info = {"StepId": step_id, "Status": "SUBMITTED"}
            if task is None or task.is_gone or task.stopped:
                info |= {"Status": "FAILED", "Reason": "the step cannot be cancelled"}
            else:
                self.kill(f"{content['ClusterId']}/{step_id}", CANCELLED)
            infos.append(info)
        return {"CancelStepsInfoList": infos}

    def _describe_step(self, cluster: str, step: Object) -> Object | None:
        task = self.tasks.get(cluster) or self.tasks.get(f"{cluster}/{step['Id']}")
        if task is None:
            return step
        if task.is_gone:
            return None
        with self._lock:
            state = "RUNNING" if task.started else "PENDING"
            if task.stopped:
                state = self.end_state(task, "COMPLETED")
            times = {
                "CreationDateTime": step["Status"]["Timeline"]["CreationDateTime"],
                "StartDateTime": task.started or None,
                "EndDateTime": task.stopped or None,
            }
            status: Object = {"State": state}
            if state == "FAILED":
                status["FailureDetails"] = {"Message": task.reason}
        status["Timeline"] = {name: value for name, value in times.items() if value}
        return {**step, "Status": status}

    def _describe_cluster(self, cluster: Object) -> None:
        task = self.tasks.get(cluster["Id"])
        if task is None:
            if cluster["Status"]["State"] != "TERMINATED":
                cluster["Status"]["State"] = "WAITING"
            return
        with self._lock:
            state = "RUNNING" if task.started else "STARTING"
            change = {}
            if not task.started:
                change = {"Message": self.waiting_for}
            if task.stopped:
                state, change = "TERMINATED", {"Code": "USER_REQUEST", "Message": "it has ended"}
                if task.reason.startswith("{"):
                    change = json.loads(task.reason)
        cluster["Status"] = {**cluster["Status"], "State": state, "StateChangeReason": change}


def _refuse(message: str) -> tuple[int, bytes]:
    text = {"message": message, "__type": "InvalidRequestException"}
    return 400, json.dumps(text).encode()


def create_roles(moto: str) -> None:
    """Create the default roles of EMR, unless they exist."""
    create_role(moto, SERVICE_ROLE, "elasticmapreduce")
    create_role(moto, PROFILE, "ec2")
    iam = client("iam", moto)
    with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_instance_profile(InstanceProfileName=PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=PROFILE)


def variables(moto: str, proxy: str) -> dict[str, str]:
    """Return the environment variables of a user of the proxy."""
    return {**KEYS, "AWS_ENDPOINT_URL": moto, "AWS_ENDPOINT_URL_EMR": proxy}


def options(**others: Any) -> Object:
    """Return options of a submission."""
    return {"region": REGION, "staging": "s3://flights/emr", **others}
