"""Engines by name: built-in ones, and those of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from hyperplane import RequestError
from hyperplane.clusters import registry
from hyperplane.clusters.dask.local.engine import LocalEngine


class OtherEngine(LocalEngine):
    name = "other"


@pytest.fixture
def outsiders(monkeypatch: pytest.MonkeyPatch) -> None:
    value = f"{__name__}:OtherEngine"
    points = EntryPoints([EntryPoint(name, value, registry.GROUP) for name in ("other", "local")])
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_every_row_loads() -> None:
    for name in registry.BUILT_IN:
        assert registry.load(name).name == name


@pytest.mark.usefixtures("outsiders")
def test_another_package_adds_an_engine_and_cannot_replace_ours() -> None:
    assert registry.names() == [*registry.BUILT_IN, "other"]
    assert type(registry.load("other")).__name__ == "OtherEngine"
    assert type(registry.load("local")) is LocalEngine


def test_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean local"):
        registry.load("locl")
