"""The dataframe helpers on worker processes."""

from __future__ import annotations

import os

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import polars as pl
import pytest
from dask.distributed import wait
from pandas_versions import TEXT
from scale import scaled

import hyperplane
from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    join,
    read,
    repartition,
    top_n_per_group,
    window_agg,
    window_counts,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client():
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=1
    )
    yield client
    client.close()
    cluster.close()


@pytest.fixture(scope="module")
def events(client, tmp_path_factory):
    rng = np.random.default_rng(7)
    n = 40_000
    frame = pd.DataFrame(
        {
            "time": pd.Timestamp("2024-03-30")
            + pd.to_timedelta(rng.integers(0, 3 * 86_400, n), unit="s"),
            "user": rng.integers(0, 3000, n),
            "kind": rng.choice(["view", "buy", "ä", None], n),
            "value": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "row": np.arange(n),
        }
    ).astype({"kind": TEXT})
    folder = tmp_path_factory.mktemp("events")
    for number in range(4):
        part = frame.iloc[number * n // 4 : (number + 1) * n // 4]
        part.to_parquet(folder / f"{number}.parquet", row_group_size=2500)
    df = read(folder, partition_size=1)
    assert df.npartitions == 16
    return df, frame


AGG = {"user": "nunique", "value": ["median", "mean", "first"], "row": "last"}


@pytest.mark.slow
def test_windows_with_an_exchange_equal_pandas(events):
    df, frame = events
    pandas_results.same_frame(
        window_agg(df, "time", "1h", AGG).compute(),
        pandas_results.window_agg(frame, "time", "1h", AGG),
    )
    result = window_agg(df, "time", "7h", AGG, "kind", split_out=3).compute()
    pandas_results.same_frame(
        result.sort_index(), pandas_results.window_agg(frame, "time", "7h", AGG, ["kind"])
    )


def test_windows_of_partitions_computed_by_dask_equal_pandas(events):
    df, frame = events
    doubled = df.assign(value=df.value * 2)
    result = window_agg(doubled, "time", "1h", AGG, "kind").compute()
    want = pandas_results.window_agg(
        frame.assign(value=frame.value * 2), "time", "1h", AGG, ["kind"]
    )
    pandas_results.same_frame(result, want)


def test_counts_in_windows_equal_pandas(events):
    df, frame = events
    result = window_counts(df, "time", "1h", "kind").compute()
    pandas_results.same_frame(result, pandas_results.window_counts(frame, "time", "1h", ["kind"]))


@pytest.mark.parametrize("into", scaled([5], [1, 5]))
def test_groups_of_filtered_rows_equal_pandas(events, into):
    df, frame = events
    agg = {"value": ["median", "std"], "kind": "nunique"}
    result = group_agg(df[df.row > 500], "user", agg, split_out=into).compute().sort_index()
    pandas_results.same_frame(result, pandas_results.group_agg(frame[frame.row > 500], "user", agg))


@pytest.mark.parametrize("into", scaled([None, 5], [None, 1, 5]))
def test_distinct_rows_equal_pandas(events, into):
    df, frame = events
    for keep in ("first", "last"):
        result = drop_duplicates(df, "user", keep=keep, split_out=into).compute()
        want = frame.drop_duplicates("user", keep=keep)
        assert pandas_results.rows_of(result) == pandas_results.rows_of(want)


@pytest.mark.parametrize("into", scaled([5], [1, 5]))
def test_top_rows_of_each_group_equal_pandas(events, into):
    df, frame = events
    result = top_n_per_group(df, "user", "value", 2, split_out=into).compute()
    result = result.sort_values(["user", "value"], ascending=[True, False], ignore_index=True)
    pandas_results.same_frame(result, pandas_results.top_n(frame, ["user"], "value", 2))


def test_a_join_with_a_file_equals_pandas(events, tmp_path):
    df, frame = events
    kinds = pd.DataFrame({"kind": ["buy", "view", "view"], "weight": [2, 1, 3]})
    kinds.to_parquet(tmp_path / "kinds.parquet")
    joined = join(df, str(tmp_path / "kinds.parquet"), "kind", "left")
    agg = {"weight": ["sum", "nunique"]}
    want = pandas_results.group_agg(frame.merge(kinds, on="kind", how="left"), "user", agg)
    result = group_agg(joined, "user", agg).compute()
    pandas_results.same_frame(result.astype("float64"), want.astype("float64"))


def test_results_can_be_persisted_and_used_again(events, client):
    df, frame = events
    result = client.persist(drop_duplicates(df[["user", "kind"]], split_out=4))
    wait(result)
    counts = group_agg(result, "kind", {"user": "count"}).compute()
    want = frame[["user", "kind"]].drop_duplicates()
    pandas_results.same_frame(counts, pandas_results.group_agg(want, "kind", {"user": "count"}))
    smaller = repartition(result, "1MB")  # its size is known now
    assert smaller.npartitions <= result.npartitions
    assert len(smaller) == len(want)


def one_table(number):
    return pl.DataFrame(
        {"key": [number, None], "set": [[1, 2], None], "text": ["ä", None], "more": ["x" * 999] * 2}
    )


def test_tables_are_moved_between_processes_and_spilled(client):
    one, other = sorted(client.nthreads())
    table = client.submit(one_table, 5, workers=one, pure=False)
    wait(table)
    (key,) = [table.key]

    def to_disk_and_back(dask_worker):
        buffer = dask_worker.data
        assert key in buffer
        buffer.fast.evict(key)
        assert key not in buffer.fast
        assert key in buffer.slow
        return buffer[key].equals(one_table(5))

    assert client.run(to_disk_and_back, workers=[one]) == {one: True}
    # Last: Dask may keep either copy of a table that two workers have.
    moved = client.submit(lambda received: received, table, workers=other, pure=False).result()
    assert moved.equals(one_table(5))


def test_dask_measures_the_memory_of_tables(client):
    def size():
        from dask.sizeof import (
            sizeof,
        )  # imported here, so that registrations of other modules are included

        return sizeof(pl.DataFrame({"n": np.zeros(10**6)}))

    client.submit(lambda: __import__("hyperplane.dataframe"), pure=False).result()
    for worker in client.nthreads():
        assert client.submit(size, workers=worker, pure=False).result() >= 8 * 10**6


def test_polars_has_as_many_threads_as_the_worker(client):
    def threads():
        return os.environ.get("POLARS_MAX_THREADS"), pl.thread_pool_size()

    assert set(client.run(threads).values()) == {("1", 1)}


@pytest.mark.slow
def test_rows_of_a_frequent_key_are_spread_by_a_p2p_shuffle(client, monkeypatch):
    for module in ("join", "shuffle_join"):  # as for types that Polars does not have
        name = f"hyperplane.collections.frames.{module}.can_join_tables"
        monkeypatch.setattr(name, lambda *args: False)
    rows, parts = 60_000, 6
    keys = np.where(np.arange(rows) % 2, 3, np.arange(rows) % 5000)
    left = pd.DataFrame({"k": keys, "v": np.arange(rows)})
    right = pd.DataFrame({"k": np.arange(0, 5000, 2) + 1, "w": np.arange(2500)})
    sides = (
        dd.from_pandas(left, npartitions=parts, sort=False),
        dd.from_pandas(right, npartitions=3, sort=False),
    )
    for how in ("left", "semi"):
        result = join(*sides, "k", how)
        assert any("shuffle-transfer" in str(key) for key in result.optimize().dask)
        partitions = [part.result() for part in client.compute(result.to_delayed())]
        ours = pd.concat(partitions)
        want = left.merge(right, on="k", how="left").astype({"w": "Int64"})
        want = want if how == "left" else left[left.k.isin(right.k)]
        assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
        assert max(map(len, partitions)) < 1.3 * len(ours) / parts
