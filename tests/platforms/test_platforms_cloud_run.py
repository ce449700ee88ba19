"""Requests to Cloud Run, and how its executions ended."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import cloud_run_service
import google_service
import pytest
from cloud_run_service import CloudRunService

from hyperplane.platforms.gcp.cloud_run import CloudRunApi
from hyperplane.platforms.gcp.cloud_run_sizes import cloud_run_price
from hyperplane.platforms.gcp.errors import GcpConnectionError, GcpRequestError, is_unconfirmed
from hyperplane.platforms.gcp.execution_status import parse_execution
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import CLOUD_RUN_LOGS, LogPosition, build_filter, read_page
from hyperplane.platforms.task_size import TaskSize

END = "2026-05-18T00:01:00Z"
RUNS: dict[str, Any] = {"startTime": "2026-05-18T00:00:00Z"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudRunService]:
    with cloud_run_service.running(tmp_path_factory.mktemp("cloud-run")) as service:
        service.waiting_for = "containers"
        yield service


def open_api(service: CloudRunService) -> CloudRunApi:
    session = GcpSession(None, google_service.REGION, google_service.variables(service))
    return CloudRunApi(session)


def job() -> dict[str, Any]:
    container = {
        "image": "i:1",
        "env": [],
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}},
    }
    return {"template": {"template": {"containers": [container], "timeout": "60s"}}}


@pytest.mark.service
def test_a_second_creation_is_a_conflict_that_starts_nothing(service: CloudRunService) -> None:
    api = open_api(service)
    service.faults["jobs.create"] = ["lose"]
    with pytest.raises(GcpConnectionError):
        api.create("one", job())
    with pytest.raises(GcpRequestError, match="already exists") as caught:
        api.create("one", job())
    assert is_unconfirmed(caught.value)
    found = api.find_job("one")
    assert found is not None
    assert found["startExecutionToken"] == "x"
    execution = f"{found['name']}/executions/one-x"
    assert "execution" in (api.read(execution) or {})
    api.cancel(execution)
    description = api.read(execution)
    assert description is not None
    assert parse_execution(description).describe() == "CANCELLED (Cancelled by the user.)"
    api.delete(found["name"])
    api.delete(found["name"])  # it is gone
    assert api.find_job("one") is None
    assert api.read(execution) is None


@pytest.mark.service
def test_a_job_is_checked_without_a_creation(service: CloudRunService) -> None:
    api = open_api(service)
    api.validate("two", job())
    assert api.find_job("two") is None
    wrong = job()
    wrong["template"]["template"]["containers"][0]["resources"]["limits"]["memory"] = "5000Mi"
    with pytest.raises(GcpRequestError, match="Invalid value specified for cpu or memory"):
        api.validate("two", wrong)


def test_an_error_of_the_operation_is_a_refusal() -> None:
    answer = {"name": "o", "done": True, "error": {"code": 3, "message": "no such network"}}
    calls: list[str] = []

    def call(service: str, operation: str, **request: Any) -> dict[str, Any]:
        calls.append(operation.rpartition(".")[2])
        return answer

    session = SimpleNamespace(location=lambda: "projects/p/locations/r", call=call)
    with pytest.raises(GcpRequestError, match="no such network"):
        CloudRunApi(cast("Any", session)).create("one", job())
    assert calls == ["create", "delete"]


def ended(result: dict[str, Any], **condition: str) -> dict[str, Any]:
    condition = {"type": "Completed", "state": "CONDITION_FAILED", **condition}
    execution = {**RUNS, "completionTime": END, "conditions": [condition]}
    return {"execution": execution, "task": {"lastAttemptResult": result}}


MEMORY = {"exitCode": 0, "status": {"code": 2, "message": cloud_run_service.OUT_OF_MEMORY}}
TIMEOUT = {
    "termSignal": 9,
    "status": {"message": "Terminating task because it has reached the maximum timeout of 60 s."},
}


@pytest.mark.parametrize(
    ("description", "code", "memory", "lost"),
    [
        (ended({"exitCode": 3}, executionReason="NON_ZERO_EXIT_CODE"), 3, False, False),
        (ended({"exitCode": 143}), -15, False, False),
        (ended({"termSignal": 9}), -9, False, False),
        (ended(MEMORY), None, True, False),
        (ended({}, message="Task a failed with message: The configured memory limit was reached."),
         None, True, False),
        (ended(TIMEOUT), None, False, False),
        (ended({}, reason="INTERNAL", message="An internal error."), None, False, True),
        (ended({"exitCode": 3}, reason="INTERNAL"), 3, False, False),
        (ended({"exitCode": 1}, executionReason="CANCELLED"), None, False, False),
    ],
)  # fmt: skip
def test_how_a_container_ended(
    description: dict[str, Any], code: int | None, memory: bool, lost: bool
) -> None:
    status = parse_execution(description)
    assert (status.exit_code, status.is_out_of_memory, status.is_lost) == (code, memory, lost)
    assert status.has_ended
    assert not status.has_succeeded
    assert status.was_terminated == (code is None)
    assert status.stopped - status.started == 60


def test_states_before_the_end() -> None:
    waiting = parse_execution({"execution": RUNS})
    assert (waiting.describe(), waiting.started, waiting.has_ended) == ("PENDING", 0.0, False)
    runs = parse_execution({"execution": {**RUNS, "runningCount": 1}})
    assert runs.describe() == "RUNNING"
    assert runs.started > 0
    creating = {"job": {"terminalCondition": {"state": "CONDITION_RECONCILING", "message": "wait"}}}
    assert parse_execution(creating).describe() == "PENDING (wait)"
    failed = {"state": "CONDITION_FAILED", "reason": "CONTAINER_MISSING", "message": "no image"}
    status = parse_execution({"job": {"terminalCondition": failed}})
    assert status.has_ended
    assert status.is_misconfigured
    condition = {"type": "Completed", "state": "CONDITION_SUCCEEDED"}
    done = {**RUNS, "completionTime": END, "conditions": [condition]}
    assert parse_execution({"execution": done}).has_succeeded


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"job": []},
        {"execution": {"conditions": ["none"]}},
        {"execution": {"completionTime": "soon"}},
        {"execution": RUNS, "task": {"lastAttemptResult": 5}},
        {"execution": RUNS, "task": {"lastAttemptResult": {"exitCode": "x"}}},
    ],
)
def test_a_damaged_description_is_an_error_of_the_request(description: dict[str, Any]) -> None:
    with pytest.raises(GcpConnectionError, match="cannot be read"):
        parse_execution(description)


def test_logs_are_those_of_the_execution() -> None:
    position = LogPosition("a" * 63, "2026-05-18T00:00:00.123456Z")
    text = build_filter(CLOUD_RUN_LOGS, [position] * CLOUD_RUN_LOGS.max_jobs)
    assert len(text) < 20_000
    assert f'(labels."run.googleapis.com/execution_name"="{position.job}" AND' in text
    entries = [
        {"labels": {"run.googleapis.com/execution_name": "one-x"}, "jsonPayload": {"loss": 0.5}},
        {"labels": {}, "textPayload": "of no job"},
    ]
    answer = {"entries": entries}
    session = cast("Any", SimpleNamespace(project=str, call=lambda *_, **__: answer))
    page = read_page(session, CLOUD_RUN_LOGS, [position], "")
    assert [(entry.job, entry.line) for entry in page.entries] == [
        ("one-x", '{"loss": 0.5}'), ("", "of no job")
    ]  # fmt: skip


def test_prices_are_those_of_the_page_or_unknown() -> None:
    hour = 3600 * (2 * 0.000018 + 4 * 0.000002)
    assert cloud_run_price("us-central1", TaskSize(2, 4096)) == pytest.approx(hour)
    assert cloud_run_price("us-central1", TaskSize(4, 16_384, 1)) is None
    assert cloud_run_price("europe-west3", TaskSize(2, 4096)) is None
    assert cloud_run_price(None, TaskSize(2, 4096)) is None
