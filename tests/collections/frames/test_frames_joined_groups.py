"""Group-bys of joins whose left side is grouped before the join; shared right sides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask.tokenize import tokenize
from pyarrow import parquet

from hyperplane.collections.frames import group_before_join, shared_tables
from hyperplane.collections.frames.group_before_join import plan_group_before_join
from hyperplane.collections.frames.joined_partition import JoinedPartition
from hyperplane.collections.frames.shared_tables import SharedTables
from hyperplane.collections.frames.source_collection import select_source
from hyperplane.dataframe import group_agg, join, read, value_counts
from hyperplane.errors import ReadError

ROWS, FILES = 2_000, 4
AGG = {
    "v": ["sum", "mean", "min", "max", "count", "std"],
    "f": ["sum", "var", "count"],
    "k": ["count"],
}


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keys that occur several times on both sides, also missing ones."""
    random = np.random.default_rng(0)
    keys = [None, *(f"key {number}" for number in range(50))]
    left = pd.DataFrame(
        {
            "k": pd.Series(random.choice(keys, ROWS), dtype="str"),
            "g": pd.Series(random.choice(["a", "b", None], ROWS), dtype="str"),
            "v": random.integers(0, 100, ROWS),
            "f": np.where(random.random(ROWS) < 0.2, np.nan, random.random(ROWS)),
            "h": random.random(ROWS).astype("float32"),
        }
    )
    some = [*keys[1:60:2], "key 0", "key 2", "other", None, None]
    plans = [["x", "y", "z", None][number % 4] for number in range(len(some))]
    right = pd.DataFrame({"k": some, "p": plans, "n": range(len(some))}).astype({"k": "str"})
    return left, right.astype({"p": "str"})


@pytest.fixture(scope="module")
def sides(
    tables: tuple[pd.DataFrame, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("sides")
    left, right = tables
    size = ROWS // FILES
    for number in range(FILES):
        part = left[number * size : (number + 1) * size]
        part.to_parquet(folder / f"left-{number}.parquet")
    right.to_parquet(folder / "right.parquet", row_group_size=7)
    one = read(str(folder / "left-*.parquet"), partition_size="10kB")
    return one, read(str(folder / "right.parquet"), partition_size="1kB")


@pytest.fixture(params=["in a later task", "in the same task", "not grouped"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where groups of left rows are joined."""
    few = request.param != "not grouped"
    monkeypatch.setattr(group_before_join, "_has_few_groups", lambda *_: few)
    if request.param == "in the same task":
        monkeypatch.setattr(group_before_join, "_MAX_STATES_BYTES", 0)
    return str(request.param)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("by", ["p", "k", "g", ["g", "p"], ["k", "p"]], ids=str)
def test_groups_of_a_join_equal_pandas(
    tables: Any, sides: Any, how: Any, by: Any, place: str
) -> None:
    agg = {column: functions for column, functions in AGG.items() if column not in by}
    ours = group_agg(join(*sides, "k", how), by, agg)
    assert any("group-agg-left" in str(key) for key in ours.dask)
    rows = tables[0].merge(tables[1], on="k", how=how)
    want = rows.groupby(by).agg(agg)
    pd.testing.assert_frame_equal(ours.compute(scheduler="sync"), want, check_dtype=False)


FILTERS: dict[str, Any] = {
    "left": lambda rows: rows.v > 50,
    "right": lambda rows: rows.p == "x",
    "key": lambda rows: rows.k.isin(["key 1", "key 3"]),
    "right and group": lambda rows: (rows.p == "x") & (rows.g == "a"),
    "both": lambda rows: (rows.p == "x") & (rows.v > 10),
}


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("which", FILTERS)
def test_filters_of_joined_rows_equal_pandas(
    tables: Any, sides: Any, how: Any, which: str, place: str
) -> None:
    joined, condition = join(*sides, "k", how), FILTERS[which]
    ours = group_agg(joined[condition(joined)], ["g", "p"], {"v": ["sum", "mean"]})
    rows = tables[0].merge(tables[1], on="k", how=how)
    want = rows[condition(rows)].groupby(["g", "p"]).agg({"v": ["sum", "mean"]})
    pd.testing.assert_frame_equal(ours.compute(scheduler="sync"), want, check_dtype=False)


def test_value_counts_of_a_join_equal_pandas(tables: Any, sides: Any, place: str) -> None:
    ours = value_counts(join(*sides, "k"), "g").compute(scheduler="sync")
    want = tables[0].merge(tables[1], on="k").value_counts("g")
    assert ours.to_dict() == want.to_dict()


@pytest.mark.parametrize(
    "agg",
    [{"n": "sum"}, {"v": "nunique"}, {"v": "median"}, {"v": "first"}, {"h": "sum"}],
    ids=str,
)
def test_other_functions_and_columns_are_computed_from_joined_rows(
    tables: Any, sides: Any, agg: Any
) -> None:
    ours = group_agg(join(*sides, "k"), "g", agg)
    assert not any("group-agg-left" in str(key) for key in ours.dask)
    want = tables[0].merge(tables[1], on="k").groupby("g").agg(agg)
    pd.testing.assert_frame_equal(ours.compute(scheduler="sync"), want, check_dtype=False)


@pytest.mark.parametrize(
    ("count", "few"), [(100, True), (60_000, True), (150_000, False), (10**9, False)]
)
def test_groups_are_estimated_from_a_sample(count: int, few: bool) -> None:
    keys = np.random.default_rng(1).integers(0, count, 200_000)
    assert group_before_join._has_few_groups(pl.DataFrame({"k": keys}), ["k"]) is few


def test_an_empty_table_has_few_groups() -> None:
    assert group_before_join._has_few_groups(pl.DataFrame({"k": [1]}).clear(), ["k"])


def test_tables_of_later_tasks_are_limited_by_the_memory(
    sides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped: list[Any] = []
    plan = plan_group_before_join

    def record(*arguments: Any) -> Any:
        grouped.append(plan(*arguments))
        return grouped[-1]

    target = "hyperplane.collections.frames.group_tasks.plan_group_before_join"
    monkeypatch.setattr(target, record)
    for memory in (None, 640_000):
        monkeypatch.setattr(group_before_join, "get_memory_per_thread", lambda m=memory: m)
        group_agg(join(*sides, "k"), "p", {"v": "sum"})
    assert [each.max_bytes for each in grouped] == [32_000_000, 10_000]


def test_the_right_side_is_read_once_for_all_tasks(
    sides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_sides: list[tuple[Any, ...]] = []
    collect = JoinedPartition._collect_right

    def record(partition: JoinedPartition) -> pl.DataFrame:
        read_sides.append(partition.right_names)
        time.sleep(0.2)  # all threads need the table meanwhile
        return collect(partition)

    monkeypatch.setattr(JoinedPartition, "_collect_right", record)
    monkeypatch.setattr(
        "hyperplane.collections.frames.joined_partition.SHARED_TABLES", SharedTables()
    )
    joined = join(*sides, "k")
    assert joined.npartitions > 2
    rows = joined[["v", "p"]].compute(scheduler="threads", num_workers=4)
    assert len(rows)
    assert read_sides == [(("k", "k"), ("p", "p"))]


def test_filters_by_other_values_have_other_names(tables: Any, sides: Any) -> None:
    left, right = sides
    results = dask.compute(
        *(
            join(left[left.v.isin(values)], right[right.n.isin(values)], "k")
            for values in ([1, 2, 3], [1, 2, 4])
        ),
        scheduler="sync",
    )
    for values, result in zip(([1, 2, 3], [1, 2, 4]), results, strict=True):
        one, two = tables
        want = one[one.v.isin(values)].merge(two[two.n.isin(values)], on="k")
        assert len(result) == len(want)
    parts = [
        select_source(join(left[left.v.isin(values)], right, "k"), ["v"]).partitions[0]
        for values in ([1, 2, 3], [1, 2, 4])
    ]
    assert tokenize(parts[0]) != tokenize(parts[1])


KEYS: dict[str, Any] = {
    "integers": lambda n: n,
    "times": lambda n: pd.Timestamp("2026-01-01") + pd.to_timedelta(n, "ns"),
    "zoned": lambda n: (pd.Timestamp("2026-01-01") + pd.to_timedelta(n, "h")).tz_localize("UTC"),
}


@pytest.mark.parametrize("make", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("missing", [False, True])
def test_left_rows_outside_the_range_of_right_keys_are_not_joined(
    tmp_path: Path, make: Any, missing: bool
) -> None:
    left = pd.DataFrame({"k": make(np.arange(100)), "v": np.arange(100)})
    right = pd.DataFrame({"k": make(np.array([40, 42])), "w": [1, 2]})
    if missing:
        left = left.astype({"k": "Int64"}) if left.k.dtype == "int64" else left
        right = right.astype({"k": "Int64"}) if right.k.dtype == "int64" else right
        left.loc[7, "k"] = right.loc[0, "k"] = None
    left.to_parquet(tmp_path / "left.parquet", row_group_size=10)
    right.to_parquet(tmp_path / "right.parquet")
    sides = [read(str(tmp_path / f"{side}.parquet")) for side in ("left", "right")]
    for how in ("inner", "left"):
        joined = join(*sides, "k", how)
        ours, want = joined.compute(scheduler="sync"), left.merge(right, on="k", how=how)
        assert ours.v.to_list() == want.v.to_list()
        [partition] = select_source(joined, ["v"]).partitions
        kept = partition.scan_left().collect().height
        assert kept == (100 if how == "left" else 2 if missing else 3)


def test_a_right_side_without_rows_joins_nothing(sides: Any) -> None:
    left, right = sides
    nothing = right[right.n > 10**6]
    assert not len(join(left, nothing, "k").compute(scheduler="sync"))
    assert not len(group_agg(join(left, nothing, "k"), "p", {"v": "sum"}).compute())


def test_a_shared_table_is_read_again_after_an_error() -> None:
    tables = SharedTables()

    def fail() -> pl.DataFrame:
        raise OSError("not there")

    with pytest.raises(OSError, match="not there"):
        tables.get("key", fail)
    assert len(tables) == 0
    assert tables.get("key", lambda: pl.DataFrame({"a": [1]})).height == 1
    assert tables.get("key", fail).height == 1


def test_large_and_idle_shared_tables_are_dropped() -> None:
    tables = SharedTables(idle_seconds=0.05, max_bytes=1_000)
    for key in "abc":
        tables.get(key, lambda: pl.DataFrame({"a": range(100)}))
    assert len(tables) == 1  # the last one, and no second of 800 bytes
    deadline = time.monotonic() + 60
    while len(tables) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(tables) == 0


def test_an_idle_table_is_dropped_in_time_after_its_last_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, waits = [0.0], []

    class TimerDouble:
        def __init__(self, wait: float, function: Callable[[], None]) -> None:
            waits.append(wait)
            self.start = lambda: None

    monkeypatch.setattr(shared_tables, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(threading, "Timer", TimerDouble)
    tables = SharedTables(idle_seconds=5.0)
    for now[0], key in ((0.0, "a"), (1.0, "b"), (3.0, "a")):
        tables.get(key, lambda: pl.DataFrame({"a": [1]}))
    for now[0], count in ((5.0, 2), (6.0, 1), (8.0, 0)):
        tables._drop_idle()
        assert len(tables) == count
    assert waits == [5.0, 1.0, 2.0]  # at 5, 6 and 8 seconds


def test_a_table_that_a_long_task_uses_is_kept_for_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(shared_tables, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(threading, "Timer", lambda *_: SimpleNamespace(start=lambda: None))
    tables = SharedTables(idle_seconds=5.0)
    used = tables.get("key", lambda: pl.DataFrame({"a": [1]}))
    now[0] = 6.0
    tables._drop_idle()
    assert tables.get("key", lambda: pl.DataFrame({"a": [2]})) is used
    now[0] = 12.0
    tables._drop_idle()
    del used
    for now[0], count in ((16.0, 1), (17.0, 0)):
        tables._drop_idle()
        assert len(tables) == count


def test_threads_wait_for_the_one_that_reads() -> None:
    tables, calls = SharedTables(), []

    def read_slowly() -> pl.DataFrame:
        calls.append(threading.get_ident())
        time.sleep(0.1)
        return pl.DataFrame({"a": [1]})

    threads = [threading.Thread(target=tables.get, args=("key", read_slowly)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


@pytest.mark.parametrize("grouped", [False, True])
def test_row_groups_outside_the_range_of_the_right_keys_are_not_read(tmp_path, grouped):
    left, right = tmp_path / "left.parquet", tmp_path / "right.parquet"
    table = pa.table({"k": np.arange(10_000), "v": np.ones(10_000)})
    parquet.write_table(table, left, row_group_size=1_000, compression="none", use_dictionary=False)
    pd.DataFrame({"k": [5, 50, 500], "g": ["a", "b", "a"]}).to_parquet(right)
    chunk = parquet.read_metadata(left).row_group(7).column(0)
    data = bytearray(left.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size
    data[chunk.data_page_offset : end] = b"\xff" * chunk.total_compressed_size
    left.write_bytes(bytes(data))
    with pytest.raises(ReadError):
        read(left).compute()
    joined = join(read(left), read(right), on="k")
    result = group_agg(joined, "g", {"v": "sum"}) if grouped else joined
    found = result.compute()
    assert (found["v"].to_dict() if grouped else found["k"].to_list()) == (
        {"a": 2.0, "b": 1.0} if grouped else [5, 50, 500]
    )
