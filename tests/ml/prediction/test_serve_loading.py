"""Versions of models that take long to load, while other requests are answered."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from test_serve_batches import SETTINGS

from hyperplane.ml import ModelRegistry
from hyperplane.ml.serving import served_models
from hyperplane.ml.serving.serve_settings import make_settings
from hyperplane.ml.serving.served_models import ModelNotFound, ServedModels


class SlowVersion:
    """Replaces the function that loads a version; one version waits until it may be loaded."""

    def __init__(self, models: ServedModels, version: str, monkeypatch: Any) -> None:
        self.may_load, self.calls = threading.Event(), list[str]()
        load = models._load

        def load_slowly(name: str, found: str, url: str) -> Any:
            self.calls.append(found)
            if found == version and not self.may_load.wait(60):
                raise TimeoutError
            return load(name, found, url)

        monkeypatch.setattr(models, "_load", load_slowly)


@pytest.fixture
def models(tmp_path: Path, flights: Any) -> ServedModels:
    registry = ModelRegistry(tmp_path / "models")
    for version in ("v1", "v2", "v3"):
        registry.create("m", flights.url, version)
    given = {**SETTINGS, "registry": tmp_path / "models"}
    models = ServedModels(make_settings("m", **given), lambda name: lambda count: None)
    models.open()
    return models


def test_requests_for_a_version_that_is_loading_do_not_delay_others(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowVersion(models, "v2", monkeypatch)

    async def run() -> None:
        # More than there are threads for functions that wait.
        waiting = [asyncio.create_task(models.get("m", "v2")) for _ in range(100)]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(30):
            assert (await models.get("m")).version == "v1"
            assert (await models.get("m", "v3")).version == "v3"
            assert len(await models.list_versions("m")) == 3
            assert await asyncio.to_thread(lambda: "metrics") == "metrics"
            with pytest.raises(ModelNotFound):
                await models.get("m", "v4")
        assert not any(task.done() for task in waiting)
        slow.may_load.set()
        assert len({id(served) for served in await asyncio.gather(*waiting)}) == 1

    asyncio.run(run())
    assert slow.calls == ["v2", "v3"]


def test_a_request_that_ends_early_does_not_end_the_load_for_others(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowVersion(models, "v2", monkeypatch)

    async def run() -> None:
        first, second = (asyncio.create_task(models.get("m", "v2")) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        slow.may_load.set()
        assert (await second).version == "v2"
        assert first.cancelled()

    asyncio.run(run())
    assert slow.calls == ["v2"]


def test_a_new_default_version_that_loads_slowly_delays_nothing(
    models: ServedModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_models, "REFRESH_SECONDS", 0.01)
    slow = SlowVersion(models, "v3", monkeypatch)

    async def run() -> None:
        task = asyncio.create_task(models.follow_defaults(lambda: None))
        ModelRegistry(tmp_path / "models").set_default("m", "v3")
        while "v3" not in slow.calls:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            assert (await models.get("m")).version == "v1"
            assert (await models.get("m", "v2")).version == "v2"
        slow.may_load.set()
        while (await models.get("m")).version != "v3":
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(run())


def test_all_requests_for_a_version_that_cannot_be_loaded_get_its_error(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: str) -> Any:
        calls.append(arguments)
        raise OSError("the folder is gone")

    calls: list[Any] = []
    monkeypatch.setattr(models, "_load", fail)

    async def run() -> list[Any]:
        waiting = [models.get("m", "v2") for _ in range(20)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = asyncio.run(run())
    assert {str(error) for error in found} == {"the folder is gone"}
    assert len(calls) == 1
