"""Pods of RayClusters on the small API server, and a start with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import pytest
from kuberay_cases import IMAGE, plan
from kubernetes_server import ApiServer, running_api_server
from services import is_empty, temporary_directory

from hyperplane.clusters.ray.kubernetes.engine import KubernetesRayEngine

Object = dict[str, Any]
#: The head is reached at its own name, which is not resolved here: no program connects.
OPTIONS = {"image": IMAGE, "port_forward": "never"}


class Operator:
    """Creates and deletes the pods of RayClusters, named and labeled as those of KubeRay."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        #: Changes the status of each new pod.
        self.change: Callable[[Object], object] = lambda pod: None
        self.number = 0
        server.operators["rayclusters"] = self.reconcile

    def reconcile(self, cluster: Object) -> None:
        """Create the pods that are missing."""
        self._scale(cluster, "head", "headgroup", 1)
        for group in cluster["spec"]["workerGroupSpecs"]:
            for name in group.get("scaleStrategy", {}).get("workersToDelete", ()):
                self.server.objects.pop(("pods", name), None)
            self._scale(cluster, "worker", group["groupName"], group["replicas"])

    def _scale(self, cluster: Object, role: str, group: str, count: int) -> None:
        name = cluster["metadata"]["name"]
        labels = {"ray.io/cluster": name, "ray.io/node-type": role, "ray.io/group": group}
        for _ in range(count - len(self.pods(name, role))):
            self.number += 1
            pod: Object = {
                "metadata": {
                    "name": f"{name}-{group}-{self.number}",
                    "labels": labels,
                    "uid": str(self.number),
                    "ownerReferences": [{"uid": cluster["metadata"]["uid"]}],
                },
                "spec": {"containers": []},
                "status": {
                    "phase": "Running",
                    "podIP": f"10.0.0.{self.number}",
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            self.change(pod)
            self.server.objects["pods", pod["metadata"]["name"]] = pod

    def pods(self, cluster: str, role: str) -> list[Object]:
        """Return the pods with a role."""
        wanted = {"ray.io/cluster": cluster, "ray.io/node-type": role}
        return [
            content
            for (kind, _), content in self.server.objects.items()
            if kind == "pods" and wanted.items() <= content["metadata"]["labels"].items()
        ]


@contextmanager
def empty_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Run an API server; fail if files are left at the end."""
    with running_api_server(tmp_path, monkeypatch) as found, temporary_directory():
        yield found
        assert is_empty(Path(os.environ["TMPDIR"])), "records or certificates are left"


def configured_engine() -> Any:
    """Return a context in which the functions for Ray clusters use the server."""
    section = "hyperplane.engines"
    settings: dict[str, Any] = {f"{section}.auto": ["kubernetes", "local"]}
    settings |= {f"{section}.ray_kubernetes.{key}": value for key, value in OPTIONS.items()}
    return dask.config.set(settings)


def start(**arguments: Any) -> Any:
    """Return the cluster of a plan."""
    options = {**OPTIONS, **arguments.pop("options", {})}
    return KubernetesRayEngine().start(plan(options, **arguments))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server without objects."""
    with empty_api_server(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def operator(server: ApiServer) -> Operator:
    """The operator of that server."""
    return Operator(server)


@pytest.fixture
def configured() -> Iterator[None]:
    """A configuration with which the functions for Ray use that server."""
    with configured_engine():
        yield
