"""Registries: built-in classes, those of other packages, and names that are wrong."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from hyperplane.core import registry
from hyperplane.core.registry import Registry
from hyperplane.errors import RequestError
from hyperplane.spec.pool import PoolSpec

GROUP = "example.pools"
POOLS: Registry[PoolSpec] = Registry(
    "pool", GROUP, {"small": "hyperplane.spec.pool:PoolSpec"}, other_values=("any",)
)


class OtherPool:
    """A class of another package."""


@pytest.fixture
def other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "large": f"{__name__}:OtherPool",
        "small": f"{__name__}:OtherPool",
        "broken": "no_such_package_at_all:Pool",
        "renamed": f"{__name__}:NoSuchClass",
    }
    found = EntryPoints([EntryPoint(name, value, GROUP) for name, value in points.items()])
    monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))


def test_a_built_in_class_is_imported_on_first_use() -> None:
    lazy: Registry[object] = Registry("x", GROUP, {"odd": "sndhdr_that_does_not_exist:X"})
    assert lazy.names() == ["odd"]
    assert POOLS.load("small") is PoolSpec


@pytest.mark.usefixtures("other_packages")
def test_another_package_adds_a_class() -> None:
    assert POOLS.names() == ["small", "large", "broken", "renamed"]
    assert POOLS.load("large") is getattr(sys.modules[__name__], "OtherPool")  # noqa: B009


@pytest.mark.usefixtures("other_packages")
def test_another_package_cannot_replace_a_built_in_class() -> None:
    assert POOLS.load("small") is PoolSpec


@pytest.mark.usefixtures("other_packages")
@pytest.mark.parametrize("name", ["broken", "renamed"])
def test_a_class_that_cannot_be_imported_is_named(name: str) -> None:
    with pytest.raises(RequestError, match="cannot be imported"):
        POOLS.load(name)


def test_an_unknown_name_is_an_error_that_proposes_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean small") as failed:
        POOLS.load("smal")
    (fault,) = failed.value.faults
    assert (fault.where, fault.asked, fault.allowed) == ("pool", "'smal'", "one of any, small")


@pytest.mark.parametrize("value", [None, 3, b"small", ["small"]])
def test_a_name_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="a name, as text"):
        POOLS.load(value)


def _install(folder: Path, name: str) -> Path:
    """Write a package with one entry point of the name."""
    package = folder / f"{name}-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {__name__}:OtherPool\n")
    return package


def _set_time(folder: Path, seconds: int) -> None:
    """Set the time of the last change, which file systems may round."""
    os.utime(folder, (seconds, seconds))


def test_packages_are_found_when_they_are_installed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path / "one", "large")
    assert POOLS.names() == ["small"]
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    _set_time(tmp_path / "one", 1)
    assert POOLS.names() == ["small", "large"]
    added = _install(tmp_path / "one", "huge")
    _set_time(tmp_path / "one", 2)
    assert sorted(POOLS.names()) == ["huge", "large", "small"]
    shutil.rmtree(added)
    _set_time(tmp_path / "one", 3)
    assert POOLS.names() == ["small", "large"]


def test_packages_are_found_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("large", "huge"):
        _install(tmp_path / name, name)
    monkeypatch.syspath_prepend("")
    for name in ("large", "huge"):
        monkeypatch.chdir(tmp_path / name)
        assert POOLS.names() == ["small", name]


def test_packages_are_listed_once_for_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []

    def list_points(**selected: Any) -> EntryPoints:
        groups.append(selected["group"])
        return EntryPoints()

    monkeypatch.setattr(importlib.metadata, "entry_points", list_points)
    other: Registry[PoolSpec] = Registry("pool", "example.other_pools", POOLS.built_in)
    for _ in range(3):
        assert other.names() == ["small"]
    assert groups == ["example.other_pools"]
