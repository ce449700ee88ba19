"""GraphQL queries of the notebook API, against a server in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from email.message import Message
from typing import Any

import pytest
from slack_server import Response, Slack, serve

from hyperplane import notebook_common as nc
from hyperplane.errors import QueryFailed, RequestError
from hyperplane.jobs import graphql_client
from hyperplane.jobs.graphql_server import NOT_EXECUTED

PASSWORD = "s3cret-of-the-url"
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
#: Response of uvicorn above its limit of connections, and of the server above that of queries.
FULL = Response(503, "Service Unavailable", PLAIN)
BUSY = Response(503, '{"errors": [{"message": "send again"}]}', {NOT_EXECUTED: "1"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    started, end = serve()
    place = started.url.removeprefix("http://")
    monkeypatch.setenv("HYPERPLANE_GRAPHQL_URL", f"http://me:{PASSWORD}@{place}/graphql")
    monkeypatch.delenv("HYPERPLANE_GRAPHQL_TOKEN", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # the token must not reach a proxy
    yield started
    end()


def answer(server: Slack, *documents: Any) -> None:
    server.responses += [Response(body=json.dumps(each)) for each in documents]


def run(queries: Any) -> list[dict[str, Any]]:
    return asyncio.run(nc.graphql_operation(queries))


def test_each_query_has_one_result_also_a_single_one(server: Slack) -> None:
    answer(server, {"data": {"countJobs": 1}}, {"data": {"a": 1}}, {"data": {"b": None}})
    assert run("{ countJobs }") == [{"countJobs": 1}]
    assert run(["{ a }", "{ b }"]) == [{"a": 1}, {"b": None}]
    assert run([]) == []
    assert [path for path, _, _ in server.requests] == ["/graphql"] * 3
    assert server.documents == [{"query": "{ countJobs }"}, {"query": "{ a }"}, {"query": "{ b }"}]
    headers = server.requests[0][1]
    assert headers["Authorization"] == f"Bearer {PASSWORD}"
    assert headers["Content-Type"] == "application/json"


def test_the_variable_of_the_token_is_used_for_this_machine_and_encrypted_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HYPERPLANE_GRAPHQL_TOKEN", "t0ken")
    for url, token in {
        "http://127.0.0.1:1/graphql": "t0ken",
        "http://[::1]:1/graphql": "t0ken",
        "https://api.example/graphql": "t0ken",
        "http://api.example/graphql": "",
        "http://u:p%40ss@api.example:80/graphql": "p@ss",
    }.items():
        address = graphql_client._parse_address(url)
        assert address.token == token
        assert "@" not in address.url
    assert address.url == "http://api.example:80/graphql"


def test_errors_of_the_server_are_raised_with_the_results_before(server: Slack) -> None:
    errors = [{"message": "timeout = 0: expected seconds"}, {"message": "no such job"}]
    answer(server, {"data": {"a": 1}}, {"data": None, "errors": errors})
    with pytest.raises(QueryFailed) as caught:
        run(["{ a }", "{ b }", "{ c }"])
    assert str(caught.value) == (
        "query 2 of 3: timeout = 0: expected seconds\nno such job; the 1 before it were answered"
    )
    assert caught.value.errors == errors
    assert caught.value.results == [{"a": 1}]
    assert len(server.requests) == 2, "the third was not sent"


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response(401, '{"errors": [{"message": "no token"}]}'), "the query: no token"),
        (Response(500, "it broke"), "answered 500 with no JSON of GraphQL: 'it broke'"),
        (Response(200, "[]"), "answered 200 with no JSON of GraphQL"),
        (Response(200, "{}"), "answered 200 without data"),
        (Response(200, '{"errors": ["x"]}'), "with no JSON of GraphQL"),
        (Response(302, "", {"Location": "http://127.0.0.1:9/"}), "answered 302"),
        (Response(503, '{"data": {}}'), "answered 503 without data"),
        (Response(400, 'Unknown operation named "x".\nmore', PLAIN),
         'answered 400: Unknown operation named "x".'),
        (Response(400, "x" * 900, PLAIN), "answered 400: " + "x" * 200),
        (Response(503, "", PLAIN), "answered 503: nothing"),
    ],
)  # fmt: skip
def test_other_responses_are_errors_without_the_password(
    server: Slack, response: Response, message: str
) -> None:
    server.responses.append(response)
    with pytest.raises(QueryFailed) as caught:
        run("{ a }")
    assert message in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_query_that_a_busy_server_has_refused_is_sent_again(server: Slack) -> None:
    server.responses += [FULL, BUSY]
    answer(server, {"data": {"a": 1}})
    assert run("{ a }") == [{"a": 1}]
    assert server.documents == [{"query": "{ a }"}] * 3


def test_a_server_that_stays_busy_is_an_error(
    server: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphql_client, "_BUSY_SECONDS", 0.0)
    server.responses.append(FULL)
    with pytest.raises(QueryFailed, match="has too many connections, and did not execute it"):
        run("{ a }")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        Response(503, "Service Unavailable"),
        Response(503, "Service Unavailable!", PLAIN),
        Response(503, '{"errors": [{"message": "send again"}]}', {"Retry-After": "1"}),
        Response(500, "Service Unavailable", PLAIN),
        Response(429, "Service Unavailable", PLAIN),
    ],
)
def test_a_query_that_was_perhaps_executed_is_not_sent_again(
    server: Slack, response: Response
) -> None:
    server.responses.append(response)
    with pytest.raises(QueryFailed):
        run("mutation { a }")
    assert len(server.requests) == 1


def test_the_limit_of_another_server_is_perhaps_that_of_a_proxy() -> None:
    plain, known = Message(), Message()
    plain["content-type"], known[NOT_EXECUTED] = "text/plain", "1"
    local, other = (
        graphql_client._Address(f"http://{host}/graphql", "") for host in ("127.0.0.1", "a.example")
    )
    is_not_executed = graphql_client._is_not_executed
    assert is_not_executed(local, b"Service Unavailable", plain)
    assert not is_not_executed(other, b"Service Unavailable", plain)
    assert is_not_executed(other, b"", known)


def test_a_server_that_cannot_be_reached_is_an_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HYPERPLANE_GRAPHQL_URL", f"http://me:{PASSWORD}@127.0.0.1:9/graphql")
    with pytest.raises(QueryFailed, match=r"http://127\.0\.0\.1:9/graphql cannot be") as caught:
        run("{ a }")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["graphql", "file:///etc/passwd", "http://", "http://[", "http://a:x/", "http://a/\n"]
)
def test_another_text_is_no_address(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HYPERPLANE_GRAPHQL_URL", url)
    with pytest.raises(RequestError, match="expected an address such as"):
        run("{ a }")


def test_without_a_server_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERPLANE_GRAPHQL_URL", raising=False)
    monkeypatch.setattr(graphql_client, "find_server", lambda: None)
    with pytest.raises(RequestError, match="start 'hyperplane ui'"):
        run("{ a }")


@pytest.mark.parametrize(
    "queries", [None, 1, {"query": "{ a }"}, [None], ["{ a }", ""], " ", {"a"}]
)
def test_what_is_no_query_is_refused_before_anything_is_sent(server: Slack, queries: Any) -> None:
    with pytest.raises(RequestError, match=r"gql_queries = .*expected a GraphQL query as text"):
        run(queries)
    assert server.requests == []


def test_warnings_of_the_server_name_the_line_of_the_call(server: Slack) -> None:
    answer(server, {"data": {"a": 1}, "extensions": {"warnings": ["another branch"]}})
    with pytest.warns(UserWarning, match="another branch") as caught:
        run("{ a }")
    assert caught[0].filename == __file__
