"""GraphQL requests that are refused: other senders, and queries that are no queries."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import requests
from graphql_requests import CREATE, VARIABLES, address_of, ask, error_of, errors_of, post
from ui_server import LIMIT, UiServer
from users import as_other_user

pytestmark = [pytest.mark.process, pytest.mark.slow]

COUNT = {"query": "{ countJobs }"}


@pytest.fixture(scope="module")
def server(start_server: Callable[..., UiServer]) -> UiServer:
    """A server whose page was opened."""
    started = start_server("--allow-actions")
    started.login()
    return started


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def send(server: UiServer, method: str = "POST", body: Any = None, **headers: str | None) -> Any:
    """Send a request without the token, unless a header has it."""
    given = {"content-type": "application/json", **headers}
    sent = {name.replace("_", "-"): value for name, value in given.items()}
    data = json.dumps(COUNT) if body is None else body
    return requests.request(
        method, f"{server.origin}/graphql", headers=sent, data=data, timeout=LIMIT
    )


def bearer(server: UiServer) -> str:
    return f"Bearer {address_of(server)['token']}"


def message_of(response: requests.Response) -> str:
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert document.keys() == {"errors"}
    return document["errors"][0]["message"]


def test_the_token_is_needed(server: UiServer) -> None:
    token = address_of(server)["token"]
    basic = base64.b64encode(f"anyone:{token}".encode()).decode()
    for value in (f"Bearer {token}", f"bearer  {token}", f"Basic {basic}"):
        assert send(server, authorization=value).status_code == 200
    missing = [None, "", "Bearer", f"Token {token}", "Basic ###", "Basic", token]
    for value in missing:
        response = send(server, authorization=value)
        assert response.status_code in (401, 403), value
        assert "HYPERPLANE_GRAPHQL_URL" in message_of(response)
    response = send(server)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    wrong = base64.b64encode(f"{token}:".encode()).decode()
    for value in (f"Bearer {token}x", "Bearer ü".encode(), f"Basic {wrong}", "Basic Og=="):
        assert send(server, authorization=value).status_code == 403
    for path in (f"/graphql?token={token}", f"/graphql?access_token={token}"):
        assert requests.post(server.origin + path, json=COUNT, timeout=60).status_code == 401


def test_cookie_and_token_of_the_page_are_of_no_use(server: UiServer) -> None:
    assert send(server, cookie=server.cookie, origin=server.origin).status_code == 403
    assert send(server, cookie=server.cookie).status_code == 401
    assert send(server, authorization=f"Bearer {server.token}").status_code == 403
    response = requests.get(f"{server.origin}/graphql?token={server.token}", timeout=60,
                            allow_redirects=False)  # fmt: skip
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    page = server.request("/", cookie=None, authorization=bearer(server))
    assert page.code == 401, "nor is the token of programs on the page"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "{origin}"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-origin"},
        {"host": "evil.example"},
        {"host": "evil.example:{port}"},
    ],
)
def test_browsers_and_other_hosts_are_refused_even_with_the_token(
    server: UiServer, headers: dict[str, str]
) -> None:
    given = {name: value.format(port=server.port, origin=server.origin)
             for name, value in headers.items()}  # fmt: skip
    for method in ("POST", "OPTIONS", "GET"):
        response = send(server, method, authorization=bearer(server), **given)
        assert response.status_code == 403
        assert not [name for name in response.headers if name.lower().startswith("access-control")]


def test_only_posts_are_answered(server: UiServer) -> None:
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        response = send(server, method, authorization=bearer(server))
        assert response.status_code == 405
        assert response.headers["allow"] == "POST"
    headers = {"authorization": bearer(server), "accept": "text/html"}
    address = f"{server.origin}/graphql?query=%7BcountJobs%7D"
    assert requests.get(address, timeout=60, headers=headers).status_code == 405
    for path in ("/graphql/", "/graphql/x", "//graphql"):
        response = requests.post(server.origin + path, json=COUNT, timeout=60,
                                 headers={"authorization": bearer(server)})  # fmt: skip
        assert response.status_code in (401, 403)


def test_responses_have_the_headers_of_the_page(server: UiServer) -> None:
    for response in (send(server), send(server, authorization=bearer(server))):
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "server" not in response.headers


def test_connections_of_another_user_are_closed(server: UiServer) -> None:
    authorization = bearer(server)

    def connect() -> str:
        try:
            return str(send(server, authorization=authorization).status_code)
        except requests.ConnectionError:
            return "closed"

    assert as_other_user(connect) == "closed"
    assert send(server, authorization=authorization).status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", 400, "is not JSON"),
        (b"{ countJobs }", 400, "is not JSON"),
        (b"\xff\xfe", 400, "is not JSON"),
        (b'{"query": ' + b"1" * 5_000 + b"}", 400, "is not JSON"),
        (b"[" * 100_000, 400, "is not JSON"),
        (b"[]", 400, "is not an object"),
        (b'"{ countJobs }"', 400, "is not an object"),
        (b"null", 400, "is not an object"),
        (b'[{"query": "{ countJobs }"}]', 400, "is not an object"),
        (b"{}", 400, "has no query"),
        (b'{"query": ""}', 400, "has no query"),
        (b'{"query": ["{ countJobs }"]}', 400, "query of the request is not text"),
        (b'{"query": "{ countJobs }", "variables": []}', 400, "variables of the request"),
        (b'{"query": "{ countJobs }", "operationName": {}}', 400, "operationName of the request"),
        (b'{"query": "{ countJobs }", "extensions": 1}', 400, "extensions of the request"),
        (b'{"query": "{ countJobs }", "variables": {"a": ' + b"[" * 40 + b"]" * 40 + b"}}", 400,
         "more than 30 levels"),
        (b'{"query": "' + b" " * (1 << 20) + b'"}', 413, "more than 1048576 bytes"),
    ],
)  # fmt: skip
def test_bodies_that_are_no_query_are_refused(
    server: UiServer, body: bytes, code: int, text: str
) -> None:
    response = send(server, body=body, authorization=bearer(server))
    assert response.status_code == code
    assert text in message_of(response)


def test_a_body_without_a_length_is_limited_too(server: UiServer) -> None:
    chunks = (b" " * (1 << 18) for _ in range(8))
    response = send(server, body=chunks, authorization=bearer(server))
    assert response.status_code == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "",
                                  "multipart/form-data; boundary=x"])  # fmt: skip
def test_bodies_of_forms_are_refused(server: UiServer, kind: str) -> None:
    # Browsers send these to other origins without asking the server first.
    response = send(server, authorization=bearer(server), content_type=kind)
    assert response.status_code == 400
    assert message_of(response) == "Unsupported content type"


@pytest.mark.parametrize(
    ("name", "text"),
    [("x", 'Unknown operation named "x".'), ("\ud800", "Unknown operation named"),
     ("x" * 5_000, "x" * 100)],
)  # fmt: skip
def test_an_unknown_operation_is_an_error_of_graphql(
    server: UiServer, name: str, text: str
) -> None:
    body = {"query": "query A { countJobs } query B { countJobs }", "operationName": name}
    response = send(server, body=json.dumps(body), authorization=bearer(server))
    assert response.status_code == 400
    assert text in message_of(response)
    assert len(response.content) < 400


def test_ids_that_no_database_can_have_are_errors_that_name_the_argument(server: UiServer) -> None:
    one = "query ($v: String!) { pipelineJob(where: {id: $v}) { id } }"
    cancel = """mutation ($v: String!) {
        updatePipelineJob(where: {id: $v}, data: {status: {set: "cancelled"}}) { id } }"""
    count = "query ($v: String!) { countJobs(whereOveride: {status: {equals: $v, in: [$v]}}) }"
    given = "'\\ud800': expected text that UTF-8 can encode"
    for query in (one, cancel):
        assert error_of(server, query, {"v": "\ud800"}).endswith(f" where.id = {given}")
    message = error_of(server, count, {"v": "\ud800"})
    assert f"whereOveride.status.equals = {given}" in message
    assert f"whereOveride.status.in = {given}" in message


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("{", "Syntax Error"),
        ("countJobs", "Syntax Error"),
        ("{ countJobs(", "Syntax Error"),
        ("{ absent }", "Cannot query field 'absent'"),
        ("{ countJobs { id } }", "countJobs"),
        ("{ pipelineJobs }", "selection of subfields"),
        ("subscription { countJobs }", "subscription"),
        ("query A { countJobs } query A { countJobs }", "only one operation named 'A'"),
        ("{ ...A } fragment A on Query { ...A }", "Cannot spread fragment 'A' within itself"),
        ("query ($x: Absent) { countJobs }", "Unknown type 'Absent'"),
        ("{ getJobStat(stat: COUNT_X, timeFrame: T_10M) }", "COUNT_X"),
        ("mutation { createPipelineJob(data: {}) { id } }", "pipelineYamlPath"),
        ("mutation { createPipelineJob(data: {pipelineYamlPath: null}) { id } }", "String!"),
        ('mutation { createPipelineJob(data: {pipelineYamlPath: "a", x: 1}) { id } }', "'x'"),
        ('mutation { createPipelineJob(data: {pipelineYamlPath: "a", timeout: "1"}) { id } }',
         "Int"),
        ("{ pipelineJobs(take: 1001) { id } }", "take = 1001"),
        ("{ pipelineJobs(take: -1) { id } }", "take = -1"),
        ("{ pipelineJobs(skip: -1) { id } }", "skip = -1"),
        ('{ countJobs(whereOveride: {startTime: {gte: "yesterday"}}) }', "yesterday"),
        ("{ countJobs(whereOveride: {AND: [" + "{}, " * 300 + "]}) }", "301 conditions"),
    ],
)  # fmt: skip
def test_faults_of_queries_are_errors(server: UiServer, query: str, text: str) -> None:
    message = error_of(server, query)
    assert text in message
    assert "Traceback" not in message
    assert "terminal of hyperplane ui" not in message


@pytest.mark.parametrize(
    "query",
    [
        "{ pipelineJobs { parentJob " * 60 + "{ id }" + "}" * 120,
        "{ __schema { types " + "{ fields { type " * 40 + "{ name }" + "} }" * 40 + "} }",
        "{" * 5_000,
        "{ countJobs(whereOveride: " + "{AND: [" * 2_000 + "]}" * 2_000 + ") }",
        "{ countJobs(whereOveride: " + "{AND: " * 400 + "{}" + "}" * 400 + ") }",
        "{ pipelineJobs(where: " + "[" * 3_000 + "]" * 3_000 + ") { id } }",
    ],
)
def test_deep_queries_are_refused_before_they_are_parsed(server: UiServer, query: str) -> None:
    response = post(server, query)
    assert response.status_code == 400
    assert "nested more than 30 levels" in message_of(response)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("{" + " ".join(f"a{n}: countJobs" for n in range(300)) + "}", "300 aliases"),
        ("{" + " countJobs" * 20_000 + "}", "tokens"),
        ("{ pipelineJobs" + "{ parentJob" * 10 + "{ id }" + "}" * 11, "depth"),
        ("{ __schema { types " + "{ fields { type " * 5 + "{ name }" + "} }" * 5 + "} }", "depth"),
    ],
)
def test_large_queries_are_refused(server: UiServer, query: str, text: str) -> None:
    message = error_of(server, query)
    assert text in message
    assert "Traceback" not in message


def fragments(levels: int) -> str:
    """Return a query whose fragments use the next one twice."""
    nested = [f"fragment f{n} on Query {{ ...f{n + 1} ...f{n + 1} }}" for n in range(levels)]
    return f"{{ ...f0 }} {' '.join(nested)} fragment f{levels} on Query {{ countJobs }}"


def test_many_fragments_are_refused_before_they_are_expanded(server: UiServer) -> None:
    assert "countJobs" in ask(server, fragments(9))
    for query in (fragments(10), fragments(22), "{" + "... { countJobs } " * 21 + "}"):
        response = post(server, query)
        assert response.status_code == 400
        assert "uses more than 20 fragments" in message_of(response)


def test_brackets_in_texts_are_no_nesting(server: UiServer) -> None:
    name = "({[..." * 30
    query = f'{{ countJobs(whereOveride: {{jobName: {{contains: "{name}"}}}}) }} # {name}'
    assert ask(server, query) == {"countJobs": 0}


def test_introspection_needs_the_token_like_all_queries(server: UiServer) -> None:
    from graphql import get_introspection_query

    query = {"query": get_introspection_query()}
    response = send(server, body=json.dumps(query), authorization=bearer(server))
    names = {each["name"] for each in response.json()["data"]["__schema"]["types"]}
    assert {"PipelineJob", "PipelineJobWhereInput", "HyperplaneVCServerWhereUniqueInput"} <= names
    assert send(server, body=json.dumps(query)).status_code == 401


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"jobName": None}, "jobName"),
        ({"jobName": 1}, "jobName"),
        ({"jobName": "a" * 64}, "up to 63 letters"),
        ({"jobName": "a b\n"}, "jobName = "),
        ({"jobName": "<script>"}, "jobName = '<script>'"),
        ({"type": "x" * 65}, "jobType = "),
        ({"timeout": 2**31}, "timeout"),
        ({"timeout": 1e400}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": -2}, "timeout = -2"),
        ({"timeout": 86_401}, "timeout = 86401"),
        ({"activeTimeout": 0}, "activeTimeout = 0"),
        ({"maxRetries": -1}, "maxRetries = -1"),
        ({"yamlPath": ""}, "pipelineYamlPath"),
        ({"yamlPath": "a\0.sh"}, "pipelineYamlPath"),
        ({"yamlPath": "\ud800.sh"}, "pipelineYamlPath"),
        ({"yamlPath": "/etc"}, "pipelineYamlPath"),
        ({"yamlPath": "x" * 10_000 + ".sh"}, "pipelineYamlPath"),
        ({"workingDir": "\0"}, "workingDir"),
        ({"workingDir": "/absent"}, "workingDir"),
        ({"parameters": {"create": [{"key": "", "value": "1"}]}}, "a name that is text"),
        ({"parameters": {"create": [{"key": "a", "value": "\0"}]}}, "NUL"),
        ({"parameters": {"create": [{"key": "a", "value": "\ud800"}]}}, "UTF-8"),
        ({"parameters": {"create": [{"key": "a", "value": "x" * 200_000}]}}, "at most 120000"),
        ({"parameters": {"create": [{"key": "a", "value": 1}]}}, "parameters"),
        ({"parameters": {"create": [{"key": "a"}]}}, "parameters"),
        ({"parameters": {"create": [{"key": "a b", "value": "1"}, {"key": "a-b", "value": "2"}]}},
         "names that differ as variables"),
        ({"branchName": 7}, "branchName"),
        ({"hyperplaneVCServerId": "x"}, "hyperplaneVCServerId"),
        ({"notificationsEnabled": True, "notificationTargetIds": ["slack:"]}, "slack:#channel"),
        ({"notificationTargetIds": ["", None]}, "notificationTargetIds"),
        ({"schedule": "*/30***"}, "hyperplane job schedule"),
    ],
)  # fmt: skip
def test_odd_values_of_variables_are_errors_that_name_the_argument(
    server: UiServer, variables: dict[str, Any], text: str
) -> None:
    errors = errors_of(server, CREATE, {**VARIABLES, **variables})
    message = "\n".join(each["message"] for each in errors)
    assert text in message
    assert "Traceback" not in message
    assert "terminal of hyperplane ui" not in message


def test_the_terminal_has_no_queries_and_no_tokens(
    start_server: Callable[..., UiServer],
) -> None:
    server = start_server()
    token = address_of(server)["token"]
    post(server, CREATE, {**VARIABLES, "yamlPath": "absent.sh", "jobName": "s3cret"})
    post(server, "{ absent }")
    send(server, authorization="Bearer wrong")
    code, out, err = server.end()
    assert (code, out, err) == (0, "", "")
    assert token not in out + err
