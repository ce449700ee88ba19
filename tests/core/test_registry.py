"""Registries: built-in classes, those of other packages, and names that are wrong."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints

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
