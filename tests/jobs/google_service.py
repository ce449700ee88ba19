"""Google Cloud for tests: a server that runs the containers of jobs as processes.

It answers requests to Cloud Storage, Cloud Logging, and the services of the check; subclasses have
those of a service of jobs. Each request, and each answer, is validated against the discovery
document of its service. It can also lose answers, refuse requests, let tokens expire, and forget
jobs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest
from container_service import ContainerService, drop, send, send_signal
from discovery import DiscoveryError, Method, find_method, validate

from hyperplane.jobs.runners import retry_time, service_job_id, service_process
from hyperplane.jobs.runners.gcp import log_reader
from hyperplane.platforms.gcp.task_log import LogSource

Object = dict[str, Any]
PROJECT, NUMBER, REGION = "flights-test", "123456789012", "europe-west4"
ACCOUNT = f"steps@{PROJECT}.iam.gserviceaccount.com"
IMAGE = "registry.example/flights:1"
REGISTRY = f"europe-west4-docker.pkg.dev/{PROJECT}/images/flights"
SERVICES = (
    "aiplatform", "artifactregistry", "cloudresourcemanager", "iam", "logging", "run", "storage"
)  # fmt: skip
Action = Callable[["Request"], Any]


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
class LogLine:
    """A line of a container, with its time and the name of its machine."""

    at: str
    replica: str
    text: str


@dataclass(kw_only=True)
class GoogleJob(ABC):
    """A job, and its container: a process of this machine, or none yet."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    message: str = ""
    killed_at: float = float("inf")
    cancelled: bool = False
    lines: list[LogLine] = field(default_factory=list)

    @property
    @abstractmethod
    def log_key(self) -> str:
        """Label of the job in its log."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether it has ended."""

    def request_end(self, seconds: float) -> None:
        """Send SIGTERM to the container, which is killed after some seconds."""
        if self.process is not None and self.killed_at == float("inf"):
            self.killed_at = time.monotonic() + seconds
            send_signal(self.process, signal.SIGTERM)


JobT = TypeVar("JobT", bound=GoogleJob)


class GoogleService(ContainerService, Generic[JobT]):
    """The server, and what it shall do with requests; ``url`` is its address.

    A subclass sets its own attributes first.
    """

    #: Where the logs of the jobs are.
    source: LogSource

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, JobT] = {}
        self.folder, self.buckets = folder, folder / "buckets"
        (self.buckets / "flights").mkdir(parents=True)
        #: Permissions that the credentials have, or that are missing.
        self.missing: set[str] = set()
        #: Maximum entries of one page of a log.
        self.page = 1000
        self.tokens: set[str] = set()
        #: Whether a login is valid.
        self.is_logged_in = True
        super().__init__()

    @abstractmethod
    def _end(self, job: JobT) -> None:
        """Let a job end whose container never started."""

    def _all(self) -> dict[str, JobT]:
        """Return all jobs, also those that the service does not have any more."""
        return self.jobs

    def _processes(self) -> Iterator[subprocess.Popen[bytes] | None]:
        return (job.process for job in self._all().values())

    def ids(self) -> list[str]:
        """Return the names of all jobs."""
        return list(self._all())

    def started(self) -> list[str]:
        """Return the names of the jobs whose containers were started."""
        return [name for name, job in self._all().items() if job.process]

    def running(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        with self._lock:
            return [name for name, job in self.jobs.items() if not job.has_ended]

    def forget(self, job_id: str) -> None:
        """Make a job vanish: its container is killed, and the service does not have it."""
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
                self._end(job)
            else:
                os.killpg(job.process.pid, signal.SIGKILL)

    @abstractmethod
    def _build_entry(self, job: str, line: LogLine) -> Object:
        """Return the fields of an entry that name its job, and those of its log."""

    @abstractmethod
    def _actions(self) -> dict[str, Action]:
        """Return the requests for jobs that this answers."""

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
                operation = self._operation(request)
                self.requests.append((operation, self._shown(request)))
                faults = self.faults.get(operation, [])
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

    def _operation(self, request: Request) -> str:
        """Return the name of a request, as tests count it."""
        return request.method.short

    def _shown(self, request: Request) -> Any:
        """Return the body of a request, as tests compare it."""
        return request.body

    def _carry_out(self, request: Request) -> Any:
        actions: dict[str, Action] = {
            "objects.insert": self._insert,
            "objects.get": self._read,
            "objects.list": self._list_objects,
            "buckets.insert": self._create_bucket,
            "buckets.testIamPermissions": self._test_bucket,
            "entries.list": self._list_entries,
            "tags.get": self._read_tag,
            "serviceAccounts.testIamPermissions": self._test_account,
            "projects.testIamPermissions": self._test_permissions,
            **self._actions(),
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

    def _object(self, request: Request, key: str) -> Path:
        bucket = self.buckets / request.values["bucket"]
        if not bucket.is_dir():
            raise Refused(404, "The specified bucket does not exist.")
        return bucket / key

    def _create_bucket(self, request: Request) -> Object:
        if request.query["project"] != [PROJECT]:
            raise Refused(403, "Permission denied on project")
        folder = self.buckets / request.body["name"]
        if folder.is_dir():
            raise Refused(409, "The requested bucket name is not available.")
        folder.mkdir()
        return {"name": request.body["name"], "location": request.body["location"].upper()}

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

    def _list_objects(self, request: Request) -> Object:
        bucket = self._object(request, "")
        prefix = request.query.get("prefix", [""])[0]
        names = (str(file.relative_to(bucket)) for file in bucket.rglob("*") if file.is_file())
        return {"items": [{"name": name} for name in names if name.startswith(prefix)]}

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
        if not filter_text.startswith(f"{self.source.filter} AND (") or len(filter_text) > 20_000:
            raise Refused(400, "Unparseable filter")
        label = r'(?:resource\.labels\.job_id|labels\."run\.googleapis\.com/execution_name")'
        wanted = re.findall(
            label + r'="([a-z0-9-]+)"(?: AND receiveTimestamp>="([^"]+)")?', filter_text
        )
        entries = [
            self._entry(name, index, line)
            for name, since in wanted
            for job in self._all().values()
            if job.log_key == name
            for index, line in enumerate(job.lines)
            if line.at >= since
        ]
        entries.sort(key=lambda entry: entry["timestamp"])
        begin = int(request.body.get("pageToken") or 0)
        end = begin + min(self.page, request.body["pageSize"])
        page: Object = {"entries": entries[begin:end]} if entries[begin:end] else {}
        return {**page, "nextPageToken": str(end)} if entries[end:] else page

    def _entry(self, job: str, index: int, line: LogLine) -> Object:
        text = {"textPayload": line.text}
        if not index % 2:
            text = {"jsonPayload": {"message": f"{line.text}\n"}}
        return {
            "insertId": f"{job}-{index}",
            "timestamp": line.at,
            "receiveTimestamp": line.at,
            **self._build_entry(job, line),
            **text,
        }

    def _drive(self) -> None:
        """Start, observe and end containers."""
        while not self._closing.wait(0.05):
            with self._lock:
                for job in self.jobs.values():
                    if not job.has_ended:
                        self._advance(job)

    @abstractmethod
    def _advance(self, job: JobT) -> None:
        """Start, observe or end the container of a job."""


def speed_up(monkeypatch: pytest.MonkeyPatch, process_type: type[Any]) -> None:
    """Let attempts of a runner observe their jobs, and read their logs, without long pauses."""
    monkeypatch.setattr(process_type, "poll_seconds", 0.1)
    monkeypatch.setattr(service_process, "VANISHED_SECONDS", 0.5)
    monkeypatch.setattr(service_process, "END_SECONDS", 0.5)
    monkeypatch.setattr(log_reader, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(log_reader, "READ_SECONDS", 0.1)
    monkeypatch.setattr(log_reader, "REQUEST_RATE", 50.0)
    monkeypatch.setattr(service_job_id, "UNCONFIRMED_SECONDS", 1.0)
    monkeypatch.setattr(retry_time, "MAX_PAUSE_SECONDS", 0.2)


def split_lines(content: bytes, *, whole: bool) -> tuple[int, list[str]]:
    """Return the lines of new content of a log, and their bytes; ``whole`` at its end."""
    text = content if whole else content[: content.rfind(b"\n") + 1]
    lines = text.decode(errors="replace").removesuffix("\n").split("\n") if text else []
    return len(text), lines


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _send_error(handler: BaseHTTPRequestHandler, error: Refused) -> None:
    body: Object = {"code": error.status, "message": error.message}
    if error.reason:
        body["details"] = [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.reason}
        ]
    send(handler, error.status, json.dumps({"error": body}).encode())


def variables(service: GoogleService[Any]) -> dict[str, str]:
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
