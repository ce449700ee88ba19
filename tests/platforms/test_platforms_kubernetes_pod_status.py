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
    pods = [pod(state=state, lastState={"terminated": ended})]
    found = pod_status.find_pending_pod(pods, [], {"OOMKilled": "raise ram_gb_per_proc"})
    assert found is not None
    assert words in found.text
    assert found.reason == "CrashLoopBackOff"
    assert found.ran
    assert (found.pod, found.container) == ("flights-worker-1", "worker")


def test_a_pod_without_a_node_says_what_is_lacking() -> None:
    one = pod()
    del one["status"]["containerStatuses"]
    old = event("FailedScheduling", "0/3 nodes: too few", when=1)
    new = event("FailedScheduling", "0/4 nodes are available: 4 Insufficient cpu.", when=2)
    other = event("FailedScheduling", "of another pod", name="flights-gone")
    found = pod_status.summarize([one], [new, old, other])
    assert (
        found == "Pods: 1 Pending. FailedScheduling: 0/4 nodes are available: 4 Insufficient cpu."
    )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    one["status"]["conditions"] = [{**condition, "message": "no node\n matches"}]
    assert pod_status.summarize([one], []) == "Pods: 1 Pending. Unschedulable: no node matches"


def test_a_quota_is_reported_although_there_is_no_pod() -> None:
    refused = event("FailedCreate", "exceeded quota: memory")
    refused["involvedObject"] = {"kind": "ReplicaSet", "name": "flights-worker-1-abc"}
    assert "exceeded quota" in pod_status.summarize([], [refused])
    assert pod_status.summarize([], []) == "No pod exists yet."


def test_pods_are_counted_by_what_they_do() -> None:
    running = pod("a", ready=True)
    running["status"].update(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    slow = pod("b")
    slow["status"]["phase"] = "Running"
    ending = pod("c")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pulling = pod("d", state={"waiting": {"reason": "ContainerCreating"}})
    found = pod_status.summarize([running, slow, ending, pulling], [])
    assert found == "Pods: 1 ContainerCreating, 1 Running, 1 ending, 1 running but not ready."
    assert [pod_status.is_ready(one) for one in (running, slow, ending)] == [True, False, False]
    assert [pod_status.is_deleted(one) for one in (running, slow, ending)] == [False, False, True]
    ending["status"]["containerStatuses"][0]["state"] = {"running": {}}
    assert not pod_status.is_deleted(ending)


def test_each_kill_for_memory_is_reported_once() -> None:
    ended = {"terminated": {"reason": "OOMKilled"}}
    first = pod_status.find_out_of_memory([pod(lastState=ended, restartCount=1)])
    again = pod_status.find_out_of_memory([pod(lastState=ended, restartCount=2)])
    assert len(first.keys() | again.keys()) == 2
    assert "0.7 GB" in next(iter(first.values()))
    assert pod_status.find_out_of_memory([pod(lastState={"terminated": {"reason": "Error"}})]) == {}


def test_advice_is_that_of_the_caller_if_it_has_one() -> None:
    one = pod(state={"waiting": {"reason": "RunContainerError", "message": "no dask"}})
    found = pod_status.find_pending_pod([one], [], {"RunContainerError": "install dask in it"})
    assert found is not None
    assert found.text == "pod flights-worker-1: RunContainerError: no dask; install dask in it"
    found = pod_status.find_pending_pod([one], [])
    assert found is not None
    assert "the program on its PATH" in found.text


def test_events_are_selected_by_the_names_of_their_objects() -> None:
    ours, other = event("Failed", "a", "flights-worker-1"), event("Failed", "b", "other-worker-1")
    nameless = {"involvedObject": {"kind": "Pod"}}
    assert pod_status.select_events([ours, other, nameless], "flights") == [ours]


STARTED, FINISHED = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}
DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


def ended(code: int, *, metadata: Any = (), status: Any = (), **more: Any) -> dict[str, Any]:
    """Return a pod whose container has ended."""
    times = {"startedAt": STARTED, "finishedAt": FINISHED}
    found = pod(state={"terminated": {"exitCode": code, **times, **more}})
    found["metadata"].update(metadata)
    found["status"].update({"phase": "Failed" if code else "Succeeded"}, **dict(status))
    return found


@pytest.mark.parametrize(
    ("one", "code", "text"),
    [
        (ended(0), 0, ""),
        (ended(3), 3, ""),
        (ended(143), -15, ""),
        (ended(255), 255, ""),
        (ended(137, reason="OOMKilled"), -9, "it needed more than the memory of its pod, 0.7 GB"),
        (ended(0, reason="OOMKilled"), 0, ""),
        (ended(128, reason="StartError", message="exec: no x"), 127, "StartError: exec: no x"),
        (ended(143, metadata=DELETED), None, "it was deleted"),
        (ended(143, status=DISRUPTED), None, "it was deleted"),
        (ended(0, metadata=DELETED), 0, ""),
        (ended(1, status={**DISRUPTED, "reason": "Evicted", "message": "low\n disk"}), None,
         "Evicted: low disk"),
    ],
)  # fmt: skip
def test_how_a_container_ended(one: dict[str, Any], code: int | None, text: str) -> None:
    found = pod_status.read_end(one, "worker")
    assert found is not None
    assert (found.code, found.text) == (code, text)
    assert found.out_of_memory is (code == -9)
    began = pod_status.read_start_time(one, "worker")
    assert began is not None
    if code is not None:
        assert found.time == began + 10


def test_a_pod_that_failed_without_its_container_was_ended_by_kubernetes() -> None:
    evicted = pod()
    evicted["status"] = {"phase": "Failed", "reason": "Evicted"}
    found = pod_status.read_end(evicted, "worker")
    assert found is not None
    assert (found.code, found.text) == (None, "Evicted")
    assert pod_status.read_start_time(evicted, "worker") is None


def test_what_runs_or_waits_has_not_ended() -> None:
    for state in ({}, {"running": {"startedAt": STARTED}}, {"waiting": {"reason": "x"}}):
        assert pod_status.read_end(pod(state=state), "worker") is None
        assert pod_status.get_container_state(pod(state=state), "worker") == state
    assert pod_status.get_container_state(pod(state={"running": {}}), "sidecar") == {}
    assert pod_status.read_deletion_time(pod()) is None


def test_a_job_has_the_outcome_of_a_pod_that_was_deleted() -> None:
    def job(kind: str, **more: str) -> dict[str, Any]:
        conditions = [{"type": "Suspended", "status": "True"}, {"type": kind, **more}]
        return {"status": {"conditions": conditions}}

    assert pod_status.find_job_end({}) is None
    assert pod_status.find_job_end(job("Failed", status="False")) is None
    assert pod_status.find_job_end(job("Complete", status="True")) == (True, "")
    failed = job("Failed", status="True", reason="BackoffLimitExceeded")
    assert pod_status.find_job_end(failed) == (False, "BackoffLimitExceeded")


def test_a_pod_has_finished_with_its_container_or_without_it() -> None:
    assert pod_status.has_finished(ended(0), "worker")
    failed = pod()
    failed["status"] = {"phase": "Failed"}
    assert pod_status.has_finished(failed, "worker")
    running = pod(state={"running": {}})
    assert not pod_status.has_finished(running, "worker")
    running["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
    assert pod_status.has_finished(running, "worker")
