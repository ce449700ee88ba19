"""Vertex AI for tests: a server that runs the containers of custom jobs as processes.

It answers requests to Vertex AI, Cloud Storage, Cloud Logging, and the services of the check. Each
request, and each answer, is validated against the discovery document of its service. It can also
lose answers, refuse requests, let tokens expire, and forget jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from container_service import ContainerService, drop, send, send_signal
from discovery import DiscoveryError, Method, find_method, validate

from hyperplane.platforms.gcp.machine_types import find_machine

Object = dict[str, Any]
PROJECT, NUMBER, REGION = "flights-test", "123456789012", "europe-west4"
ACCOUNT = f"steps@{PROJECT}.iam.gserviceaccount.com"
IMAGE = "registry.example/flights:1"
REGISTRY = f"europe-west4-docker.pkg.dev/{PROJECT}/images/flights"
SERVICES = (
    "aiplatform", "artifactregistry", "cloudresourcemanager", "iam", "logging", "storage"
)  # fmt: skip
OUT_OF_MEMORY = "Replicas low on memory: workerpool0. Specify a machine with larger memory."
_ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class Refused(Exception):
    """An answer with an error."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.reason = status, message, reason


class Request(NamedTuple):
    """A validated request."""

    method: Method
    values: dict[str, str]
    query: dict[str, list[str]]
    body: Any


@dataclass
class Job:
    """A custom job, and its containers: processes of this machine, or none yet.

    ``process`` is that of the first machine, ``others`` those of the other ones, by their names.
    """

    description: Object
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    others: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    message: str = ""
    killed_at: float = float("inf")
    cancelled: bool = False
    #: Lines of the logs with their times and machines.
    lines: list[tuple[str, str, str]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)

    @property
    def number(self) -> str:
        return str(self.description["name"]).rpartition("/")[2]

    @property
    def has_ended(self) -> bool:
        return self.description["state"] in _ENDED


class VertexService(ContainerService):
    """The server, and what it shall do with requests; ``url`` is its address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.buckets = folder, folder / "buckets"
        (self.buckets / "flights").mkdir(parents=True)
        self.jobs: dict[str, Job] = {}
        #: Permissions that the credentials have, or that are missing.
        self.missing: set[str] = set()
        #: Maximum entries of one page of a log.
        self.page = 1000
        self.tokens: set[str] = set()
        #: Whether a login is valid.
        self.is_logged_in = True
        super().__init__()

    def _processes(self) -> Iterator[subprocess.Popen[bytes] | None]:
        for job in self.jobs.values():
            yield from (job.process, *job.others.values())

    def ids(self) -> list[str]:
        """Return the names of all jobs."""
        return list(self.jobs)

    def started(self) -> list[str]:
        """Return the names of the jobs whose containers were started."""
        return [name for name, job in self.jobs.items() if job.process]

    def running(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        with self._lock:
            return [name for name, job in self.jobs.items() if not job.has_ended]

    def forget(self, job_id: str) -> None:
        """Make a job vanish: its container is killed, and Vertex AI does not have it."""
        with self._lock:
            job = self.jobs.pop(job_id)
        if job.process is not None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()

    def interrupt(self, job_id: str, reason: str) -> None:
        """End a container for a reason outside of it."""
        with self._lock:
            job = self.jobs[job_id]
            job.message = reason
            if job.process is None:
                self._end(job, "JOB_STATE_FAILED")
            else:
                os.killpg(job.process.pid, signal.SIGKILL)

    def revoke_tokens(self) -> None:
        """Let all tokens expire that were issued."""
        with self._lock:
            self.tokens.clear()

    # Requests

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        if urlsplit(handler.path).path == "/token":
            self._issue_token(handler)
            return
        fault, request = "", None
        try:
            request = self._parse(handler, body)
            with self._lock:
                self.requests.append((request.method.short, request.body))
                faults = self.faults.get(request.method.short, [])
                fault = faults.pop(0) if faults else ""
            if fault.startswith("refuse "):
                _, status, *reason = fault.split()
                raise Refused(int(status), "injected", *reason)
            with self._lock:
                answer = self._carry_out(request)
        except Refused as error:
            _send_error(handler, error)
            return
        if fault == "slow":
            time.sleep(1)
        if fault == "lose":  # after the request was carried out
            drop(handler)
        elif fault.startswith("answer "):
            _send_error(handler, Refused(int(fault.split()[1]), "injected"))
        elif isinstance(answer, bytes):
            send(handler, 200, answer, "application/octet-stream")
        else:
            validate(request.method.document, request.method.response, answer, "answer")
            send(handler, 200, json.dumps(answer).encode())

    def _parse(self, handler: BaseHTTPRequestHandler, content: bytes) -> Request:
        """Return the request; raise Refused if the discovery document has no such request."""
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        with self._lock:
            if token not in self.tokens:
                raise Refused(401, "Request had invalid authentication credentials.")
        url = urlsplit(handler.path)
        service, _, path = url.path.lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        try:
            method, values = find_method(service, str(handler.command), path, query)
            body: Any = content
            if method.request is not None:
                body = json.loads(content or b"{}")
                validate(method.document, method.request, body, "body")
        except DiscoveryError as error:
            raise Refused(400, str(error)) from error
        return Request(method, values, query, body)

    def _carry_out(self, request: Request) -> Any:
        actions: dict[str, Callable[[Request], Any]] = {
            "customJobs.create": self._create,
            "customJobs.get": lambda each: self._find(each).description,
            "customJobs.list": self._list,
            "customJobs.cancel": self._cancel,
            "objects.insert": self._insert,
            "objects.get": self._read,
            "buckets.testIamPermissions": self._test_bucket,
            "entries.list": self._list_entries,
            "tags.get": self._read_tag,
            "serviceAccounts.testIamPermissions": self._test_account,
            "projects.testIamPermissions": self._test_permissions,
        }
        return actions[request.method.short](request)

    def _issue_token(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            if not self.is_logged_in:
                error = {"error": "invalid_grant", "error_description": "reauth related error"}
                send(handler, 400, json.dumps(error).encode())
                return
            token = uuid.uuid4().hex
            self.tokens.add(token)
        answer = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        send(handler, 200, json.dumps(answer).encode())

    def _check_parent(self, request: Request) -> None:
        parent = request.values["parent"]
        if parent != f"projects/{PROJECT}/locations/{REGION}":
            raise Refused(403, f"Permission denied on resource {parent}", "CONSUMER_INVALID")

    def _create(self, request: Request) -> Object:
        self._check_parent(request)
        pools = request.body["jobSpec"]["workerPoolSpecs"]
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
            **request.body, "name": name, "state": "JOB_STATE_PENDING", "createTime": _now()
        }  # fmt: skip
        self.jobs[name] = Job(described, folder)
        return described

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
            self._end(job, "JOB_STATE_CANCELLED")
        elif job.killed_at == float("inf"):
            job.description["state"] = "JOB_STATE_CANCELLING"
            job.killed_at = time.monotonic() + self.stop_seconds
            send_signal(job.process, signal.SIGTERM)
        return {}

    def _object(self, request: Request, key: str) -> Path:
        bucket = self.buckets / request.values["bucket"]
        if not bucket.is_dir():
            raise Refused(404, "The specified bucket does not exist.")
        return bucket / key

    def _insert(self, request: Request) -> Object:
        file = self._object(request, request.query["name"][0])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(request.body)
        return {"name": request.query["name"][0], "bucket": request.values["bucket"]}

    def _read(self, request: Request) -> Any:
        file = self._object(request, request.values["object"])
        if not file.is_file():
            raise Refused(404, "No such object.")
        if request.query.get("alt") == ["media"]:
            return file.read_bytes()
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        return {"updated": at.isoformat().replace("+00:00", "Z")}

    def _test_bucket(self, request: Request) -> Object:
        self._object(request, "")
        return self._granted(request.query["permissions"])

    def _test_permissions(self, request: Request) -> Object:
        return self._granted(request.body["permissions"])

    def _test_account(self, request: Request) -> Object:
        if request.values["resource"] != f"projects/-/serviceAccounts/{ACCOUNT}":
            raise Refused(404, "Unknown service account")
        return self._granted(request.body["permissions"])

    def _granted(self, permissions: list[str]) -> Object:
        granted = [each for each in permissions if each not in self.missing]
        return {"permissions": granted} if granted else {}

    def _read_tag(self, request: Request) -> Object:
        if not request.values["name"].endswith("/packages/flights/tags/1"):
            raise Refused(404, "Requested entity was not found.")
        return {"name": request.values["name"]}

    def _list_entries(self, request: Request) -> Object:
        """Return entries of the one form of filters that is sent."""
        filter_text = request.body["filter"]
        start = 'resource.type="ml_job" AND resource.labels.task_name:"workerpool" AND ('
        if not filter_text.startswith(start) or len(filter_text) > 20_000:
            raise Refused(400, "Unparseable filter")
        wanted = re.findall(
            r'resource\.labels\.job_id="(\d+)"(?: AND receiveTimestamp>="([^"]+)")?', filter_text
        )
        entries = [
            _entry(job.number, index, at, replica, line)
            for number, since in wanted
            for job in self.jobs.values()
            if job.number == number
            for index, (at, replica, line) in enumerate(job.lines)
            if at >= since
        ]
        entries.sort(key=lambda entry: entry["timestamp"])
        begin = int(request.body.get("pageToken") or 0)
        end = begin + min(self.page, request.body["pageSize"])
        page: Object = {"entries": entries[begin:end]} if entries[begin:end] else {}
        return {**page, "nextPageToken": str(end)} if entries[end:] else page

    # Containers

    def _drive(self) -> None:
        """Start, observe and end containers."""
        while not self._closing.wait(0.05):
            with self._lock:
                for job in self.jobs.values():
                    if not job.has_ended:
                        self._advance(job)

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
        state = "JOB_STATE_FAILED" if failed or job.message else "JOB_STATE_SUCCEEDED"
        code = codes.get(failed or "")
        if code and not job.message:
            shown = code if code > 0 else 128 - code
            job.message = (
                f"The replica {failed} exited with a non-zero status of {shown}. "
                "Termination reason: Error."
            )
        self._end(job, "JOB_STATE_CANCELLED" if job.cancelled else state)

    def _end(self, job: Job, state: str) -> None:
        job.description |= {"state": state, "endTime": _now()}
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
                spec = {
                    "cluster": cluster, "environment": "cloud",
                    "task": {"type": name, "index": index},
                }  # fmt: skip
                pool = pools[int(name.removeprefix("workerpool"))]
                process = self._start_replica(job, f"{name}-{index}", pool, spec)
                if job.process is None:
                    job.process = process
                else:
                    job.others[f"{name}-{index}"] = process
        job.description |= {"state": "JOB_STATE_RUNNING", "startTime": _now()}

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
            "CLOUD_ML_JOB_ID": job.number,
            "CLOUD_ML_PROJECT_ID": NUMBER,
            **{each["name"]: each["value"].replace("$$(", "$(") for each in container["env"]},
        }
        # Buckets are mounted there.
        mount, *arguments = container["args"]
        assert mount.startswith("/gcs/")
        words = [f"{self.buckets}/{mount.removeprefix('/gcs/')}", *arguments]
        with (job.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*container["command"], *words],
                env=environment,
                cwd=job.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )


def _read_lines(job: Job, name: str, whole: bool) -> None:
    with (job.folder / f"{name}.log").open("rb") as log:
        log.seek(job.read.get(name, 0))
        text = log.read()
    if not whole:
        text = text[: text.rfind(b"\n") + 1]
    job.read[name] = job.read.get(name, 0) + len(text)
    lines = text.decode(errors="replace").removesuffix("\n").split("\n") if text else []
    job.lines += [(_now(), name, line) for line in lines]


def _entry(number: str, index: int, at: str, replica: str, line: str) -> Object:
    labels = {"job_id": number, "task_name": replica, "project_id": PROJECT}
    text = {"textPayload": line} if index % 2 else {"jsonPayload": {"message": f"{line}\n"}}
    return {
        "insertId": f"{number}-{index}",
        "timestamp": at,
        "receiveTimestamp": at,
        "logName": f"projects/{PROJECT}/logs/{replica}",
        "resource": {"type": "ml_job", "labels": labels},
        **text,
    }


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _send_error(handler: BaseHTTPRequestHandler, error: Refused) -> None:
    body: Object = {"code": error.status, "message": error.message}
    if error.reason:
        body["details"] = [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.reason}
        ]
    send(handler, error.status, json.dumps({"error": body}).encode())


def variables(service: VertexService) -> dict[str, str]:
    """Return the environment variables of a user with a service account."""
    file = service.folder / "key.json"
    if not file.exists():
        file.write_text(json.dumps(_make_key(service.url)))
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name.upper()}": f"{service.url}/{name}/"
            for name in SERVICES
        },
    }


def _make_key(url: str) -> Object:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account", "project_id": PROJECT, "private_key_id": "1",
        "private_key": key.decode(), "client_email": f"user@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "1", "token_uri": f"{url}/token",
    }  # fmt: skip


def options(**others: Any) -> Object:
    """Return options of a submission."""
    return {
        "region": REGION, "image": IMAGE, "staging": "gs://flights/jobs", **others
    }  # fmt: skip


@contextlib.contextmanager
def running(folder: Path) -> Iterator[VertexService]:
    """Run a server."""
    service = VertexService(folder)
    try:
        yield service
    finally:
        service.close()
