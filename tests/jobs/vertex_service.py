"""Vertex AI for tests: the requests for custom jobs, whose containers are processes.

A tuning job runs a custom job for each combination of the lowest and highest values, or of the
listed ones, of its parameters, until it has as many trials as it may have.
"""

from __future__ import annotations

import contextlib
import itertools
import json
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
    ACCOUNT,
    IMAGE,
    NUMBER,
    PROJECT,
    REGION,
    REGISTRY,
    Action,
    GoogleJob,
    GoogleService,
    LogLine,
    Object,
    Refused,
    Request,
    now,
    options,
    split_lines,
    variables,
)

from hyperplane.platforms.gcp.machine_types import find_machine
from hyperplane.platforms.gcp.task_log import VERTEX_LOGS, LogSource

__all__ = [
    "ACCOUNT", "IMAGE", "PROJECT", "REGION", "REGISTRY", "VertexService", "options", "variables"
]  # fmt: skip
OUT_OF_MEMORY = "Replicas low on memory: workerpool0. Specify a machine with larger memory."
_ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


@dataclass(kw_only=True)
class Job(GoogleJob):
    """A custom job, and its containers: processes of this machine, or none yet.

    ``process`` is that of the first machine, ``others`` those of the other ones, by their names.
    """

    description: Object
    others: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    #: Arguments and number of a trial of a tuning job.
    more: list[str] = field(default_factory=list)
    trial: str = ""

    @property
    def log_key(self) -> str:
        return str(self.description["name"]).rpartition("/")[2]

    @property
    def has_ended(self) -> bool:
        return self.description["state"] in _ENDED


@dataclass
class Tuning:
    """A tuning job, and the values of its trials that have not been started."""

    description: Object
    waiting: list[Object]
    trials: dict[str, Job] = field(default_factory=dict)
    cancelled: bool = False


class VertexService(GoogleService[Job]):
    """The server of custom jobs and tuning jobs."""

    source: ClassVar[LogSource] = VERTEX_LOGS

    def __init__(self, folder: Path) -> None:
        self.tunings: dict[str, Tuning] = {}
        super().__init__(folder)

    def _processes(self) -> Iterator[subprocess.Popen[bytes] | None]:
        for job in self.jobs.values():
            yield from (job.process, *job.others.values())

    def _build_entry(self, job: str, line: LogLine) -> Object:
        labels = {"job_id": job, "task_name": line.replica, "project_id": PROJECT}
        return {
            "logName": f"projects/{PROJECT}/logs/{line.replica}",
            "resource": {"type": "ml_job", "labels": labels},
        }

    def _actions(self) -> dict[str, Action]:
        return {
            "customJobs.create": self._create,
            "customJobs.get": lambda each: self._find(each).description,
            "customJobs.list": self._list,
            "customJobs.cancel": self._cancel,
            "hyperparameterTuningJobs.create": self._create_tuning,
            "hyperparameterTuningJobs.get": lambda each: self._find_tuning(each).description,
            "hyperparameterTuningJobs.list": self._list_tunings,
            "hyperparameterTuningJobs.cancel": self._cancel_tuning,
        }

    def _create(self, request: Request) -> Object:
        self._check_parent(request)
        return self._add_job(request.body).description

    def _add_job(self, body: Object) -> Job:
        pools = body["jobSpec"]["workerPoolSpecs"]
        if pools[0].get("replicaCount") != "1":
            raise Refused(400, "the first worker pool must have one replica")
        for pool in filter(None, pools):
            if find_machine(pool["machineSpec"]["machineType"]) is None:
                raise Refused(400, "the machine type is not supported")
        number = str(uuid.uuid4().int % 10**19)
        name = f"projects/{NUMBER}/locations/{REGION}/customJobs/{number}"
        folder = self.folder / number
        folder.mkdir()
        described = {
            **body, "name": name, "state": "JOB_STATE_PENDING", "createTime": now()
        }  # fmt: skip
        self.jobs[name] = Job(description=described, folder=folder)
        return self.jobs[name]

    def _create_tuning(self, request: Request) -> Object:
        self._check_parent(request)
        study = request.body["studySpec"]
        number = str(uuid.uuid4().int % 10**19)
        name = f"projects/{NUMBER}/locations/{REGION}/hyperparameterTuningJobs/{number}"
        described = {
            **request.body, "name": name, "state": "JOB_STATE_PENDING", "createTime": now()
        }  # fmt: skip
        names = [parameter["parameterId"] for parameter in study["parameters"]]
        grid = itertools.product(*map(_grid_values, study["parameters"]))
        waiting = [dict(zip(names, values, strict=True)) for values in grid]
        self.tunings[name] = Tuning(described, waiting[: request.body["maxTrialCount"]])
        return described

    def _find_tuning(self, request: Request) -> Tuning:
        if request.values["name"] not in self.tunings:
            raise Refused(404, "The HyperparameterTuningJob does not exist.")
        return self.tunings[request.values["name"]]

    def _list_tunings(self, request: Request) -> Object:
        self._check_parent(request)
        [clause] = request.query["filter"]
        found = [each.description for each in self.tunings.values()]
        return {"hyperparameterTuningJobs": [job for job in found if _matches(job, clause)]}

    def _cancel_tuning(self, request: Request) -> Object:
        tuning = self._find_tuning(request)
        tuning.cancelled, tuning.waiting = True, []
        for job in tuning.trials.values():
            if not job.has_ended:
                job.cancelled = True
                job.request_end(self.stop_seconds)
        return {}

    def _drive(self) -> None:
        """Start, observe and end containers, and trials."""
        while not self._closing.wait(0.05):
            with self._lock:
                for job in [*self.jobs.values()]:
                    if not job.has_ended:
                        self._advance(job)
                for tuning in self.tunings.values():
                    if tuning.description["state"] not in _ENDED:
                        self._advance_tuning(tuning)

    def _advance_tuning(self, tuning: Tuning) -> None:
        described = tuning.description
        active = sum(not job.has_ended for job in tuning.trials.values())
        while tuning.waiting and active < described["parallelTrialCount"] and not self.waiting_for:
            values, number = tuning.waiting.pop(0), str(len(tuning.trials) + 1)
            job = self._add_job({
                "displayName": f"{described['displayName']}-trial-{number}",
                "jobSpec": described["trialJobSpec"],
            })  # fmt: skip
            job.trial, job.more = number, [f"--{name}={value}" for name, value in values.items()]
            tuning.trials[number] = job
            described.setdefault("trials", []).append({
                "id": number, "state": "ACTIVE", "customJob": job.description["name"],
                "parameters": [
                    {"parameterId": name, "value": value} for name, value in values.items()
                ],
            })  # fmt: skip
            described |= {"state": "JOB_STATE_RUNNING"}
            described.setdefault("startTime", now())
            active += 1
        for trial, job in zip(described.get("trials", ()), tuning.trials.values(), strict=True):
            if job.has_ended and trial["state"] == "ACTIVE":
                state = job.description["state"].removeprefix("JOB_STATE_")
                trial["state"] = {"FAILED": "INFEASIBLE", "CANCELLED": "STOPPING"}.get(state, state)
                if metrics := _read_metrics(job.folder / "output.metrics"):
                    trial["finalMeasurement"] = {"metrics": metrics}
        if not tuning.waiting and not active:
            failed = sum(trial["state"] == "INFEASIBLE" for trial in described.get("trials", ()))
            state = "JOB_STATE_SUCCEEDED"
            if tuning.cancelled:
                state = "JOB_STATE_CANCELLED"
            elif failed > described.get("maxFailedTrialCount", 0):
                state = "JOB_STATE_FAILED"
                described["error"] = {"code": 3, "message": f"{failed} trials have failed."}
            described |= {"state": state, "endTime": now()}

    def _find(self, request: Request) -> Job:
        if request.values["name"] not in self.jobs:
            raise Refused(404, "The CustomJob does not exist.")
        return self.jobs[request.values["name"]]

    def _list(self, request: Request) -> Object:
        self._check_parent(request)
        jobs = [job.description for job in self.jobs.values()]
        for clause in request.query.get("filter", [""])[0].split(" AND "):
            jobs = [job for job in jobs if _matches(job, clause)]
        start = int(request.query.get("pageToken", ["0"])[0])
        end = start + int(request.query.get("pageSize", ["100"])[0])
        page: Object = {"customJobs": jobs[start:end]} if jobs[start:end] else {}
        return {**page, "nextPageToken": str(end)} if jobs[end:] else page

    def _cancel(self, request: Request) -> Object:
        job = self._find(request)
        if job.has_ended:
            raise Refused(400, "CustomJob has ended.")
        job.cancelled = True
        if job.process is None:
            self._end(job)
        else:
            job.description["state"] = "JOB_STATE_CANCELLING"
            job.request_end(self.stop_seconds)
        return {}

    # Containers

    def _advance(self, job: Job) -> None:
        if job.process is None:
            if not self.waiting_for:
                self._start(job)
            return
        if time.monotonic() > job.killed_at:
            send_signal(job.process, signal.SIGKILL)
        processes = {"workerpool0-0": job.process, **job.others}
        codes = {name: process.poll() for name, process in processes.items()}
        for name, code in codes.items():
            _read_lines(job, name, whole=code is not None)
        failed = next((name for name, code in codes.items() if code), None)
        if failed is None and codes["workerpool0-0"] is None:
            return
        for name, process in job.others.items():
            if codes[name] is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                _read_lines(job, name, whole=True)
        if failed is not None and codes["workerpool0-0"] is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
        code = codes.get(failed or "")
        if code and not job.message:
            shown = code if code > 0 else 128 - code
            job.message = (
                f"The replica {failed} exited with a non-zero status of {shown}. "
                "Termination reason: Error."
            )
        self._end(job)

    def _end(self, job: Job) -> None:
        state = "JOB_STATE_FAILED" if job.message else "JOB_STATE_SUCCEEDED"
        if job.cancelled:
            state = "JOB_STATE_CANCELLED"
        job.description |= {"state": state, "endTime": now()}
        if state == "JOB_STATE_CANCELLED":
            job.description["error"] = {"code": 1, "message": "CANCELED"}
        elif state == "JOB_STATE_FAILED":
            job.description["error"] = {"code": 3, "message": job.message}

    def _start(self, job: Job) -> None:
        """Start the containers of all machines."""
        pools = job.description["jobSpec"]["workerPoolSpecs"]
        cluster = {
            f"workerpool{number}": [
                f"host-{number}-{index}:2222" for index in range(int(pool["replicaCount"]))
            ]
            for number, pool in enumerate(pools)
            if pool
        }
        for name, hosts in cluster.items():
            for index in range(len(hosts)):
                trial = {"trial": job.trial} if job.trial else {}
                spec = {
                    "cluster": cluster, "environment": "cloud",
                    "task": {"type": name, "index": index, **trial},
                }  # fmt: skip
                pool = pools[int(name.removeprefix("workerpool"))]
                process = self._start_replica(job, f"{name}-{index}", pool, spec)
                if job.process is None:
                    job.process = process
                else:
                    job.others[f"{name}-{index}"] = process
        job.description |= {"state": "JOB_STATE_RUNNING", "startTime": now()}

    def _start_replica(
        self, job: Job, name: str, pool: Object, spec: Object
    ) -> subprocess.Popen[bytes]:
        container = pool["containerSpec"]
        machine = find_machine(pool["machineSpec"]["machineType"])
        assert machine is not None
        limit = machine.allocatable << 20
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CLUSTER_SPEC": json.dumps(spec),
            "CLOUD_ML_JOB_ID": job.log_key,
            "CLOUD_ML_PROJECT_ID": NUMBER,
            **({"CLOUD_ML_HP_METRIC_FILE": f"{job.folder}/output.metrics"} if job.trial else {}),
            **{each["name"]: each["value"].replace("$$(", "$(") for each in container["env"]},
        }
        # Buckets are mounted there.
        mount, *arguments = container["args"]
        assert mount.startswith("/gcs/")
        words = [f"{self.buckets}/{mount.removeprefix('/gcs/')}", *arguments]
        with (job.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*container["command"], *words, *job.more],
                env=environment,
                cwd=job.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )


def _grid_values(parameter: Object) -> list[Any]:
    """Return the listed values of a parameter, or its lowest and highest one."""
    [kind] = [name for name in parameter if name.endswith("ValueSpec")]
    spec = parameter[kind]
    if "values" in spec:
        return list(spec["values"])
    convert = int if kind == "integerValueSpec" else float
    return [convert(spec["minValue"]), convert(spec["maxValue"])]


def _read_metrics(file: Path) -> list[Object]:
    """Return the last values that the package cloudml-hypertune has written."""
    if not file.exists():
        return []
    last = json.loads(file.read_text().splitlines()[-1])
    [name] = last.keys() - {"timestamp", "trial", "global_step", "checkpoint_path"}
    return [{"metricId": name, "value": float(last[name])}]


def _read_lines(job: Job, name: str, whole: bool) -> None:
    with (job.folder / f"{name}.log").open("rb") as log:
        log.seek(job.read.get(name, 0))
        size, lines = split_lines(log.read(), whole=whole)
    job.read[name] = job.read.get(name, 0) + size
    job.lines += [LogLine(now(), name, line) for line in lines]


def _matches(job: Object, clause: str) -> bool:
    if not clause:
        return True
    if match := re.fullmatch(r'display_name="([a-z0-9-]+)"', clause):
        return bool(job["displayName"] == match[1])
    if match := re.fullmatch(r'display_name:"([a-z0-9-]+)\*"', clause):
        return str(job["displayName"]).startswith(match[1])
    if match := re.fullmatch(r'state!="([A-Z_]+)"', clause):
        return bool(job["state"] != match[1])
    raise Refused(400, f"Invalid filter: {clause}")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[VertexService]:
    """Run a server."""
    service = VertexService(folder)
    try:
        yield service
    finally:
        service.close()
