"""Comparison of versions, with real results of Dask's ``Client.get_versions``."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest
from distributed import Client, LocalCluster

from hyperplane.clusters.dask import versions
from hyperplane.errors import StartFailed
from hyperplane.spec.settings import RemoteSettings


@pytest.fixture(scope="module")
def reported() -> Iterator[dict[str, Any]]:
    """Result of ``Client.get_versions`` for a cluster with two workers."""
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield cast(dict[str, Any], client.get_versions())


@pytest.fixture
def found(reported: dict[str, Any]) -> dict[str, Any]:
    """A copy that tests can change, with fixed versions."""
    mine = copy.deepcopy(reported)
    for place in places(mine):
        place["packages"] |= {"python": "3.11.7.final.0", "pandas": "3.1.1", "dask": "2026.8.0"}
    return mine


def places(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [found["client"], found["scheduler"], *found["workers"].values()]


class FakeClient:
    """A client that returns the versions it was given."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    async def _get_versions(self) -> dict[str, Any]:
        return self.found

    def sync(self, function: Any, callback_timeout: float) -> Any:
        return asyncio.run(asyncio.wait_for(function(), callback_timeout))


def check(found: dict[str, Any], **settings: Any) -> None:
    versions.check(cast(Client, FakeClient(found)), "ssh", RemoteSettings(**settings), 60)


def test_versions_of_every_process_are_compared(reported: dict[str, Any]) -> None:
    for place in places(reported):
        assert set(versions.MUST_AGREE) <= set(place["packages"])


def test_one_environment_has_no_differences(reported: dict[str, Any]) -> None:
    assert versions.differences(reported) == []
    check(reported)


@pytest.mark.parametrize(
    ("name", "version"),
    [("python", "3.11.11.final.0"), ("pandas", "3.1.9"), ("tornado", "1.0"), ("lz4", "4.0")],
)
def test_accepted_differences(found: dict[str, Any], name: str, version: str) -> None:
    for worker in found["workers"].values():
        worker["packages"][name] = version
    assert versions.differences(found) == []


@pytest.mark.parametrize(
    ("name", "version", "here", "there"),
    [
        ("python", "3.12.7.final.0", "3.11", "3.12"),
        ("python", "3.1.7.final.0", "3.11", "3.1"),  # not the beginning of it
        ("pandas", "3.0.1", "3.1", "3.0"),
        ("dask", "2026.8.1", "2026.8.0", "2026.8.1"),
        ("pandas", None, "3.1", "none"),
    ],
)
def test_refused_differences(
    found: dict[str, Any], name: str, version: str | None, here: str, there: str
) -> None:
    found["scheduler"]["packages"][name] = version
    assert versions.differences(found) == [f"{name} {here} here, {there} on the scheduler"]


def test_a_package_that_is_nowhere_is_no_difference(found: dict[str, Any]) -> None:
    for place in places(found):
        place["packages"]["pandas"] = None
    assert versions.differences(found) == []


def test_one_that_only_the_cluster_has(found: dict[str, Any]) -> None:
    found["client"]["packages"]["pandas"] = None
    [difference] = versions.differences(found)
    assert difference.startswith("pandas none here, 3.1 on the scheduler, ")
    assert difference.endswith(" and 1 more")


def test_workers_with_the_same_version_are_named_together(found: dict[str, Any]) -> None:
    for worker in found["workers"].values():
        worker["packages"]["dask"] = "2026.9.0"
    first, second = found["workers"]
    assert versions.differences(found) == [f"dask 2026.8.0 here, 2026.9.0 on {first} and {second}"]


def test_workers_with_several_versions_are_named_apart(found: dict[str, Any]) -> None:
    first, second = found["workers"]
    found["workers"][first]["packages"]["dask"] = "2026.7.1"
    found["workers"][second]["packages"]["dask"] = "2026.9.0"
    assert versions.differences(found) == [
        f"dask 2026.8.0 here, 2026.7.1 on {first}, 2026.9.0 on {second}"
    ]


def test_differences_are_refused_all_at_once(found: dict[str, Any]) -> None:
    found["scheduler"]["packages"] |= {"python": "3.12.0.final.0", "dask": "2026.9.0"}
    with pytest.raises(StartFailed) as caught:
        check(found)
    message = str(caught.value)
    assert "python 3.11 here, 3.12 on the scheduler; dask 2026.8.0 here, 2026.9.0" in message
    assert "set hyperplane.engines.ssh.versions to warn" in message
    assert "everything was closed again" in message


def test_differences_are_a_warning_on_request(
    found: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    found["scheduler"]["packages"]["dask"] = "2026.9.0"
    with caplog.at_level(logging.WARNING, versions.logger.name):
        check(found, versions="warn")
    [record] = caplog.records
    assert record.getMessage().startswith("engine ssh: package versions differ between")
    assert "the cluster: dask 2026.8.0 here" in record.getMessage()
    assert "closed" not in record.getMessage()
