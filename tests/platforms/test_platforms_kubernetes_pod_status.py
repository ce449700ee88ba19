"""Why pods do not run, from their recorded states and events."""

from __future__ import annotations

from typing import Any

import pytest

from hyperplane.platforms.kubernetes import pod_status


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
