"""Settings that a cluster applies to Dask's configuration, and those it leaves alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import dask.config
import distributed  # noqa: F401 - its defaults are needed to recognize the user's values
import pytest

from hyperplane.clusters.dask import settings as dask_settings
from hyperplane.clusters.dask.settings import (
    apply_client_settings,
    drop_overridden,
    drop_overridden_variables,
    in_force,
    restore_client_settings,
    user_settings,
)

METHOD = "dataframe.shuffle.method"


def method() -> object:
    return dask.config.get(METHOD)


@pytest.fixture(autouse=True)
def configuration_as_before() -> Iterator[None]:
    before = json.dumps(dask.config.config, default=str)
    yield
    for cluster in ("a", "b", "c"):
        restore_client_settings(cluster)
    assert dask_settings._applied == {}
    assert json.dumps(dask.config.config, default=str) == before


def test_client_settings_are_applied_and_restored() -> None:
    apply_client_settings("a", {METHOD: "tasks"})
    assert method() == "tasks"
    restore_client_settings("a")
    assert method() is None
    restore_client_settings("a")  # a second call has no effect


@pytest.mark.parametrize("order", ["abc", "cba", "bac", "bca", "acb", "cab"])
def test_the_latest_of_several_holds_in_whatever_order_they_close(order: str) -> None:
    wanted = {"a": {METHOD: "tasks"}, "b": {}, "c": {METHOD: "disk"}}
    open_: list[str] = []
    for cluster, settings in wanted.items():
        apply_client_settings(cluster, settings)
        open_.append(cluster)
        assert method() == settings.get(METHOD)
    for cluster in order:
        restore_client_settings(cluster)
        open_.remove(cluster)
        assert method() == (wanted[open_[-1]].get(METHOD) if open_ else None)


def test_settings_that_the_user_set_before_are_not_changed() -> None:
    with dask.config.set({METHOD: "p2p"}):
        apply_client_settings("a", {METHOD: "tasks"})
        assert method() == "p2p"
        restore_client_settings("a")
        assert method() == "p2p"


def test_settings_that_the_user_sets_meanwhile_are_not_changed() -> None:
    apply_client_settings("a", {METHOD: "tasks"})
    dask.config.set({METHOD: "p2p"})
    try:
        apply_client_settings("b", {METHOD: "tasks"})
        assert method() == "p2p"
        restore_client_settings("b")
        restore_client_settings("a")
        assert method() == "p2p"
    finally:
        dask.config.set({METHOD: None})


def test_user_settings_exclude_those_of_another_cluster() -> None:
    apply_client_settings("a", {METHOD: "tasks"})
    with user_settings():
        assert method() is None
        assert drop_overridden({METHOD: "tasks"}) == {METHOD: "tasks"}
    with in_force({"distributed.worker.daemon": False}):
        assert method() is None
    with in_force({METHOD: "disk"}):
        assert method() == "disk"
    assert method() == "tasks"


def test_variables_of_the_user_override_ours_in_the_environment_and_in_dask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = {"MALLOC_TRIM_THRESHOLD_": "1", "POLARS_MAX_THREADS": "2"}
    for name in ours:
        monkeypatch.delenv(name, raising=False)
    assert drop_overridden_variables(ours) == ours
    with dask.config.set({"distributed.nanny.environ": {"POLARS_MAX_THREADS": 5}}):
        assert list(drop_overridden_variables(ours)) == ["MALLOC_TRIM_THRESHOLD_"]
    path = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
    with dask.config.set({path: 4096}):
        assert list(drop_overridden_variables(ours)) == ["POLARS_MAX_THREADS"]
    # Variables that Dask writes into the environment of a process that has started workers.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    assert drop_overridden_variables(ours) == ours
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4096")
    monkeypatch.setenv("POLARS_MAX_THREADS", "1")
    assert drop_overridden_variables(ours) == {}


def test_a_snapshot_while_other_threads_set_keys() -> None:
    stop = threading.Event()

    def set_keys() -> None:
        number = 0
        while not stop.is_set():
            with dask.config.set({f"of-another-thread-{number % 7}": 1}):
                number += 1

    thread = threading.Thread(target=set_keys)
    thread.start()
    try:
        for _ in range(300):
            dask_settings.snapshot()
    finally:
        stop.set()
        thread.join()
    taken = dask_settings.snapshot()
    assert taken == dask.config.config
    taken["distributed"]["worker"]["memory"]["target"] = "changed"
    assert dask.config.get("distributed.worker.memory.target") != "changed"
