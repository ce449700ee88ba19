"""Batches of concurrent requests, and the settings of a server; no server runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from hyperplane.errors import RequestError
from hyperplane.ml import ModelRegistry
from hyperplane.ml.prediction.rows import Predictions
from hyperplane.ml.serving import application, batching, served_models
from hyperplane.ml.serving.batching import Batcher, BatcherClosed, TooManyRequests, form_of
from hyperplane.ml.serving.request_body import make_response
from hyperplane.ml.serving.serve_metrics import ServeMetrics
from hyperplane.ml.serving.serve_settings import ServeSettings, make_settings
from hyperplane.ml.serving.served_models import ModelNotFound, ServedModels

SETTINGS: dict[str, Any] = {
    "registry": None, "host": "127.0.0.1", "port": 0, "token": None, "batch_size": 4,
    "batch_wait_ms": 0, "max_body": "1kB", "max_instances": 10, "workers": 1, "trusted": False,
    "name": None, "storage_options": None, "certificate": None, "key": None,
}  # fmt: skip
#: A value that exceeds the recursion limit.
NESTED = functools.reduce(lambda inner, _: {"a": inner}, range(2000), 1)


class Model:
    """A model that waits until it may predict, and records its batches."""

    columns = None

    def __init__(self) -> None:
        self.may_predict, self.batches = threading.Event(), list[list[Any]]()

    def predict(self, rows: Any) -> np.ndarray:
        self.may_predict.wait(60)
        self.batches.append(rows.tolist())
        if rows.dtype.kind != "f" and rows.dtype.kind != "i":
            raise ValueError("not numbers")
        return rows.sum(axis=1)

    def empty(self) -> None:
        return None


def predict(model: Model, requests: list[list[Any]], **options: Any) -> list[Predictions]:
    """Predict requests that arrive while the model predicts another one."""

    async def run() -> list[Predictions]:
        batcher = Batcher(model, 4, 0, **options)
        first = asyncio.create_task(batcher.predict([[0.0, 0.0]]))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(batcher.predict(each)) for each in requests]
        await asyncio.sleep(0)
        model.may_predict.set()
        await first
        try:
            return await asyncio.gather(*others)
        finally:
            batcher.close()

    return asyncio.run(run())


def test_requests_that_wait_are_joined_up_to_the_size_of_a_batch() -> None:
    model, sizes = Model(), list[int]()
    requests = [[[float(n), 1.0]] for n in range(3)] + [[[9.0, 1.0], [8.0, 1.0]], [[7.0, 1.0]]]
    found = predict(model, requests, observe=sizes.append)
    values = [[value for _, value in each.values] for each in found]
    assert values == [[1.0], [2.0], [3.0], [10.0, 9.0], [8.0]]
    assert sizes == [1, 3, 3]


def test_an_instance_that_is_refused_fails_its_request_only() -> None:
    model = Model()
    found = predict(model, [[[1.0, 1.0]], [["x", 1.0]], [[2.0, 1.0], [None, 1.0]], [[3.0, 1.0]]])
    assert [each.values for each in found] == [[(0, 2.0)], [], [(0, 3.0)], [(0, 4.0)]]
    assert [len(each.errors) for each in found] == [0, 1, 1, 0]


def test_only_the_first_refused_instances_are_looked_for() -> None:
    model = Model()
    (found,) = predict(model, [[["x", 1.0]] * 1000])
    assert [number for number, _ in found.errors] == list(range(11))
    assert len(model.batches) < 50
    assert make_response(found)["error"].endswith("and at least 1 more")


def test_a_request_is_answered_if_its_size_cannot_be_recorded() -> None:
    def fail(size: int) -> None:
        raise OSError(28, "No space left on device")

    (found,) = predict(Model(), [[[1.0, 1.0]]], observe=fail)
    assert found.values == [(0, 2.0)]


def test_instances_of_other_types_do_not_change_those_of_a_request() -> None:
    model = Model()
    predict(model, [[[1, 2]], [[1.5, 2.0]]])
    assert [1.5, 2.0] in [row for batch in model.batches for row in batch]
    assert [[1, 2]] in model.batches
    assert type(model.batches[1][0][0]) is int


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([{"a": 1, "b": "x"}], [{"a": 2, "b": "y"}, {"a": 3, "b": "z"}], True),
        ([{"a": 1, "b": "x"}], [{"b": "x", "a": 1}], False),
        ([{"a": 1}], [{"a": 1.0}], False),
        ([{"a": 1}], [{"a": True}], False),
        ([{"a": 1}], [{"a": 2**63}], False),
        ([[1, [2, 3]]], [[4, [5, 6]]], True),
        ([[1, [2, 3]]], [[4, [5.0, 6]]], False),
        ([[1, 2]], [[1, 2, 3]], False),
        ([[1], [1, 2]], [[1], [1, 2]], False),
        (["text"], ["other"], True),
        ([{"a": {"b": 1}}], [{"a": {"b": "x"}}], False),
        ([NESTED], [NESTED], False),
    ],
)
def test_only_requests_of_the_same_form_are_joined(one: Any, other: Any, equal: bool) -> None:
    assert (form_of(one) == form_of(other)) is equal


def test_further_requests_are_refused_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_WAITING", 2)
    with pytest.raises(TooManyRequests):
        predict(Model(), [[[1.0, 1.0]]] * 3)


def test_a_closed_batcher_answers_earlier_requests_only() -> None:
    async def run() -> None:
        model = Model()
        batcher = Batcher(model, 2, 0)
        earlier = [asyncio.create_task(batcher.predict([[float(n), 1.0]])) for n in range(5)]
        await asyncio.sleep(0.05)
        batcher.close()
        with pytest.raises(BatcherClosed):
            await batcher.predict([[1.0, 1.0]])
        model.may_predict.set()
        found = await asyncio.gather(*earlier)
        assert [each.values for each in found] == [[(0, n + 1.0)] for n in range(5)]

    asyncio.run(run())


def test_a_model_is_named_by_its_file_folder_or_version(tmp_path: Path, flights: Any) -> None:
    version = ModelRegistry(tmp_path / "models").create("delay", flights.url)
    shutil.copy(tmp_path / "model" / "model.skops", tmp_path / "late flights.skops")
    titles = {
        tmp_path / "model" / "model.skops": "model 1",
        tmp_path / "late flights.skops": "late-flights 1",
        tmp_path / "model": "model 1",
        tmp_path / "models" / "delay" / "v1": "delay v1",
        tmp_path / "models" / "delay" / "v1" / version.file: f"{Path(version.file).stem} 1",
        tmp_path / "models" / "delay": "delay, by default v1",
    }
    for path, title in titles.items():
        models = ServedModels(make_settings(path, **SETTINGS), lambda name: lambda count: None)
        models.open()
        assert models.title == title


def test_unloaded_versions_are_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flights: Any
) -> None:
    monkeypatch.setattr(served_models, "_MAX_OTHERS", 1)
    registry = ModelRegistry(tmp_path / "models")
    for version in ("v1", "v2", "v3"):
        registry.create("m", flights.url, version)
    given = {**SETTINGS, "registry": tmp_path / "models"}
    models = ServedModels(make_settings("m", **given), lambda name: lambda count: None)
    models.open()

    async def run() -> None:
        first = await models.get("m", "v2")
        await models.get("m", "v3")
        with pytest.raises(BatcherClosed):
            await first.batcher.predict([[1, 1]])
        again = await models.get("m", "v2")
        assert again is not first
        assert (await again.batcher.predict([[1, 1]])).values[0][1] == pytest.approx(1)
        with pytest.raises(ModelNotFound, match="expected one of v1, v2, v3"):
            await models.get("m", "v4")
        with pytest.raises(ModelNotFound, match="this server has m"):
            await models.get("other")

    asyncio.run(run())


def test_all_faults_of_the_settings_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERPLANE_SERVE_TOKEN", raising=False)
    bad = {
        "host": "0.0.0.0", "port": 70_000, "batch_size": 0, "batch_wait_ms": -1, "max_body": "x",
        "max_instances": 0, "workers": 0, "trusted": "no", "name": "a b",
        "storage_options": {"a": object()},
    }  # fmt: skip
    with pytest.raises(RequestError) as caught:
        make_settings(None, **{**SETTINGS, **bad})
    assert {fault.where for fault in caught.value.faults} == {"model", *bad}
    with pytest.raises(RequestError, match="visible ASCII") as caught:
        make_settings("m", **{**SETTINGS, "token": "a secret"})
    assert "a secret" not in str(caught.value)


def test_the_token_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPLANE_SERVE_TOKEN", "of-the-environment")
    settings = make_settings("m", **{**SETTINGS, "host": "0.0.0.0"})
    assert settings.token == "of-the-environment"
    assert "of-the-environment" not in repr(settings)


def run_application(flights: Any, receive: Any, act: Any = None) -> tuple[int, Any, str]:
    """Return status and content of the response to a request, and the metrics."""
    pytest.importorskip("starlette")
    settings = ServeSettings(**make_settings(flights.url, **SETTINGS).to_dict())
    metrics = ServeMetrics()
    models = ServedModels(settings, metrics.observe_batches)
    models.open()
    app = application.create_application(settings, models, metrics, lambda: None)
    scope = {
        "type": "http", "method": "POST", "path": "/v1/models/model:predict", "headers": [],
        "query_string": b"", "root_path": "", "asgi": {"version": "3.0"}, "http_version": "1.1",
    }  # fmt: skip
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        task = asyncio.create_task(app(scope, receive, send))
        if act is not None:
            await act(task, models, lambda: app(scope, receive, send))
        await task

    with contextlib.suppress(RuntimeError):
        asyncio.run(run())
    return sent[0]["status"], json.loads(sent[1]["body"]), metrics.render().decode()


@pytest.mark.slow
def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch, flights: Any) -> None:
    monkeypatch.setattr(application, "BODY_SECONDS", 0.05)
    sent_body = threading.Event()

    async def receive() -> Any:
        if sent_body.is_set():
            await asyncio.sleep(60)
        sent_body.set()
        return {"type": "http.request", "body": b"{", "more_body": True}

    code, content, metrics = run_application(flights, receive)
    assert code == 408
    assert "did not arrive" in content["error"]
    assert 'requests_total{code="408",model="model",version="1"} 1.0' in metrics


async def receive_instances() -> Any:
    return {"type": "http.request", "body": b'{"instances": [[1, 1]]}', "more_body": False}


def test_a_request_that_cannot_be_answered_before_the_end_is_refused(flights: Any) -> None:
    async def cancel(task: Any, models: Any, repeat: Any) -> None:
        (await models.get("model")).batcher.predict = lambda instances: asyncio.sleep(60)
        await asyncio.sleep(0.05)
        task.cancel()

    code, content, metrics = run_application(flights, receive_instances, cancel)
    assert (code, content) == (503, {"error": "the server is stopping; send the request again"})
    assert 'requests_total{code="503",model="model",version="1"} 1.0' in metrics


def test_the_bodies_of_all_requests_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, flights: Any
) -> None:
    monkeypatch.setattr(application, "MAX_BODIES", 1000)  # which is --max-body, too
    calls, may_end = itertools.count(), asyncio.Event()

    async def receive() -> Any:
        if (number := next(calls)) == 1:
            await may_end.wait()
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": b" " * 600, "more_body": number == 0}

    async def request_again(task: Any, models: Any, repeat: Any) -> None:
        await asyncio.sleep(0.05)
        await repeat()
        may_end.set()
        await task
        await repeat()

    code, content, metrics = run_application(flights, receive, request_again)
    assert code == 503
    assert "waiting requests exceed 1,000 bytes" in content["error"]
    assert 'requests_total{code="400",model="model",version="1"} 2.0' in metrics


def test_unexpected_errors_are_counted(monkeypatch: pytest.MonkeyPatch, flights: Any) -> None:
    async def fail(task: Any, models: Any, repeat: Any) -> None:
        # Not an error of the instance. This process keeps the predictor for later tests.
        predictor = (await models.get("model")).predictor
        monkeypatch.setattr(predictor, "predict", mock.Mock(side_effect=MemoryError))

    code, content, metrics = run_application(flights, receive_instances, fail)
    assert code == 500
    assert content["error"].startswith("internal error")
    assert 'requests_total{code="500",model="model",version="1"} 1.0' in metrics


def test_a_default_version_that_cannot_be_loaded_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flights: Any, caplog: Any
) -> None:
    monkeypatch.setattr(served_models, "REFRESH_SECONDS", 0.01)
    skipped = [0.0]  # seconds
    clock = mock.Mock(wraps=time)
    clock.monotonic = lambda: time.monotonic() + skipped[0]
    monkeypatch.setattr(served_models, "time", clock)
    monkeypatch.setattr(served_models, "_RETRY_SECONDS", 600.0)
    registry = ModelRegistry(tmp_path / "models")
    registry.create("m", flights.url)
    given = {**SETTINGS, "registry": tmp_path / "models"}
    models = ServedModels(make_settings("m", **given), lambda name: lambda count: None)
    models.open()
    errors = []
    valid_load, load = models._load, mock.Mock(side_effect=MemoryError("too large"))

    async def run() -> None:
        task = asyncio.create_task(models.follow_defaults(lambda: errors.append(1)))
        monkeypatch.setattr(models, "_load", load)
        registry.create("m", flights.url, "v2", default=True)
        while len(errors) < 5:
            await asyncio.sleep(0.01)
        load.assert_called_once()  # it is not read in each round
        assert (await models.get("m")).version == "v1"
        skipped[0] = 700.0
        while load.call_count < 2:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(models, "_load", valid_load)
        skipped[0] = 1400.0
        while (await models.get("m")).version != "v2":
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert [record.message for record in caplog.records] == [
        "m stays at version v1: too large", "the default version of m is now v2"
    ]  # fmt: skip
