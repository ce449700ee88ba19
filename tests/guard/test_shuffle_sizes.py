"""Partitions that are too large for a shuffle are reported before it fails."""

from __future__ import annotations

import logging
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_clusters import LIMIT, SOON, started

from hyperplane.guard import shuffle_sizes
from hyperplane.guard.shuffle_sizes import ShuffleSizes

MB = 10**6


class Scheduler:
    """A scheduler with one task, whose inputs have these sizes."""

    def __init__(
        self,
        *sizes: int,
        prefix: str = "shuffle-transfer",
        limit: int = 1000 * MB,
        threads: int = 1,
    ) -> None:
        task = SimpleNamespace(
            prefix=SimpleNamespace(name=prefix),
            group=SimpleNamespace(name=f"{prefix}-1"),
            dependencies=[SimpleNamespace(get_nbytes=lambda size=size: size) for size in sizes],
            processing_on=SimpleNamespace(memory_limit=limit, nthreads=threads),
        )
        self.tasks = {"a": task, "b": task}
        self.events: list[Any] = []

    def log_event(self, topic: str, msg: Any) -> None:
        self.events.append((topic, pickle.loads(msg["message"])))


def warnings_of(scheduler: Any) -> list[str]:
    warnings: list[str] = []
    plugin = ShuffleSizes(warnings.append)
    plugin.scheduler = scheduler
    for key in scheduler.tasks:
        plugin.transition(key, "waiting", "processing")
        plugin.transition(key, "processing", "memory")
    return warnings


def test_a_shuffle_of_large_partitions_is_reported_once() -> None:
    (text,) = warnings_of(Scheduler(250 * MB))
    assert text == (
        "partitions of 250 MB are too large to be shuffled by worker processes with 1 GB for each "
        "thread, which hold a partition several times: use "
        'df.repartition(partition_size="53MB") before, or ram_gb_per_proc=4.0'
    )
    (text,) = warnings_of(Scheduler(250 * MB, prefix="hash-join-transfer"))
    assert 'use df.repartition(partition_size="53MB") of both data frames before, or' in text
    (text,) = warnings_of(Scheduler(250 * MB, prefix="rechunk-transfer", threads=2))
    assert "0.5 GB for each thread" in text
    assert "use chunks of at most 26 MB before, or ram_gb_per_proc=8.0" in text


def test_an_empty_process_counts_in_small_workers() -> None:
    """A sixteenth of 0.6 GB was too large: two of two runs of ``set_index`` failed."""
    (text,) = warnings_of(Scheduler(60 * MB, limit=600 * MB))
    assert 'df.repartition(partition_size="25MB") before, or ram_gb_per_proc=1.1' in text
    assert warnings_of(Scheduler(49 * MB, limit=600 * MB)) == []


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param(Scheduler(107 * MB), id="twice the size that fits"),
        pytest.param(Scheduler(250 * MB, prefix="sum"), id="no shuffle"),
        pytest.param(Scheduler(250 * MB, limit=0), id="no limit"),
    ],
)
def test_no_other_task_is_reported(scheduler: Any) -> None:
    assert warnings_of(scheduler) == []


def test_clients_of_remote_schedulers_issue_the_warning() -> None:
    plugin, scheduler = ShuffleSizes(), Scheduler(250 * MB)
    plugin.scheduler = scheduler  # type: ignore[assignment]
    plugin.transition("a", "waiting", "processing")
    ((topic, text),) = scheduler.events
    assert topic == "warn"
    assert text.startswith("partitions of 250 MB")


def make_part(part: int, rows: int) -> pd.DataFrame:
    return pd.DataFrame({"id": np.arange(rows) * 7 + part, "x": 1.0})


@pytest.mark.cluster
def test_the_owner_of_a_cluster_is_warned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask.dataframe as dd

    monkeypatch.setattr(shuffle_sizes, "TOO_LARGE", 1 / 60)
    rows = LIMIT // 500 // 16  # of 16 bytes
    with started() as (client, _), caplog.at_level(logging.WARNING):
        meta = make_part(0, 1).iloc[:0]
        frame = dd.from_map(make_part, range(2), rows=rows, meta=meta)
        counts = frame.shuffle("id", npartitions=4).map_partitions(len)
        assert sum(client.compute(counts).result(SOON)) == 2 * rows
    messages = [record.getMessage() for record in caplog.records]
    (text,) = [message for message in messages if "to be shuffled" in message]
    assert 'df.repartition(partition_size="17MB")' in text
