"""Requests through kr8s to a small API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_server import NAMESPACE, ApiServer, running_api_server

from hyperplane.platforms.kubernetes.api import KubernetesApi
from hyperplane.platforms.kubernetes.batch_job import BATCH
from hyperplane.platforms.kubernetes.errors import KubeconfigError, ObjectNotFound, RequestRefused
from hyperplane.platforms.kubernetes.job_watcher import JobWatcher


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with running_api_server(tmp_path, monkeypatch) as found:
        yield found


def job(name: str = "n", **labels: str) -> dict[str, Any]:
    """Return a Job."""
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": BATCH, "kind": "Job", "metadata": metadata, "spec": {}}


def test_objects_are_created_listed_read_and_deleted(server: ApiServer) -> None:
    async def main() -> None:
        api = KubernetesApi(None)
        await api.connect()
        assert api.namespace == NAMESPACE, "that of the context"
        created = await api.create("jobs", job("a", team="x"), BATCH)
        assert created["metadata"]["uid"]
        await api.create("jobs", job("b", team="y"), BATCH)
        [found] = await api.list("jobs", BATCH, labels="team=x")
        assert found == created == await api.get("jobs", "a", BATCH)
        with pytest.raises(RequestRefused, match="the name is already in use") as caught:
            await api.create("jobs", job("a"), BATCH)
        assert caught.value.name_exists()
        await api.delete("jobs", "a", BATCH)
        with pytest.raises(ObjectNotFound, match='jobs "a" not found'):
            await api.delete("jobs", "a", BATCH)
        assert server.names("jobs") == ["b"]
        await api.close()

    asyncio.run(main())


def test_logs_are_read_and_followed(server: ApiServer) -> None:
    server.logs["n-x"] = "größer\n".encode() * 1000

    async def main() -> None:
        api = KubernetesApi(NAMESPACE)
        await api.connect()
        assert await api.read_log("n-x", "step") == server.logs["n-x"]
        parts = [part async for part in api.follow_log("n-x", "step")]
        assert b"".join(parts) == server.logs["n-x"]
        await api.close()

    asyncio.run(main())


def test_a_connection_is_shared_and_closed_with_its_last_user(server: ApiServer) -> None:
    async def main() -> None:
        one, two = KubernetesApi(None), KubernetesApi("other")
        await one.connect()
        await two.connect()
        shared = one.kr8s
        assert two.kr8s is shared
        await one.list("pods")
        await one.close()
        await one.close()
        assert not shared._session.is_closed
        await two.close()
        assert shared._session.is_closed
        await one.connect()
        assert await one.list("pods") == []
        await one.close()

    asyncio.run(main())


def test_a_refusal_has_its_status_and_says_what_to_do(server: ApiServer) -> None:
    # kr8s logs in again three times.
    server.refusals["GET", "pods"] = [403] * 4

    async def main() -> None:
        api = KubernetesApi(None)
        await api.connect()
        with pytest.raises(RequestRefused, match=r"not allowed to list pods in .*rbac") as caught:
            await api.list("pods")
        assert (caught.value.status, caught.value.is_retryable()) == (403, False)
        await api.close()

    asyncio.run(main())


def test_a_configuration_that_is_missing_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(KubeconfigError, match="no usable configuration"):
        asyncio.run(KubernetesApi(None).connect())


def test_jobs_are_watched_with_their_pods_and_the_reasons_why_they_wait(server: ApiServer) -> None:
    def run(manifest: dict[str, Any]) -> list[dict[str, Any]]:
        name = f"{manifest['metadata']['name']}-x"
        return [{"metadata": {"name": name}, "status": {"phase": "Pending"}}]

    server.run = run
    server.refusals["POST", "jobs"] = [503]
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "n-x"}, "reason": "Failed"}
    server.objects["events", "e"] = event

    def secret_of(manifest: dict[str, Any]) -> dict[str, Any]:
        owner = {"uid": manifest["metadata"]["uid"]}
        return {"metadata": {"name": "n", "ownerReferences": [owner]}}

    async def main() -> None:
        api = KubernetesApi(None)
        watcher = JobWatcher(api, "step")
        await watcher.create(job("n", run="1"), secret_of)
        await api.create("jobs", job("other", run="2"), BATCH)
        snapshot = await watcher.get_snapshot("run=1")
        assert snapshot is not None, watcher.last_error
        assert list(snapshot.jobs) == ["n"]
        [pod] = snapshot.pods["n"]
        assert pod["metadata"]["labels"]["job-name"] == "n"
        assert snapshot.events == [event]
        assert await watcher.has_secret("n")
        assert await watcher.delete("n")
        assert not await watcher.has_secret("n")
        assert await watcher.delete("n")
        await api.close()

    asyncio.run(main())
    assert server.requests.count(("POST", "jobs")) == 3
