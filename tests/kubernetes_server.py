"""A small API server of Kubernetes without nodes, for requests through kr8s.

It stores objects and deletes those whose owner is deleted. A test sets which requests are refused
and how the pods of new Jobs run.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

NAMESPACE = "lab"
Object = dict[str, Any]


class ApiServer:
    """Objects by kind and name, and the responses to requests."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.logs: dict[str, bytes] = {}
        #: Method and kind -> statuses of the next responses.
        self.refusals: dict[tuple[str, str], list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        #: Called for each new Job; returns its pods.
        self.run: Callable[[Object], list[Object]] = lambda job: []
        #: Whether a deleted pod stays until its container has ended, as it does on a node.
        self.keeps_running_pods = False
        #: Called after each change of an object of a kind, as an operator is.
        self.operators: dict[str, Callable[[Object], object]] = {}

    def names(self, kind: str) -> list[str]:
        """Return the names of the objects of a kind."""
        return [name for object_kind, name in self.objects if object_kind == kind]

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the content of a response."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.rstrip("/") == "/version":
            return 200, {"major": "1", "minor": "33", "gitVersion": "v1.33.1"}
        _, _, rest = parts.path.partition(f"/namespaces/{NAMESPACE}/")
        kind, _, name = rest.partition("/")
        self.requests.append((method, kind))
        if statuses := self.refusals.get((method, kind)):
            status = statuses.pop(0)
            return status, {"message": f"refused with {status}"}
        if name.endswith("/log"):
            return 200, self.logs[name.removesuffix("/log")]
        if method == "POST":
            return self._create(kind, json.loads(body))
        if method == "GET" and not name:
            return 200, {"items": self._list(kind, query.get("labelSelector", ""))}
        if (kind, name) not in self.objects:
            return 404, {"message": f'{kind} "{name}" not found'}
        if method == "DELETE":
            self._delete(kind, name)
            return 200, {"status": "Success"}
        if method == "PATCH":
            return self._patch(kind, name, json.loads(body))
        return 200, self.objects[kind, name]

    def _create(self, kind: str, content: Object) -> tuple[int, Any]:
        name = content["metadata"]["name"]
        if (kind, name) in self.objects:
            return 409, {"message": f'{kind} "{name}" already exists'}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": now, **content["metadata"]}
        created = self.objects[kind, name] = {**content, "metadata": metadata}
        if kind == "jobs":
            for pod in self.run(created):
                owner = {"kind": "Job", "name": name, "uid": metadata["uid"]}
                labels = {**metadata.get("labels", {}), "job-name": name}
                defaults = {"creationTimestamp": now, "labels": labels, "ownerReferences": [owner]}
                pod["metadata"] = {**defaults, **pod["metadata"]}
                self.objects["pods", pod["metadata"]["name"]] = pod
        self._operate(kind, created)
        return 201, created

    def _patch(self, kind: str, name: str, operations: list[Object]) -> tuple[int, Any]:
        """Apply the operations "test" and "replace" of a JSON patch."""
        changed: Object = json.loads(json.dumps(self.objects[kind, name]))
        for operation in operations:
            *parents, last = operation["path"].strip("/").split("/")
            parent: Any = changed
            for key in parents:
                parent = parent[int(key) if isinstance(parent, list) else key]
            if operation["op"] == "test" and parent[last] != operation["value"]:
                return 422, {"message": f"{operation['path']} is {parent[last]}"}
            parent[last] = operation["value"]
        self.objects[kind, name] = changed
        self._operate(kind, changed)
        return 200, changed

    def _operate(self, kind: str, content: Object) -> None:
        if operator := self.operators.get(kind):
            operator(content)

    def _list(self, kind: str, selector: str) -> list[Object]:
        wanted = [text.split("=") for text in selector.split(",") if text]
        return [
            content
            for (object_kind, _), content in self.objects.items()
            if object_kind == kind
            and all(
                content["metadata"].get("labels", {}).get(key) == value for key, value in wanted
            )
        ]

    def _delete(self, kind: str, name: str) -> None:
        uid = self.objects.pop((kind, name))["metadata"].get("uid")
        for key, content in list(self.objects.items()):
            metadata = content["metadata"]
            owners = [owner["uid"] for owner in metadata.get("ownerReferences", ())]
            if uid not in owners or key not in self.objects:
                continue
            if self.keeps_running_pods and content.get("status", {}).get("phase") == "Running":
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                metadata.setdefault("deletionTimestamp", now)
            else:
                self._delete(*key)


@contextmanager
def running_api_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Run a server; KUBECONFIG names a configuration for it in the folder."""
    server = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, content = server.respond(self.command, self.path, self.rfile.read(length))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        name = {"name": "n"}
        context = {"cluster": "n", "user": "n", "namespace": NAMESPACE}
        url = f"http://127.0.0.1:{http.server_address[1]}"
        content = {
            "current-context": "n",
            "contexts": [{**name, "context": context}],
            "clusters": [{**name, "cluster": {"server": url}}],
            "users": [{**name, "user": {"token": "t"}}],
        }
        (folder / "config").write_text(json.dumps(content), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
