"""Errors of the GraphQL schema, without a server."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hyperplane.core.errors import Fault
from hyperplane.errors import JobStoreError, RequestError
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.graphql_server import NOT_EXECUTED
from hyperplane.jobs.job_control import new_job
from hyperplane.ui.graphql_api import endpoint, submission
from hyperplane.ui.graphql_api.endpoint import GraphqlEndpoint

QUERY = '{ pipelineJob(where: {id: "s3cret-id"}) { id } }'


def answer(query: str, folder: Path) -> Any:
    """Return the document of the response to a query."""
    start, document = asyncio.run(respond(GraphqlEndpoint(folder), query))
    assert start["status"] == 200
    return document


async def respond(endpoint: GraphqlEndpoint, query: str) -> tuple[Any, Any]:
    """Return the start and the document of the response to a query."""
    sent: list[Any] = []
    body = json.dumps({"query": query}).encode()
    parts = [body[:10], body[10:]]

    async def receive() -> Any:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/graphql", "query_string": b"",
        "headers": [(b"content-type", b"application/json; charset=utf-8")], "root_path": "",
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8790),
    }  # fmt: skip
    await endpoint(scope, receive, send)
    return sent[0], json.loads(sent[1]["body"])


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def raise_error(job_id: str) -> None:
        raise error

    monkeypatch.setattr(submission, "find_job", raise_error)


def test_an_unexpected_error_is_in_the_log_and_not_in_the_response(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    fail(monkeypatch, ZeroDivisionError("s3cret-value of /home/ada"))
    with caplog.at_level(logging.ERROR):
        document = answer(QUERY, tmp_path)
    assert document["data"] == {"pipelineJob": None}
    [error] = document["errors"]
    assert error["message"] == (
        "The server has failed; the terminal of hyperplane ui shows the error."
    )
    assert error["path"] == ["pipelineJob"]
    assert "s3cret" not in json.dumps(document)
    [record] = caplog.records
    assert record.getMessage() == "a GraphQL query failed: ZeroDivisionError"
    assert record.exc_info is not None
    assert "s3cret-id" not in caplog.text, "queries have parameters"


@pytest.mark.parametrize(
    ("error", "extensions"),
    [
        (
            RequestError([Fault("timeout", "0", "seconds above 0", "pass -1")]),
            {"error": "RequestError", "faults": [{
                "argument": "timeout", "given": "0", "expected": "seconds above 0",
                "advice": "pass -1"}]},
        ),
        (JobStoreError("jobs.db", "full", passing=True), {"error": "JobStoreError"}),
    ],
)  # fmt: skip
def test_an_error_for_the_user_is_in_the_response_and_not_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path,
    error: Exception, extensions: dict[str, Any],
) -> None:  # fmt: skip
    fail(monkeypatch, error)
    [found] = answer(QUERY, tmp_path)["errors"]
    assert found["message"] == str(error)
    assert found["extensions"] == extensions
    assert caplog.records == []


def test_queries_above_the_limit_are_refused_until_others_have_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(endpoint, "MOST_REQUESTS", 2)
    is_running, released = threading.Semaphore(0), threading.Event()

    def find_job(job_id: str) -> None:
        is_running.release()
        assert released.wait(120)

    monkeypatch.setattr(submission, "find_job", find_job)

    async def run() -> None:
        served = GraphqlEndpoint(tmp_path)
        running = [asyncio.create_task(respond(served, QUERY)) for _ in range(2)]
        try:
            for _ in running:
                await asyncio.to_thread(is_running.acquire, timeout=120)
            start, document = await respond(served, "{ __typename }")
        finally:
            released.set()
        assert start["status"] == 503
        assert dict(start["headers"])[NOT_EXECUTED.encode()] == b"1"
        assert "answers 2 other queries; send this one again" in document["errors"][0]["message"]
        assert [each["status"] for each, _ in await asyncio.gather(*running)] == [200, 200]
        start, _ = await respond(served, "{ __typename }")
        assert start["status"] == 200

    asyncio.run(run())


def test_errors_of_the_query_are_not_in_the_log(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for query in ("{", "{ absent }", '{ countJobs(whereOveride: {startTime: {gt: "x"}}) }'):
        assert answer(query, tmp_path)["errors"]
    assert caplog.records == []


@pytest.mark.parametrize("seconds", [1e300, 1e18, float("nan"), float("inf"), -1e18])
def test_jobs_with_times_of_no_calendar_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float
) -> None:
    job = new_job(Pipeline.from_steps("p", [Step(name="a", kind="command", argv=("true",))]))
    damaged = replace(job, submitted=seconds, ended=seconds)
    monkeypatch.setattr(submission, "find_job", lambda job_id: damaged)
    query = '{ pipelineJob(where: {id: "x"}) { startTime completionTime duration status } }'
    document = answer(query, tmp_path)
    assert "errors" not in document
    found = document["data"]["pipelineJob"]
    assert (found["startTime"], found["completionTime"]) == (None, None)
    assert found["duration"] in (None, 0)
