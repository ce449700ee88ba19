"""Actors that are lost with a worker which ran out of memory are explained by a warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config
import pytest
from distributed import Event
from small_clusters import SOON, started
from subprograms import wait_until
from test_memory_advice import make_report

from hyperplane.core.dask_internals.actor_answers import ActorAnswers
from hyperplane.core.dask_internals.actors import get_actor_address
from hyperplane.guard import memory_plugins
from hyperplane.guard.lost_actors import (
    ActorWorkers,
    describe_lost_actors,
    explain_lost_actors,
)
from hyperplane.guard.memory_advice import WorkerLayout


class Store:
    """An actor whose memory grows."""

    kept: Any = None

    def grow(self, megabytes: int) -> int:
        import numpy as np

        self.kept = np.ones(megabytes * 125_000)
        return len(self.kept)

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


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
    text = describe_lost_actors(actors, explain_lost_actors(actors, report, WorkerLayout()))
    errors = "an OSError, later ones a RuntimeError"
    assert text.startswith(f"{beginning} {errors}: worker tcp://127.0.0.1:9 was ended by its")
    assert "\nPeak " in text
    assert "\nFix: initialize_cluster(..., ram_gb_per_proc=" in text
    assert text.endswith(end)


@pytest.mark.slow
@pytest.mark.cluster
def test_calls_and_a_warning_name_why_an_actor_was_lost() -> None:
    reason = r"worker tcp://\S+ was ended by its nanny.*of 500 MB\nFix: initialize_cluster\("
    with (
        started(oom="raise", nprocs=1) as (client, _),
        warnings.catch_warnings(record=True) as issued,
    ):
        warnings.simplefilter("always")
        store = client.submit(Store, actor=True, key="Store-1").result(SOON)
        with pytest.raises(OSError, match=f"(?s)^Unable to contact Actor's worker: {reason}"):
            store.grow(1500).result(SOON)
        wait_until(lambda: any("Store-1" in str(each.message) for each in issued), SOON)
    (text,) = [str(each.message) for each in issued if "Store-1" in str(each.message)]
    assert text.startswith("actor Store-1 is lost, and its calls raise an OSError, later ones a ")
    assert " of 500 MB\nFix: initialize_cluster(..., ram_gb_per_proc=" in text


def _call(store: Any) -> str:
    try:
        return str(store.end().result(SOON))
    except (OSError, RuntimeError) as error:
        return str(error)


def _call_twice(store: Any, number: int) -> list[str]:
    """Call an actor whose worker has ended in the call of another process."""
    Event(f"begun-{number}").set()
    assert Event(f"lost-{number}").wait(SOON)
    return [_call(store), _call(store)]


@pytest.mark.slow
@pytest.mark.cluster
def test_each_call_of_a_lost_actor_ends() -> None:
    """In distributed 2026.8.0 half of the later calls wait forever, and so do those of tasks."""
    known = {"Unable to contact Actor's worker", "Worker holding Actor was lost.  Status: error"}
    # Else each new connection to the worker that has ended is tried for 30 s.
    short = {"distributed.comm.timeouts.connect": "2s"}
    with dask.config.set(short), started() as (client, _):
        for number in range(2):
            store = client.submit(Store, actor=True, key=f"Store-{number}").result(SOON)
            (other,) = client.nthreads().keys() - {get_actor_address(store)}
            task = client.submit(_call_twice, store, number, workers=[other], pure=False)
            assert Event(f"begun-{number}").wait(SOON)
            assert {_call(store) for _ in range(3)} <= known
            Event(f"lost-{number}").set()
            # Dask fails the task, whose thread calls the actor nevertheless.
            with pytest.raises(RuntimeError, match="Worker holding Actor was lost"):
                task.result(SOON)
            assert client.submit(int, number, workers=[other], pure=False).result(SOON) == number
            client.wait_for_workers(2, SOON)


#: A cluster of workers without this package; a task calls an actor that was lost, three times.
PROGRAM = """
import sys
sys.modules["hyperplane"] = None  # as if it was not installed
import asyncio, os, pickle
import dask
from distributed import Client, Event, Nanny, Scheduler

ADDRESS = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
dask.config.set({"distributed.comm.timeouts.connect": "2s"})

class Store:
    def end(self):
        os._exit(1)

def call(store):
    try:
        return str(store.end().result(60))
    except (OSError, RuntimeError, TimeoutError) as error:
        return type(error).__name__

def call_three_times(store):
    Event("begun").set()
    Event("lost").wait(60)
    errors = [call(store) for _ in range(3)]
    print(errors, flush=True)

async def main():
    plugin = pickle.load(sys.stdin.buffer)
    options = {"nthreads": 1, **ADDRESS}
    async with Scheduler(**ADDRESS) as scheduler, Client(
        scheduler.address, asynchronous=True
    ) as client, Nanny(scheduler.address, name="a", **options), Nanny(
        scheduler.address, name="b", **options
    ):
        await client.register_plugin(plugin)
        store = await client.submit(Store, actor=True, workers=["a"])
        task = client.submit(call_three_times, store, workers=["b"], pure=False)
        await Event("begun").wait()
        try:
            await store.end()
        except OSError:
            pass
        await Event("lost").set()
        # Dask fails the task, whose thread continues.
        await client.gather(task, errors="skip")
        assert await client.submit(int, 1, workers=["b"], pure=False) == 1

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_calls_of_tasks_end_on_workers_without_the_package(tmp_path: Path) -> None:
    """As on Kubernetes, a gateway and Slurm, whose images may have only Dask."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        input=memory_plugins.pickle_plugin(ActorAnswers()),
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    (line,) = [line for line in done.stdout.decode().splitlines() if line.startswith("[")]
    assert "TimeoutError" not in line
    assert "OSError" in line or "RuntimeError" in line
