"""Actors that are lost with a worker which ran out of memory are explained by a warning."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from small_clusters import SOON, started
from subprograms import wait_until
from test_memory_advice import make_report

from hyperplane.guard.lost_actors import ActorWorkers, describe_lost_actors
from hyperplane.guard.memory_advice import WorkerLayout


class Store:
    """An actor whose memory grows."""

    kept: Any = None

    def grow(self, megabytes: int) -> int:
        import numpy as np

        self.kept = np.ones(megabytes * 125_000)
        return len(self.kept)


def test_actors_of_an_ended_worker_are_found_once() -> None:
    actors = ActorWorkers()
    for key, worker in (("b", "tcp://1"), ("a", "tcp://1"), ("c", "tcp://2"), ("d", "tcp://1")):
        actors.add(key, worker)
    actors.remove("d")
    actors.remove("no actor")
    assert actors.take_lost("tcp://1") == ["a", "b"]
    assert actors.take_lost("tcp://1") == []
    assert actors.take_lost("tcp://2") == ["c"]


@pytest.mark.parametrize(
    ("actors", "beginning", "end"),
    [
        (["Store-1"], "actor Store-1 is lost, and its calls raise", "create it again"),
        (
            ["a", "b", "c", "d", "e"],
            "actors a, b, c and 2 more are lost, and their calls raise",
            "create them again",
        ),
    ],
)
def test_the_warning_names_actors_reason_figures_and_a_change(
    actors: list[str], beginning: str, end: str
) -> None:
    report = replace(make_report(), worker="tcp://127.0.0.1:9", cause="terminate")
    text = describe_lost_actors(actors, report, WorkerLayout())
    errors = "an OSError, later ones a RuntimeError"
    assert text.startswith(f"{beginning} {errors}: worker tcp://127.0.0.1:9 was ended by its")
    assert "\nPeak " in text
    assert "\nFix: initialize_cluster(..., ram_gb_per_proc=" in text
    assert text.endswith(end)


@pytest.mark.slow
@pytest.mark.cluster
def test_clients_are_warned_of_a_lost_actor() -> None:
    with (
        started(oom="raise", nprocs=1) as (client, _),
        warnings.catch_warnings(record=True) as issued,
    ):
        warnings.simplefilter("always")
        store = client.submit(Store, actor=True, key="Store-1").result(SOON)
        # An error of Dask, which does not name the reason, or no answer.
        with suppress(OSError, RuntimeError, TimeoutError):
            store.grow(1500).result(30)
        wait_until(lambda: any("Store-1" in str(each.message) for each in issued), SOON)
    (text,) = [str(each.message) for each in issued if "Store-1" in str(each.message)]
    assert text.startswith("actor Store-1 is lost, and its calls raise an OSError, later ones a ")
    assert " of 500 MB\nFix: initialize_cluster(..., ram_gb_per_proc=" in text
