"""Progress of computations: what the scheduler counts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from dask.distributed import Client, LocalCluster

from hyperplane.guard.compute_progress import (
    MAX_OPERATIONS,
    TOPIC,
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


@pytest.mark.parametrize(("done", "threads"), [(1, 4), (5, 0), (0, 1)])
def test_the_rest_is_unknown_at_first(done: int, threads: int) -> None:
    found = operations(Group(Prefix("read", 1.0), memory=done, waiting=9))
    assert estimate_seconds_left(found, threads, 1.0) is None


@pytest.mark.cluster
def test_only_clients_that_ask_get_messages() -> None:
    def work(number: int, seconds: float = 0.1) -> int:
        time.sleep(seconds)
        return number

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(ComputeProgress())
        topic = client_topic(client.id)
        client.gather(client.map(work, range(8)))
        assert not client.get_events(topic)
        client.log_event(TOPIC, {"client": client.id})
        kept = client.map(work, range(20), pure=False)
        client.gather(kept)
        first = [message for _, message in client.get_events(topic)]
        # The tasks of an earlier call have the same group, because their results are still kept.
        client.gather(client.map(work, range(30), pure=False))
        messages = [message for _, message in client.get_events(topic)][len(first):]  # fmt: skip
        assert first
        assert messages
        assert {each["done"] + each["active"] for each in first} == {20}
        assert {each["done"] + each["active"] for each in messages} == {30}
        done = [each["done"] for each in messages]
        assert done == sorted(done)
        assert all(each["active"] > 0 and each["workers"] == 1 for each in messages)
        (operation,) = messages[-1]["operations"]
        assert operation[0] == "work"
        assert operation[2] == 30
        # Nothing is sent while there is nothing to compute.
        sent = len(client.get_events(topic))
        time.sleep(1.2)
        assert len(client.get_events(topic)) == sent


@pytest.mark.cluster
def test_running_operations_are_shown_if_there_are_many() -> None:
    def work(number: Any) -> int:
        time.sleep(0.3 if number == "last" else 0.0)
        return 1

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(ComputeProgress())
        client.log_event(TOPIC, {"client": client.id})
        short = [client.submit(work, n, key=f"op{n}-1") for n in range(MAX_OPERATIONS + 3)]
        last = [client.submit(work, "last", key=f"last-{n}", pure=False) for n in range(5)]
        client.gather(short + last)
        message = client.get_events(client_topic(client.id))[-1][1]
        assert len(message["operations"]) == MAX_OPERATIONS
        assert "last" in [name for name, *_ in message["operations"]]
        assert message["others"] == 4
