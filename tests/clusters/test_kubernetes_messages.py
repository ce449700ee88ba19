"""Messages about pods and about refusals of the API server."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import httpx
import kr8s
import pytest
from kubernetes_cases import plan

import hyperplane
from hyperplane.clusters.dask.kubernetes.engine import KubernetesEngine
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.api import ObjectNotFound, translate_errors
from hyperplane.spec.settings import KubernetesSettings


def pod(name: str = "flights-worker-1", **state: Any) -> dict[str, Any]:
    """Return a pod with one container in a given state."""
    status = {"name": "worker", "ready": False, "restartCount": 0, "state": {}, **state}
    limits = {"limits": {"memory": "700000000"}}
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {"containers": [{"name": "worker", "resources": limits}]},
        "status": {"phase": "Pending", "containerStatuses": [status]},
    }


def event(reason: str, message: str, name: str = "flights-worker-1", when: int = 1) -> Any:
    return {
        "involvedObject": {"kind": "Pod", "name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:0{when}Z",
    }


def test_an_image_that_cannot_be_had_says_why() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}
    said = 'Failed to pull image "x": rpc error: no such host'
    events = [event("Failed", "Error: ErrImagePull"), event("Failed", said)]
    found = pod_status.find_pending_pod([pod(state={"waiting": waiting})], events)
    assert found is not None
    assert said in found.text
    assert "image_pull_secrets" in found.text
    assert not found.ran


def test_a_first_failure_to_pull_may_pass() -> None:
    assert (
        pod_status.find_pending_pod([pod(state={"waiting": {"reason": "ErrImagePull"}})], [])
        is None
    )
    assert (
        pod_status.find_pending_pod([pod(state={"waiting": {"reason": "ContainerCreating"}})], [])
        is None
    )


def test_an_image_of_root_is_explained() -> None:
    message = "container has runAsNonRoot and image will run as root"
    waiting = {"reason": "CreateContainerConfigError", "message": message}
    found = pod_status.find_pending_pod([pod(state={"waiting": waiting})], [])
    assert found is not None
    assert message in found.text
    assert "run_as_user" in found.text


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"reason": "Error", "exitCode": 1}, "ended with exit code 1"),
        ({"reason": "OOMKilled", "exitCode": 137}, "0.7 GB: raise ram_gb_per_proc"),
    ],
)
def test_a_container_that_ends_again_and_again(ended: dict[str, Any], words: str) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    found = pod_status.find_pending_pod([pod(state=state, lastState={"terminated": ended})], [])
    assert found is not None
    assert words in found.text
    assert found.ran
    assert (found.pod, found.container) == ("flights-worker-1", "worker")


def test_a_pod_without_a_node_says_what_is_lacking() -> None:
    one = pod()
    del one["status"]["containerStatuses"]
    old = event("FailedScheduling", "0/3 nodes: too few", when=1)
    new = event("FailedScheduling", "0/4 nodes are available: 4 Insufficient cpu.", when=2)
    other = event("FailedScheduling", "of another pod", name="flights-gone")
    found = pod_status.summary([one], [new, old, other])
    assert (
        found == "Pods: 1 Pending. FailedScheduling: 0/4 nodes are available: 4 Insufficient cpu."
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    one["status"]["conditions"] = [{**condition, "message": "no node\n matches"}]
    assert pod_status.summary([one], []) == "Pods: 1 Pending. Unschedulable: no node matches"


def test_a_quota_is_reported_although_there_is_no_pod() -> None:
    refused = event("FailedCreate", "exceeded quota: memory")
    refused["involvedObject"] = {"kind": "ReplicaSet", "name": "flights-worker-1-abc"}
    assert "exceeded quota" in pod_status.summary([], [refused])
    assert pod_status.summary([], []) == "No pod exists yet."


def test_pods_are_counted_by_what_they_do() -> None:
    running = pod("a", ready=True)
    running["status"].update(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    slow = pod("b")
    slow["status"]["phase"] = "Running"
    ending = pod("c")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pulling = pod("d", state={"waiting": {"reason": "ContainerCreating"}})
    found = pod_status.summary([running, slow, ending, pulling], [])
    assert found == "Pods: 1 ContainerCreating, 1 Running, 1 ending, 1 running but not ready."
    assert [pod_status.is_ready(one) for one in (running, slow, ending)] == [True, False, False]
    assert [pod_status.has_ended(one) for one in (running, slow, ending)] == [False, False, True]
    ending["status"]["containerStatuses"][0]["state"] = {"running": {}}
    assert not pod_status.has_ended(ending)


def test_each_kill_for_memory_is_reported_once() -> None:
    ended = {"terminated": {"reason": "OOMKilled"}}
    first = pod_status.find_out_of_memory([pod(lastState=ended, restartCount=1)])
    again = pod_status.find_out_of_memory([pod(lastState=ended, restartCount=2)])
    assert len(first.keys() | again.keys()) == 2
    assert "0.7 GB" in next(iter(first.values()))
    assert pod_status.find_out_of_memory([pod(lastState={"terminated": {"reason": "Error"}})]) == {}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses the login"),
        (403, "not allowed to create daskclusters in namespace 'lab'.*rbac.yaml"),
        (409, "Use another name"),
        (422, "refuses the manifest"),
        (500, "answered 500"),
    ],
)
def test_what_the_api_server_refuses(status: int, words: str) -> None:
    answer = httpx.Response(status, request=httpx.Request("POST", "https://api"))
    with (
        pytest.raises(hyperplane.StartFailed, match=words) as caught,
        translate_errors("create daskclusters", "lab"),
    ):
        raise kr8s.ServerError('User "a" cannot\n do it', response=answer)
    assert 'User "a" cannot do it' in str(caught.value)
    assert isinstance(caught.value.__cause__, kr8s.ServerError)


def test_what_is_not_there_is_missing() -> None:
    answer = httpx.Response(404, request=httpx.Request("GET", "https://api"))
    with pytest.raises(ObjectNotFound, match="not found"), translate_errors("get pods", "lab"):
        raise kr8s.ServerError("not found", response=answer)


def test_no_configuration_of_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(hyperplane.StartFailed, match=r"no usable configuration.*KUBECONFIG"):
        KubernetesEngine().start(plan(timeout=120))
    with pytest.raises(hyperplane.StartFailed, match="no usable configuration"):
        KubernetesEngine().connect("flights", KubernetesSettings())


def test_no_server_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # kept open, so that no other program takes the port
        name = {"name": "n"}
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        content = {
            "current-context": "n",
            "contexts": [{**name, "context": {"cluster": "n", "user": "n"}}],
            "clusters": [{**name, "cluster": {"server": server}}],
            "users": [{**name, "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(content), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        with pytest.raises(hyperplane.EngineError, match="cannot be reached"):
            KubernetesEngine().start(plan(timeout=120))


def test_the_answer_of_a_scheduler_whether_it_is_idle() -> None:
    asyncio.run(_idle())


async def _idle() -> None:
    from distributed import Client, Scheduler, Worker

    from hyperplane.clusters.dask.kubernetes.idle import dask_setup

    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    async with Scheduler(**options) as scheduler:
        dask_setup(scheduler)
        ask = scheduler.handlers["check_idle"]
        assert ask == scheduler.check_idle
        assert ask() is not None, "no worker and no client: the owner has died"
        async with Client(scheduler.address, asynchronous=True) as client:
            assert ask() is None, "its workers are on their way"
            async with Worker(scheduler.address, dashboard=False, **{"host": "127.0.0.1"}):
                ask()
                first = ask()
                assert first is not None
                future = client.submit(sum, [1, 2])
                assert await future == 3
                assert [ask(), ask(), ask()] == [None] * 3, "a client holds the result"
                future.release()
                while scheduler.tasks:
                    await asyncio.sleep(0.01)
                ask()
                again = ask()
                assert again is not None
                assert again > first
            while scheduler.workers:
                await asyncio.sleep(0.01)
            assert ask() is not None, "all workers left again"
