"""Joins in Polars: by a small side for all tasks, or by an exchange in memory or through files."""

from __future__ import annotations

import gc
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import polars as pl
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster
from frame_strategies import QUICK, arrow, column, cut, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import combinations, scaled

from hyperplane.collections.frames import (
    exchange_join,
    exchange_memory,
    frequent_keys,
    shuffle_join,
    small_side,
    table_join,
    task_graph,
)
from hyperplane.collections.frames.join_types import can_join_tables
from hyperplane.collections.frames.kernels import joins, polars_kernel, table_files
from hyperplane.dataframe import join, read
from hyperplane.errors import DataError

KINDS = [
    "int64", "int8", "uint8", "uint64", "float64", "infinite", "float32", "Int64", "UInt8",
    "Float64", "boolean", "bool", "arrow int", "str", "string", "string[pyarrow]", "arrow text",
    "datetime", "zoned", "timedelta",
]  # fmt: skip
#: Ways to join; all but the first exchange both sides.
WAYS = ["small side", "exchange", "spread", "files", "spread, in files"]


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


def choose_way(patch, way, into=3):
    """Let joins be planned in one of WAYS."""
    if way == "small side":
        return
    patch.setattr(small_side, "MAX_SMALL_SIDE", -1)
    patch.setattr(exchange_memory, "choose_row_partition_count", lambda count, size: into)
    if "spread" in way:  # the rows of each key
        patch.setattr(frequent_keys, "_MIN_ROWS", 0)
        patch.setattr(frequent_keys, "_MIN_SHARE", 0.0)
    if "files" in way:
        patch.setattr(exchange_memory, "choose_max_bytes", lambda count, size: 0)
        patch.setattr(table_files, "_MIN_FILE_BYTES", 1)


def make_nullable(frame, keys):
    """Return the right side of a left join with the types that the result declares."""
    return shuffle_join.make_columns_nullable(frame, keys)


@st.composite
def sides(draw):
    """Draw two frames with one or two keys, and columns of all kinds."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    values = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=2))
    drawn = []
    for side, value in zip(("left", "right"), values, strict=True):
        rows = draw(st.integers(0, 12))
        frame = pd.DataFrame({f"k{n}": draw(column(kind, rows)) for n, kind in enumerate(kinds)})
        frame["v"], frame[side] = draw(column(value, rows)), np.arange(rows)
        drawn.append(frame)
    return drawn[0], drawn[1], [f"k{n}" for n in range(len(kinds))]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "how"), combinations(WAYS, ["inner", "left"]))
@settings(QUICK, max_examples=scaled(15, 200))
@given(data=st.data(), both=sides())
def test_rows_and_types_equal_merge(way, how, data, both):
    left, right, on = both
    cuts = [
        data.draw(st.lists(st.integers(0, len(side)), min_size=1, max_size=3)) for side in both[:2]
    ]
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        choose_way(patch, way)
        joined = join(cut(left, cuts[0]), cut(right, cuts[1]), on, how)
        parts = dask.compute(*joined.to_delayed())
    want = left.merge(make_nullable(right, on) if how == "left" else right, on=on, how=how)
    ours = pd.concat(parts, ignore_index=True)
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
    for part in (*parts, joined._meta):
        assert list(part.columns) == list(want.columns)
        assert part.dtypes.to_list() == want.dtypes.to_list()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "how"), combinations(WAYS, ["semi", "anti"]))
@settings(QUICK, max_examples=scaled(10, 100))
@given(data=st.data(), both=sides())
def test_selected_rows_are_those_with_or_without_a_match(way, how, data, both):
    left, right, on = both
    cuts = [
        data.draw(st.lists(st.integers(0, len(side)), min_size=1, max_size=3)) for side in both[:2]
    ]
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="sync"):
        choose_way(patch, way)
        ours = join(cut(left, cuts[0]), cut(right, cuts[1]), on, how).compute()
    matched = left.merge(right[on].drop_duplicates(), on=on)["left"]
    want = left[left["left"].isin(matched) == (how == "semi")]
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
    assert ours.dtypes.to_list() == left.dtypes.to_list()


@pytest.mark.parametrize("kind", ["int64", "float32", "bool"])
@pytest.mark.parametrize(("way", "how"), combinations(WAYS, ["inner", "left"]))
def test_nullable_keys_are_joined_with_other_keys(kind, way, how, monkeypatch):
    nullable = {"int64": "Int64", "float32": "Float32", "bool": "boolean"}[kind]
    one = pd.DataFrame({"k": pd.array([1, 0, None, 1], dtype=nullable), "a": range(4)})
    other = pd.DataFrame({"k": pd.array([0, 1, 1], dtype=kind), "b": [0.5, 1.5, 2.5]})
    choose_way(monkeypatch, way)
    for left, right in ((one, other), (other, one)):
        with pytest.warns(UserWarning, match="mismatches"):
            joined = join(cut(left, [2]), cut(right, [1]), "k", how)
        ours = joined.compute(scheduler="sync")
        want = left.merge(make_nullable(right, ["k"]) if how == "left" else right, on="k", how=how)
        assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
        assert ours.dtypes.to_list() == want.dtypes.to_list() == joined._meta.dtypes.to_list()


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("hashes", [1, 2, 5])
@pytest.mark.parametrize("senders", [1, 4])
def test_keys_with_one_hash_are_distinct(how, hashes, senders, monkeypatch):
    """Rows are spread by hashes, of which several keys may have the same."""

    def hash_keys(table, keys):
        return (table.get_column("k") % hashes).cast(pl.UInt64).fill_null(0)

    monkeypatch.setattr(polars_kernel, "hash_keys", hash_keys)
    choose_way(monkeypatch, "spread", into=4)
    left = pd.DataFrame({"k": np.arange(40) % 11, "a": np.arange(40)})
    right = pd.DataFrame({"k": np.arange(60) % 7 + 3, "b": np.arange(60)})
    places = [[len(side) * n // senders for n in range(1, senders)] for side in (left, right)]
    for min_rows in (0, 5, 9):  # so that all, some or no keys of a side are spread
        monkeypatch.setattr(frequent_keys, "_MIN_ROWS", min_rows)
        for one, other, where in ((left, right, places), (right, left, places[::-1])):
            sides = cut(one, where[0]), dd.concat([cut(other, where[1]), cut(other.iloc[:0], [])])
            with dask.config.set(scheduler="sync"):
                ours = join(*sides, "k", how).compute()
            want = one.merge(
                make_nullable(other, ["k"]) if how == "left" else other, on="k", how=how
            )
            assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("way", ["exchange", "files"])
def test_rows_of_a_frequent_key_of_the_right_side_are_in_all_partitions(how, way, monkeypatch):
    choose_way(monkeypatch, way, into=8)
    generator = np.random.default_rng(5)
    left = pd.DataFrame({"k": generator.permutation(5_000), "a": np.arange(5_000)})
    keys = np.where(generator.random(60_000) < 0.6, 17, generator.integers(0, 4_000, 60_000))
    right = pd.DataFrame({"k": keys, "b": np.arange(60_000)})
    sides = cut(left, [1_000, 4_000]), cut(right, list(range(10_000, 60_000, 10_000)))
    with dask.config.set(scheduler="sync"):
        parts = dask.compute(*join(*sides, "k", how).to_delayed())
    want = left.merge(make_nullable(right, ["k"]) if how == "left" else right, on="k", how=how)
    assert pandas_results.rows_of(pd.concat(parts)) == pandas_results.rows_of(want)
    assert max(map(len, parts)) < 1.25 * len(want) / 8


def count(hashes, into=8):
    return frequent_keys.count_keys(pl.Series(hashes, dtype=pl.UInt64), into)


def test_keys_are_counted_in_a_sample():
    distinct = np.arange(10**6)
    assert count(distinct).counts.height == 0
    counted = count(np.where(distinct % 5 > 1, 7, distinct))
    assert counted.rows == 10**6
    assert counted.counts["hash"].to_list() == [7]
    assert counted.counts["rows"][0] == pytest.approx(600_000, rel=0.05)


def test_keys_that_are_frequent_in_one_partition_only_are_not_spread():
    """If keys are sorted, each is frequent in its partition."""
    own = [count(np.full(5_000, number)) for number in range(20)]
    assert len(frequent_keys.choose_spread_keys(own, own, 8)) == 0
    spread = frequent_keys.choose_spread_keys([*own, *own[:3] * 7], own, 8)
    assert sorted(spread["hash"]) == [0, 1, 2]
    assert spread["is_left"].all()


def test_the_side_with_more_rows_of_a_key_is_spread():
    many, few = count([5] * 9_000 + [6] * 1_000), count([5] * 3_000 + [6] * 3_000)
    for left, right, is_left in (
        (many, few, {5: True, 6: False}),
        (few, many, {5: False, 6: True}),
    ):
        spread = frequent_keys.choose_spread_keys([left], [right], 8)
        assert dict(zip(spread["hash"], spread["is_left"], strict=True)) == is_left
    width = dict(spread.select("hash", "width").iter_rows())
    assert width == {5: 8, 6: 8}
    assert frequent_keys.choose_spread_keys([many], [], 100)["width"].max() == 100
    rare = count([5] * 900)
    assert len(frequent_keys.choose_spread_keys([rare], [rare], 8)) == 0


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("int64", True), ("UInt8", True), ("float32", True), ("boolean", True), ("str", True),
        ("string", True), ("datetime64[ns]", True), ("datetime64[us, Europe/Berlin]", True),
        ("timedelta64[ms]", True), (arrow(pa.int8()), True), (arrow(pa.date32()), True),
        (object, False), ("category", False), ("float16", False), ("datetime64[s]", False),
        ("datetime64[us, UTC+02:00]", False), ("period[M]", False), ("complex128", False),
        (arrow(pa.float64()), False), (arrow(pa.decimal128(5, 2)), False),
        (arrow(pa.timestamp("us")), False), (pd.SparseDtype("int64"), False),
        ("interval[int64]", False),
    ],
    ids=str,
)  # fmt: skip
def test_declared_types_decide(dtype, expected):
    plain = pd.DataFrame({"k": [1]}).iloc[:0]
    other = plain.assign(v=pd.Series([], dtype=dtype))
    assert can_join_tables(plain, other, ["k"]) == expected
    assert can_join_tables(other, plain, ["k"]) == expected
    assert can_join_tables(other, other, ["v"]) == expected


def test_keys_of_different_types_and_repeated_names_are_not_joined_in_polars():
    one, other = (pd.DataFrame({"k": pd.Series([], dtype=kind)}) for kind in ("int64", "int32"))
    assert not can_join_tables(one, other, ["k"])
    assert not can_join_tables(pd.DataFrame([[1, 2]], columns=["k", "k"]), one, ["k"])
    assert not can_join_tables(one.assign(**{"x": 1}).rename(columns={"x": 5}), one, ["k"])


@pytest.mark.parametrize(
    "name", ["*", "", "^x$", "row", "hash", "partition", "key 0", "_partitions"]
)
@pytest.mark.parametrize("way", WAYS)
def test_columns_have_any_name(name, way, monkeypatch):
    choose_way(monkeypatch, way)
    left = pd.DataFrame({name: [1, 2, 2, 3], "a": range(4)})
    right = pd.DataFrame({name: [2, 2, 3, 4], "a": range(4)})
    for how in ("inner", "left"):
        with dask.config.set(scheduler="sync"):
            ours = join(cut(left, [2]), cut(right, [1]), name, how).compute()
        want = left.merge(right, on=name, how=how)
        assert list(ours.columns) == list(want.columns)
        assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_files_that_are_read_are_exchanged(files, how, monkeypatch):
    monkeypatch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", -1)
    choose_way(monkeypatch, "exchange")
    left = pd.DataFrame({"k": ["a", "b", None, "c"] * 5, "v": np.arange(20), "w": 1.5})
    right = pd.DataFrame({"k": ["b", None, "d"], "v": [1, 2, 3]})
    one, two = files.parquet(left, [7, 11], 3), files.parquet(right, [2], 3)
    ours = join(one[one.v > 3], two, "k", how).compute()
    kept = left[left.v > 3]
    if how in ("semi", "anti"):
        want = kept[kept.k.isin(["b", None]) == (how == "semi")]
    else:
        want = kept.merge(right, on="k", how=how)
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)


def sized(npartitions, size):
    """Return a side of a join with partitions of a size."""
    columns = exchange_join.SideColumns(pd.DataFrame(), (), None)
    return exchange_join.JoinSide(None, (None,) * npartitions, "", columns, size)


@pytest.mark.parametrize(
    ("left", "right", "inner", "other"),
    [
        ((8, 10**9), (2, 10**6), 1, 1),
        ((2, 10**6), (8, 10**9), 0, None),
        ((8, 10**9), (8, 10**9), None, None),
        ((8, None), (8, None), None, None),
        ((8, None), (8, 10**6), 1, 1),
        ((8, None), (8, 10**8), None, None),
        ((8, None), (1, None), 1, 1),
        ((100, 10**9), (8, 2 * 10**8), None, None),  # 100 tasks would read 20 GB
    ],
)
def test_sizes_decide_which_side_all_tasks_get(left, right, inner, other):
    both = sized(*left), sized(*right)
    assert table_join._choose_small_side(both, "inner") == inner
    for how in ("left", "semi", "anti"):
        assert table_join._choose_small_side(both, how) == other


def test_a_small_side_fits_into_the_memory_of_each_thread(monkeypatch):
    both = sized(8, 10**9), sized(2, 10**7)
    for memory, small in ((None, 1), (10**9, 1), (10**7, None)):
        monkeypatch.setattr(small_side, "get_memory_per_thread", lambda m=memory: m)
        assert table_join._choose_small_side(both, "left") == small


def test_keys_of_tables_with_other_types_are_cast_without_loss():
    left = pl.DataFrame({"k": [1, 2]})
    for values, rows in (([2.0, 2.5], 1), ([None], 0), ([1], 1)):
        right = pl.DataFrame(
            {"k": values}, schema_overrides={"k": pl.Int8} if rows == 1 and values == [1] else None
        )
        assert joins.join_tables(left, right, ["k"], "inner").height == rows
    with pytest.raises(DataError, match="'k': has types on the left and on the right"):
        joins.join_tables(left, pl.DataFrame({"k": ["a"]}), ["k"], "inner")


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("processes", "way"), [(1, "files"), (2, "files"), (1, "exchange"), (2, "exchange")]
)
@pytest.mark.usefixtures("forked_workers")
def test_workers_exchange_both_sides(processes, way, tmp_path):
    """Files are in the folders of the workers, and are removed with the result."""

    def write_all_pieces():
        from hyperplane.collections.frames.kernels import table_files

        table_files._MIN_FILE_BYTES = 1

    def find_files(dask_worker):
        from pathlib import Path

        return len(list(Path(dask_worker.local_directory).rglob("hyperplane-table-*")))

    generator = np.random.default_rng(1)
    keys = np.where(generator.random(30_000) < 0.6, 3, generator.integers(0, 900, 30_000))
    left = pd.DataFrame({"k": keys, "t": generator.integers(0, 9, 30_000).astype(str)})
    right = pd.DataFrame({"k": np.arange(0, 900, 2), "w": np.arange(450)})
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        choose_way(patch, way, into=5)
        client.run(write_all_pieces)
        joined = join(
            dd.from_pandas(left, npartitions=4), dd.from_pandas(right, npartitions=2), "k", "left"
        ).persist()
        parts = [part.result() for part in client.compute(joined.to_delayed())]
        del joined
        gc.collect()
        while any(client.run(find_files).values()):
            pass
    want = left.merge(right, on="k", how="left").astype({"w": "Int64"})
    assert pandas_results.rows_of(pd.concat(parts)) == pandas_results.rows_of(want)
    assert max(map(len, parts)) < 1.3 * len(want) / 5


def test_results_are_saved_without_pandas(tmp_path, monkeypatch):
    import hyperplane

    choose_way(monkeypatch, "exchange")
    left = pd.DataFrame({"k": [1, 2, 2], "a": ["x", "y", None]})
    right = pd.DataFrame({"k": [2, 3], "b": [0.5, 1.5]})
    joined = join(cut(left, [1]), cut(right, [1]), "k", "left")
    monkeypatch.setattr(table_join, "_to_pandas", None)
    with dask.config.set(scheduler="sync"):
        hyperplane.save(joined, tmp_path / "joined", format="parquet")
        rows = read(tmp_path / "joined").compute()
    want = left.merge(right, on="k", how="left")
    assert Counter(pandas_results.rows_of(rows)) == Counter(pandas_results.rows_of(want))


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("is_left", [True, False])
def test_pieces_of_a_partition_do_not_depend_on_the_order_of_its_rows(how, is_left):
    """A task that runs again, after a worker was lost, may get its rows in another order."""
    rng = np.random.default_rng(5)
    keys = np.where(rng.random(90_000) < 0.6, 7, rng.integers(0, 99, 90_000))
    values = {"v": rng.integers(0, 50, 90_000), "t": rng.random(90_000).round(2)}
    rows = pl.DataFrame({"k": keys, **values})
    join = exchange_join.ExchangeJoin(("k",), how, 8, None)

    def split(rows):
        hashes = join.hash_keys(rows)
        counts = frequent_keys.count_keys(hashes, join.into)
        sides = ([counts], []) if is_left else ([], [counts])
        spread = frequent_keys.choose_spread_keys(*sides, join.into)
        pieces = join.split_rows(rows, (hashes % join.into).cast(pl.UInt32), in_files=False)
        return spread, exchange_join._spread_rows([*pieces, counts], spread, join, 0, is_left)

    spread, pieces = split(rows)
    assert spread.get_column("width").max() > 4
    for seed in range(3):
        other, again = split(rows.sample(fraction=1, shuffle=True, seed=seed))
        assert other.sort("hash").equals(spread.sort("hash"))
        for one, two in zip(pieces, again, strict=True):
            assert one.sort(one.columns).equals(two.sort(two.columns))
    most = max(piece.height for piece in pieces)
    assert most < 2 * rows.height / join.into


def test_groups_of_another_number_of_processes_have_other_keys(monkeypatch):
    made = []
    for processes in (2, 3):
        monkeypatch.setattr(task_graph, "count_processes", lambda processes=processes: processes)
        monkeypatch.setattr(task_graph, "has_one_process", lambda: False)
        tables = task_graph.make_tasks("split", "t", len, [[[1, 2, 3]]])
        found = task_graph.exchange_groups("join", "t", tables, 12)
        made.append({task.key for pieces, _ in found for task in pieces})
    assert made[0] & made[1] == set()
