"""Progress of computations: what the scheduler counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from dask.distributed import Client, LocalCluster

from hyperplane.guard.compute_progress import (
    MAX_OPERATIONS,
    TOPIC,
    ClientProgress,
    ComputeProgress,
    client_topic,
    estimate_seconds_left,
    group_operations,
)


class Prefix:
    """A task prefix of Dask with a mean duration."""

    def __init__(self, name: str, duration: float = -1.0) -> None:
        self.name, self.duration_average = name, duration


class Group:
    """A task group of Dask with its states."""

    def __init__(self, prefix: Prefix, start: float = 0.0, size: int = 0, **states: int) -> None:
        self.prefix, self.start, self.nbytes_total = prefix, start, size
        names = ("released", "waiting", "queued", "no-worker", "processing", "memory", "erred",
                 "forgotten")  # fmt: skip
        self.states = {**dict.fromkeys(names, 0), **states}


def operations(*groups: Any, before: int = 0) -> Any:
    return group_operations(dict.fromkeys(groups, before))


def test_groups_of_one_operation_are_added() -> None:
    read, total = Prefix("read"), Prefix("sum")
    found = operations(
        Group(total, start=5.0, waiting=2),
        Group(read, start=1.0, size=100, memory=3, processing=2),
        Group(read, start=3.0, size=50, forgotten=1, erred=1, queued=4),
    )
    assert [(each.prefix.name, each.done, each.active, each.bytes) for each in found] == [
        ("read", 5, 6, 150),
        ("sum", 0, 2, 0),
    ]


def test_tasks_of_an_earlier_computation_do_not_count() -> None:
    (found,) = operations(Group(Prefix("read"), memory=5, processing=2), before=4)
    assert (found.done, found.active) == (1, 2)


def test_the_rest_takes_as_long_as_its_operations_do() -> None:
    read, write = Prefix("read", 2.0), Prefix("write")
    found = operations(Group(read, memory=10, processing=6), Group(write, waiting=5))
    # 6 tasks of 2 s on 4 threads, and 5 unknown ones at 10 s for 10 tasks.
    assert estimate_seconds_left(found, 4, 10.0) == pytest.approx(6 * 2 / 4 + 5)


def test_the_rest_takes_the_time_of_the_scheduler_too() -> None:
    progress, prefix = ClientProgress(), Prefix("increment", 0.00002)

    def measure(done: int, at: float) -> float:
        found = operations(Group(prefix, memory=done, processing=4, waiting=99_996 - done))
        overhead = progress.measure_overhead(found, 2, at)
        left = estimate_seconds_left(found, 2, at, overhead)
        assert left is not None
        return left

    measure(4_000, 60.0)  # the graph was sent for a minute
    assert measure(6_000, 64.0) == pytest.approx(94_000 * 4 / 2_000, rel=0.1)


def test_long_tasks_take_no_more_than_their_durations() -> None:
    progress, prefix = ClientProgress(), Prefix("read", 30.0)
    for second in range(31, 300):
        # All of four threads begin and end at the same time.
        found = operations(Group(prefix, memory=4 * (second // 30), processing=4, waiting=100))
        assert progress.measure_overhead(found, 4, second) == 0
    # Only one of four threads has had a task since then: the rest takes as long as it does.
    found = operations(Group(prefix, memory=36 + 10, processing=1, waiting=9))
    assert progress.measure_overhead(found, 4, 600) == pytest.approx(
        (600 - 31 - 42 * 30 / 4 - 30) / 42
    )


@pytest.mark.parametrize(("done", "threads"), [(1, 4), (5, 0), (0, 1)])
def test_the_rest_is_unknown_at_first(done: int, threads: int) -> None:
    found = operations(Group(Prefix("read", 1.0), memory=done, waiting=9))
    assert estimate_seconds_left(found, threads, 1.0) is None


@pytest.fixture
def client() -> Iterator[Client]:
    """Client of a cluster with one thread whose scheduler has the plugin."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(ComputeProgress())
        yield client


def receive(client: Client) -> list[dict[str, Any]]:
    """Return the messages to a client that shows progress, to which later ones are added."""
    messages: list[dict[str, Any]] = []
    client.subscribe_topic(client_topic(client.id), lambda event: messages.append(event[1]))
    client.log_event(TOPIC, {"client": client.id})
    return messages


def work(number: Any, seconds: float = 0.05) -> Any:
    time.sleep(seconds)
    return number


@pytest.mark.slow
@pytest.mark.cluster
def test_only_clients_that_ask_get_messages(client: Client) -> None:
    with Client(client.scheduler.address, set_as_default=False) as other:
        nothing: list[Any] = []
        other.subscribe_topic(client_topic(other.id), nothing.append)
        messages = receive(client)
        other.gather(other.map(work, range(20)))
        assert not nothing
        assert not messages  # these are the tasks of another client
        kept = client.map(work, range(20), pure=False)
        client.gather(kept)
        first = messages[:]
        # The tasks of an earlier call have the same group, because their results are still kept.
        client.gather(client.map(work, range(30), pure=False))
        second = messages[len(first) :]
    assert first
    assert second
    assert {each["done"] + each["active"] for each in first} == {20}
    assert {each["done"] + each["active"] for each in second} == {30}
    done = [each["done"] for each in second]
    assert done == sorted(done)
    assert all(each["active"] > 0 and each["workers"] == 1 for each in messages)
    ((name, _, total, _),) = messages[-1]["operations"]
    assert (name, total) == ("work", 30)
    # Nothing is sent while there is nothing to compute, and nothing is kept.
    sent = len(messages)
    time.sleep(1.2)
    assert len(messages) == sent
    assert not client.get_events(client_topic(client.id))


@pytest.mark.slow
@pytest.mark.cluster
def test_a_task_in_the_background_does_not_count_for_later_calls(client: Client) -> None:
    messages = receive(client)
    background = client.submit(work, "background", 4.0)
    time.sleep(1.2)
    client.gather(client.map(work, range(4), pure=False, priority=10))
    client.gather(background)
    time.sleep(1.2)
    client.gather(client.map(work, range(20), pure=False))
    assert messages[-1]["done"] + messages[-1]["active"] == 20
    assert messages[-1]["left"] < 60


@pytest.mark.cluster
def test_the_last_figures_are_those_of_the_client(client: Client) -> None:
    receive(client)
    futures = client.map(work, range(6), [0.01, 0.01, 0.01, 3.0, 3.0, 3.0], pure=False)
    futures[0].result()
    found = client.sync(client.scheduler.hyperplane_progress, client=client.id)
    assert found["done"] + found["active"] == 6
    assert found["active"] >= 3


@pytest.mark.cluster
def test_running_operations_are_shown_if_there_are_many(client: Client) -> None:
    messages = receive(client)
    task = dask.delayed(work)
    short = [task(n, 0.0, dask_key_name=f"op{n}-1") for n in range(MAX_OPERATIONS + 3)]
    last = [task(short, 0.5, dask_key_name=f"last-{n}") for n in range(5)]
    # One graph: operations that have ended before the next graph comes are not shown with it.
    client.gather(client.compute(short + last))
    shown = [each for each in messages if "last" in [name for name, *_ in each["operations"]]]
    assert {len(each["operations"]) for each in shown} == {MAX_OPERATIONS}
    assert {each["others"] for each in shown} == {4}
