"""``hyperplane serve`` with a registry: one server process, real requests."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from prediction_cases import Flights
from serve_requests import Answer, Server, running_command
from sklearn.linear_model import LinearRegression
from subprograms import wait_until

from hyperplane.ml import ModelRegistry

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.process

TOKEN = "a-token-of-the-tests"
COLUMNS = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 5.0, 3.0]})


def fit(factor: float, columns: Any = COLUMNS) -> Any:
    """Return a model that predicts the factor times (a + 10 b)."""
    values = np.asarray(columns)
    return LinearRegression().fit(columns, factor * (values[:, 0] + 10 * values[:, 1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    models = ModelRegistry(folder / "models")
    models.create("named", fit(1))
    models.create("named", fit(2))
    models.create("array", fit(3, COLUMNS.to_numpy()))
    models.create("switched", fit(1))
    (folder / "token").write_text(TOKEN + "\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    arguments = ["--registry", str(folder / "models"), "--token-file", str(folder / "token")]
    limits = ["--max-body", "20kB", "--max-instances", "50"]
    with running_command(folder, *arguments, *limits) as running:
        running.token = TOKEN
        yield running


@pytest.mark.slow
def test_concurrent_requests_get_their_own_predictions(server: Server) -> None:
    # Every seventh request has a bad instance; forms and models are mixed.
    def request(number: int) -> tuple[int, Any, Any]:
        value = float(number)
        path = "/v1/models/named:predict" if number % 3 else "/v1/models/array:predict"
        factor = 1 if number % 3 else 3
        rows: list[Any] = [[value, 1.0], [value + 0.5, 2.0]]
        if number % 3 == 1:
            rows = [{"b": b, "a": a} for a, b in rows]
        if number % 7 == 0:
            rows[1] = None
        if not hasattr(local, "connection"):
            local.connection = server.connect()
            connections.append(local.connection)
        answer = server.send(local.connection, path, {"instances": rows})
        return answer.code, answer.content, [factor * (value + 10), factor * (value + 20.5)]

    local, connections = threading.local(), []
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(request, range(300)))
    for connection in connections:
        connection.close()
    for number, (code, content, expected) in enumerate(answers):
        if number % 7 == 0:
            assert (code, list(content)) == (400, ["error"])
            assert content["error"].startswith("instance 1: ")
        else:
            assert code == 200, content
            np.testing.assert_allclose(content["predictions"], expected, rtol=1e-9)
    counted = dict(
        line.rsplit(" ", 1)
        for line in server.request("/metrics").text.splitlines()
        if not line.startswith("#")
    )
    answered = 'hyperplane_serve_requests_total{code="200",model="named",version="v1"}'
    batches = [float(counted[f'hyperplane_serve_batch_instances_count{{model="{name}"}}'])
               for name in ("named", "array")]  # fmt: skip
    assert float(counted[answered]) >= 172
    assert float(counted['hyperplane_serve_refused_instances_total{model="array"}']) == 15
    assert sum(batches) < 275, "no requests were predicted together"


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"no", 400, "the body is not JSON"),
        (b"\xff", 400, "the body is not JSON"),
        (b'{"instances": [[NaN, 1]]}', 400, "NaN is not a value of JSON"),
        (b"[1]", 400, 'expected an object with "instances"'),
        ({"instances": []}, 400, "at least one instance"),
        ({"inputs": [1], "signature_name": "x"}, 400, "serving_default"),
        ({"inputs": [1], "signature_name": "x"}, 400, "unknown key 'inputs'"),
        ({"instances": [[1, 2]] * 51}, 400, "at most 50 instances, found 51"),
        ({"instances": [[1, 2], [1]]}, 400, "instance 1: ValueError: the instance has 1 values"),
        ({"instances": [{"a": 1}]}, 400, "instance 0: ValueError: the instance has no 'b'"),
        (b" " * 20_001, 413, "at most 20,000 bytes"),
        (b'{"instances": [[1, 2], [-1e400, 1]]}', 400, "the number -1e400 exceeds 1.798e+308"),
        (b'{"instances": [' + b'{"a": ' * 900 + b"1" + b"}" * 900 + b"]}", 400, "instance 0: "),
        (b'{"instances": ' + b"[" * 9_000 + b"]" * 9_000 + b"}", 400, "recursion"),
        (b'{"instances": [[' + b"9" * 5_000 + b", 1]]}", 400, "the body is not JSON"),
    ],
)
def test_invalid_requests_are_refused_with_the_reason(
    server: Server, body: Any, code: int, text: str
) -> None:
    answer = server.request("/v1/models/named:predict", body)
    assert answer.code == code
    assert text in answer.content["error"]


def test_a_compressed_body_is_refused(server: Server) -> None:
    connection = server.connect()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Encoding": "gzip"}
    connection.request("POST", "/v1/models/named:predict", gzip.compress(b"{}"), headers)
    with connection.getresponse() as response:
        assert response.status == 415
        assert "without compression" in json.load(response)["error"]
    connection.close()


def test_a_body_without_a_length_is_refused_when_it_becomes_too_large(server: Server) -> None:
    connection = server.connect()
    chunks = iter([b"x" * 10_000] * 3)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", "/v1/models/named:predict", chunks, headers, encode_chunked=True)
    with connection.getresponse() as response:
        assert response.status == 413
    connection.close()


@pytest.mark.parametrize(("token", "code"), [(TOKEN, b"413"), ("wrong", b"401")])
def test_a_refused_client_can_send_its_whole_body_before_it_reads(
    server: Server, token: str, code: bytes
) -> None:
    # More than the buffers of the sockets: a closed connection would be an error of sendall.
    size = 20_000_000
    head = (
        "POST /v1/models/named:predict HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {size}\r\n\r\n"
    )
    connection = server.connect()
    connection.connect()
    connection.sock.sendall(head.encode() + b"x" * size)
    assert connection.sock.recv(1000).split()[1] == code
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/models/no:predict", {"instances": [1]}, 404),
        ("/v1/models/..:predict", {"instances": [1]}, 404),
        ("/v1/models/named/versions/v9:predict", {"instances": [1]}, 404),
        ("/v1/models/no", None, 404),
        ("/v1/models/named/versions/v9", None, 404),
        ("/other", None, 404),
        ("/healthz/", None, 404),  # no redirect to the host that the client names
        ("/healthz", {"a": 1}, 405),
        ("/v1/models/named:predict", None, 405),
        ("/v1/models/named/versions/v1:predict", None, 405),
    ],
)
def test_unknown_models_and_paths_are_reported(
    server: Server, path: str, body: Any, code: int
) -> None:
    answer = server.request(path, body)
    assert answer.code == code
    assert answer.content["error"]


@pytest.mark.parametrize("token", ["", "x", TOKEN + "x", TOKEN[:-1]])
def test_requests_without_the_token_are_refused(server: Server, token: str) -> None:
    plain = Server(server.url)
    for path, body in (("/v1/models/named:predict", {"instances": [[1, 2]]}), ("/metrics", None)):
        answer = plain.request(path, body, token=token)
        assert answer.code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert [plain.request(path).code for path in ("/healthz", "/ready")] == [200, 200]


@pytest.mark.parametrize(
    ("header", "code"),
    [(f"bearer {TOKEN}", 200), (f"Basic {TOKEN}", 401), (TOKEN, 401), ("Bearer", 401)],
)
def test_the_scheme_of_the_token_is_checked(server: Server, header: str, code: int) -> None:
    connection = server.connect()
    connection.request("GET", "/metrics", headers={"Authorization": header})
    with connection.getresponse() as response:
        assert response.status == code
    connection.close()


def test_the_token_is_neither_in_the_log_nor_in_the_process_list(
    server: Server, folder: Path
) -> None:
    assert server.process is not None
    assert TOKEN not in " ".join(psutil.Process(server.process.pid).cmdline())
    assert TOKEN not in (folder / "serve.log").read_text()


def request_with_id(server: Server, path: str, value: str, **options: Any) -> Answer:
    return server.request(path, {"instances": [[1, 2]]}, **options, **{"X-Request-Id": value})


def test_all_responses_have_the_id_of_the_request(server: Server) -> None:
    path = "/v1/models/named:predict"
    for options, code in (({}, 200), ({"token": "x"}, 401), ({"method": "GET"}, 405)):
        answer = request_with_id(server, path, "Root=1-67/8+9_a.b:c", **options)
        assert (answer.code, answer.headers["x-request-id"]) == (code, "Root=1-67/8+9_a.b:c")
    assert request_with_id(server, "/no", "order-7").headers["x-request-id"] == "order-7"
    # Other ids are replaced: they could forge log lines, or fill the log.
    made = [server.request("/healthz").headers["x-request-id"]]
    for value in ("", "a b", 'a"', "x" * 129, "é", "a,b", "%0a"):
        made.append(request_with_id(server, path, value).headers["x-request-id"])
    assert len(set(made)) == len(made) == 8
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)
    assert request_with_id(server, path, "x" * 128).headers["x-request-id"] == "x" * 128


def test_the_log_has_the_id_and_the_reason_of_a_failed_request(
    server: Server, folder: Path
) -> None:
    ModelRegistry(folder / "models").create("damaged", fit(1))
    for file in (folder / "models" / "damaged" / "v1").glob("model-*"):
        file.write_bytes(b"damaged")
    path = "/v1/models/damaged/versions/v1:predict"
    for number in range(2):
        answer = request_with_id(server, path, f"order-{number}")
        assert (answer.code, answer.content["error"]) == (
            503, "the model cannot be loaded; see the log of the server"
        )  # fmt: skip
    lines = (folder / "serve.log").read_text().splitlines()
    found = [line for line in lines if line.startswith("WARNING: request order-")]
    assert found[0].startswith(
        f"WARNING: request order-0: 503 for {path}: damaged cannot be loaded:"
    )
    assert "was changed since the version was created" in found[0]
    assert found[1:] == [
        f"WARNING: request order-1: 503 for {path}: damaged could not be loaded some seconds ago"
    ]
    # A request that a client has made wrongly leaves no line.
    request_with_id(server, "/v1/models/no:predict", "order-2")
    assert "order-2" not in (folder / "serve.log").read_text()


def test_versions_are_listed_and_predicted(server: Server) -> None:
    status = server.request("/v1/models/named").content["model_version_status"]
    assert [(each["version"], each["default"], each["state"]) for each in status] == [
        ("v1", True, "AVAILABLE"), ("v2", False, "AVAILABLE")
    ]  # fmt: skip
    one = server.request("/v1/models/named/versions/v2").content["model_version_status"]
    assert [each["columns"] for each in one] == [["a", "b"]]
    answer = server.request("/v1/models/named/versions/v2:predict", {"instances": [[1, 1]]})
    np.testing.assert_allclose(answer.content["predictions"], [22])
    assert answer.headers["x-model-version"] == "v2"


@pytest.mark.slow
def test_a_new_default_version_is_used_without_a_restart(server: Server, folder: Path) -> None:
    models = ModelRegistry(folder / "models")
    assert server.predict([[1, 1]], "switched").headers["x-model-version"] == "v1"
    models.create("switched", fit(5), default=True)
    wait_until(lambda: server.predict([[1, 1]], "switched").headers["x-model-version"] == "v2", 120)
    np.testing.assert_allclose(server.predict([[1, 1]], "switched").content["predictions"], [55])
    # A version that cannot be loaded does not replace the one before.
    models.create("switched", fit(6), default=True)
    for file in (folder / "models" / "switched" / "v3").glob("model-*"):
        file.write_bytes(b"damaged")
    wait_until(lambda: "stays at version" in (folder / "serve.log").read_text(), 120)
    assert server.predict([[1, 1]], "switched").code == 200


def test_models_of_later_versions_of_the_registry_are_found(server: Server, folder: Path) -> None:
    ModelRegistry(folder / "models").create("later", fit(7))
    np.testing.assert_allclose(server.predict([[1, 1]], "later").content["predictions"], [77])


@pytest.mark.slow
def test_served_predictions_equal_those_of_the_model(
    server: Server, flights: Flights, folder: Path
) -> None:
    ModelRegistry(folder / "models").create("flights", flights.url)
    frame = flights.frames[0].drop(index=flights.refused)[["b", "a", "name"]]
    rows = frame.to_dict("records")
    found = server.predict(rows, "flights").content["predictions"]
    np.testing.assert_allclose(found, flights.model.predict(frame[["a", "b"]]), rtol=1e-12)
