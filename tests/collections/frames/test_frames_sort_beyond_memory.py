"""Sorts of more rows than fit into memory: exchanges through files, and divided heavy keys."""

from __future__ import annotations

import gc
import pickle

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, system
from distributed.spill import SpillBuffer
from pandas_results import same_frame
from scale import FULL

from hyperplane.collections.frames import exchange_memory
from hyperplane.collections.frames.kernels import range_splits, table_files
from hyperplane.collections.frames.kernels.range_splits import SortKeys
from hyperplane.collections.frames.kernels.table_files import (
    concat_pieces,
    join_filed_tables,
    take_movable_piece,
)
from hyperplane.collections.frames.source_collection import select_source
from hyperplane.core.dask_internals.workers import keep_filed_results_of
from hyperplane.dataframe import join, read, sort_values
from hyperplane.errors import HyperplaneError

ALSO_AT_FULL_SCALE = pytest.mark.skipif(not FULL, reason="more plans: at full scale")


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """Let rows of any size exceed the memory, and let all tables go to files of a folder."""
    monkeypatch.setattr(exchange_memory, "fits_in_memory", lambda size: False)
    monkeypatch.setattr(table_files, "_MIN_FILE_BYTES", 1)
    folder = tmp_path / "exchange"
    with dask.config.set({"temporary-directory": str(folder), "scheduler": "sync"}):
        yield folder


@pytest.fixture
def log(tmp_path):
    """Return rows of which most have one user, and the folder of their files."""
    rng = np.random.default_rng(3)
    n = 6000
    frame = pd.DataFrame(
        {
            "user": np.where(rng.random(n) < 0.7, "heavy", rng.integers(0, 50, n).astype(str)),
            "at": rng.integers(0, 100, n).astype(float),
            "row": np.arange(n),
        }
    )
    frame.loc[rng.random(n) < 0.02, "user"] = None
    frame.loc[rng.random(n) < 0.1, "at"] = np.nan
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(6):
        frame.iloc[number * 1000 : (number + 1) * 1000].to_parquet(folder / f"{number}.parquet")
    return read(folder).compute().reset_index(drop=True), folder


@pytest.mark.parametrize("by", [["user"], ["user", "at"]])
@pytest.mark.parametrize("ascending", [True, False, [False, True]])
@pytest.mark.parametrize("position", ["first", "last"])
def test_rows_in_files_have_the_order_of_pandas(little_memory, log, by, ascending, position):
    frame, folder = log
    ways = ascending[: len(by)] if isinstance(ascending, list) else ascending
    result = sort_values(read(folder), by, ascending=ways, na_position=position, split_out=8)
    parts = dask.compute(*result.to_delayed())
    want = frame.sort_values(
        by, ascending=ways, na_position=position, kind="stable", ignore_index=True
    )
    same_frame(pd.concat(parts, ignore_index=True), want)
    # 70 percent of the rows have one user: they are in several partitions.
    assert max(map(len, parts)) < 3 * len(frame) / 8


def test_equal_rows_are_in_partitions_of_similar_size(little_memory, tmp_path):
    pd.DataFrame({"k": [1] * 900, "row": range(900)}).to_parquet(tmp_path / "a.parquet")
    parts = dask.compute(*sort_values(read(tmp_path), "k", split_out=3).to_delayed())
    assert pd.concat(parts).row.to_list() == list(range(900))
    assert max(map(len, parts)) < 400


def test_times_that_differ_by_nanoseconds_are_not_equal(little_memory, tmp_path):
    rng = np.random.default_rng(0)
    at = pd.Timestamp("2026-01-01").as_unit("ns") + pd.to_timedelta(rng.permutation(900) // 300)
    frame = pd.DataFrame({"at": at.astype("datetime64[ns]"), "row": rng.permutation(900)})
    frame.to_parquet(tmp_path / "a.parquet")
    result = sort_values(read(tmp_path / "a.parquet"), ["at", "row"], split_out=9)
    parts = dask.compute(*result.to_delayed())
    same_frame(
        pd.concat(parts, ignore_index=True), frame.sort_values(["at", "row"], ignore_index=True)
    )
    assert max(map(len, parts)) < 200


@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize("senders", [2, 200])
def test_rows_without_first_keys_go_through_files(little_memory, tmp_path, rows, senders):
    frame = pd.DataFrame({"k": pd.Series([None] * rows, dtype="Float64"), "row": range(rows)})
    df = dd.from_map(
        lambda number: frame.assign(part=number), range(senders), meta=frame.assign(part=0)
    )
    result = sort_values(df, "k", split_out=3).compute()
    assert result.row.to_list() == list(range(rows)) * senders
    assert result.part.to_list() == [number for number in range(senders) for _ in range(rows)]


def test_split_rows_do_not_depend_on_the_order_of_the_rows():
    """A task that runs again, after a worker was lost, may get its rows in another order."""
    rng = np.random.default_rng(2)
    rows = pl.DataFrame({"k": rng.integers(0, 50_000, 40_000).astype(str), "row": range(40_000)})
    rows = rows.with_columns(pl.when(pl.col("row") % 9 > 0).then("k").alias("k"))
    keys = SortKeys(("k",), (False,), nulls_last=True, whole=True)

    def choose(rows):
        samples = [
            range_splits.sample_keys(part.lazy(), ["k"], number, by_value=True)
            for number, part in enumerate((rows.head(30_000), rows.tail(10_000)))
        ]
        return range_splits.choose_split_rows(samples, keys, 16)

    def split(rows, split_rows):
        numbers = range_splits.number_rows(rows, split_rows, keys, 0, 16)
        return rows.with_columns(pl.Series("range", numbers)).sort("row")

    want = choose(rows)
    assert want.height == 15
    for seed in range(3):
        one, other = (
            part.sample(fraction=1, shuffle=True, seed=seed)
            for part in (rows.head(30_000), rows.tail(10_000))
        )
        moved = pl.concat([one, other])
        assert choose(moved)["k"].equals(want["k"])
        assert split(moved, choose(moved)).equals(split(rows, want), null_equal=True)


def test_rows_of_shuffles_are_not_divided_by_their_positions(little_memory, tmp_path):
    frame = pd.DataFrame({"k": np.arange(400) % 3, "row": np.arange(400)})
    frame.to_parquet(tmp_path / "a.parquet")
    small = dd.from_pandas(frame.head(3)[["k"]], npartitions=2)
    fixed = [
        read(tmp_path / "a.parquet"),
        dd.from_pandas(frame, npartitions=4),
        dd.read_parquet(tmp_path / "a.parquet")[["k", "row"]],
        dd.from_pandas(frame, npartitions=4).map_partitions(lambda part: part + 1),
    ]
    moving = [
        dd.from_pandas(frame, npartitions=4).shuffle("row", npartitions=3),
        dd.from_pandas(frame, npartitions=4).drop_duplicates("row", split_out=3),
        dd.from_pandas(frame, npartitions=4).merge(small, on="k"),
        join(dd.from_pandas(frame, npartitions=4), small, "k"),
        sort_values(read(tmp_path / "a.parquet"), "k", split_out=3),
    ]
    for df, is_ordered in [*((df, True) for df in fixed), *((df, False) for df in moving)]:
        assert select_source(df, ["k", "row"]).is_ordered == is_ordered
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        parts = dask.compute(*sort_values(moving[0], ["k", "row"], split_out=9).to_delayed())
    same_frame(
        pd.concat(parts, ignore_index=True), frame.sort_values(["k", "row"], ignore_index=True)
    )
    assert sorted(len(part) for part in parts if len(part)) == [133, 133, 134]


def test_files_are_removed_with_their_tables(little_memory, log):
    frame, folder = log
    assert len(sort_values(read(folder), "at", split_out=4).compute()) == len(frame)
    gc.collect()
    assert list(little_memory.iterdir()) == []


def test_a_moved_table_has_its_own_file(little_memory):
    table = pl.DataFrame({"a": [1, None], "b": ["x", "y"]})
    (filed,) = table_files.write_tables([table])
    moved = pickle.loads(pickle.dumps(filed))
    del filed
    gc.collect()
    assert moved.load().equals(table, null_equal=True)
    assert len(list(little_memory.rglob("*.arrow"))) == 1
    joined = concat_pieces([join_filed_tables([moved, moved])])
    assert joined.equals(pl.concat([table, table]), null_equal=True)


def test_a_folder_that_cannot_be_written_is_named(little_memory):
    little_memory.write_text("a file, not a folder")
    with pytest.raises(HyperplaneError, match="temporary-directory"):
        table_files.write_tables([pl.DataFrame({"a": [1]})])


def test_small_tables_stay_in_memory(tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        (filed,) = table_files.write_tables([pl.DataFrame({"a": [1]})])
        assert filed.load().rows() == [(1,)]
    assert list(tmp_path.iterdir()) == []


def test_many_small_pieces_of_a_table_are_in_files(tmp_path):
    table = pl.DataFrame({"a": np.arange(100_000), "b": np.arange(100_000).astype(str)})
    pieces = [table.slice(number * 100, 100) for number in range(1_000)]
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        filed = table_files.write_tables(pieces)
        assert max(map(sizeof, filed)) < 300
        (file,) = tmp_path.rglob("*.arrow")
        moved = [pickle.loads(pickle.dumps(piece.make_movable())) for piece in filed]
        del filed
        gc.collect()
        (received,) = tmp_path.rglob("*.arrow")
        assert file != received
        assert sum(map(sizeof, moved)) == pytest.approx(received.stat().st_size, rel=0.2)
        for number in (0, 1, 999):
            assert moved[number].load().equals(pieces[number])
        kept = moved[5]
        del moved
        gc.collect()
        assert kept.load().equals(pieces[5])
        del kept
        gc.collect()
        assert list(tmp_path.iterdir()) == []


def test_received_pieces_begin_a_new_file_after_some_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_MAX_RECEIVED_BYTES", 10_000)
    table = pl.DataFrame({"a": np.random.default_rng(0).integers(0, 2**62, 1_000)})
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        (filed,) = table_files.write_tables([table])
        moved = [pickle.loads(pickle.dumps(filed)) for _ in range(6)]
        assert len(list(tmp_path.rglob("*.arrow"))) == 3
        assert all(piece.load().equals(table) for piece in moved)
        del moved[:2]
        gc.collect()
        assert len(list(tmp_path.rglob("*.arrow"))) == 2
        assert all(piece.load().equals(table) for piece in moved)
        del moved, filed
        gc.collect()
        assert list(tmp_path.iterdir()) == []


def test_sizes_decide_on_files(monkeypatch):
    monkeypatch.setattr(exchange_memory, "get_memory_per_thread", lambda: 10**9)
    monkeypatch.setattr(exchange_memory, "count_threads", lambda: 2)
    assert exchange_memory.fits_in_memory(5 * 10**8)
    assert not exchange_memory.fits_in_memory(5 * 10**8 + 1)
    assert not exchange_memory.fits_in_memory(None)
    assert exchange_memory.choose_row_partition_count(4, 10**10) == 100


def test_only_pieces_for_other_processes_have_the_size_of_their_rows(little_memory):
    (filed,) = table_files.write_tables([pl.DataFrame({"a": np.arange(10_000)})])
    stored = len(pickle.dumps(filed))
    assert sizeof(filed) < 1000 < stored
    joined = join_filed_tables([filed, filed])
    for piece, count in ((filed, 1), (joined, 2)):
        moved = take_movable_piece([None, piece], 1)
        assert count * stored * 0.9 < sizeof(moved) < count * (stored + 500)
        assert sizeof(pickle.loads(pickle.dumps(moved))) == pytest.approx(sizeof(moved), rel=0.1)
        assert concat_pieces([moved]).height == count * 10_000


@pytest.mark.parametrize("small_target", [False, True])
def test_results_in_files_are_not_spilled(little_memory, tmp_path, small_target):
    pieces = table_files.write_tables(pl.DataFrame({"a": np.arange(20_000) + n}) for n in range(3))
    data = SpillBuffer(str(tmp_path / "spill"), target=300_000 if small_target else 10**9)
    keep_filed_results_of(data, table_files.is_filed)
    results = {
        "pieces": pieces,
        "with counts": [*pieces, "counts"],
        "movable": take_movable_piece(pieces, 1),
        "joined": join_filed_tables([*pieces, *pieces]),
        "nothing": None,
        "list": [1, "a"],
    }
    arrays = {f"array {n}": np.zeros(10**5) for n in range(3)}
    for name, result in {**results, **arrays}.items():
        data[name] = result
    data["mixed"] = join_filed_tables([pieces[0], pl.DataFrame({"a": np.zeros(10**5)})])
    if not small_target:
        assert sum(data.evict() for _ in range(4)) > 3 * 800_000
        assert set(data.disk) == {*arrays, "mixed"}
    while data.evict() != -1:
        pass
    assert set(data.disk) == {*arrays, "mixed", "nothing", "list"}
    assert set(data.memory) == {"pieces", "with counts", "movable", "joined"}
    assert data.fast.total_weight < 1_000
    assert data["array 1"].sum() == 0
    for name in list(data):
        del data[name]
    assert data.evict() == -1


def test_samples_of_periodic_partitions_differ():
    """Ranges were uneven if rows at the same positions of all partitions had the same keys."""
    rows = pl.DataFrame({"k": np.arange(20_000) % 5000})
    samples = [range_splits.sample_keys(rows.lazy(), ["k"], number) for number in range(40)]
    keys = SortKeys(("k",), (False,), nulls_last=True, whole=True)
    again = range_splits.sample_keys(rows.lazy(), ["k"], 3)[0]
    assert again.equals(samples[3][0])
    assert not again.select("k").equals(samples[4][0].select("k"))
    split_rows = range_splits.choose_split_rows(samples, keys, 20)
    numbers = range_splits.number_rows(rows, split_rows, keys, 0, 20)
    sizes = np.bincount(numbers, minlength=20)
    assert sizes.max() < 1.15 * rows.height / 20
    assert sizes.min() > 0.85 * rows.height / 20


@pytest.mark.parametrize("nulls_last", [True, False])
@pytest.mark.parametrize("descending", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("distinct", [0, 7, 3000, 10**6])
def test_repeated_and_distinct_text_are_sorted_alike(distinct, descending, nulls_last):
    n = 2 * range_splits._SAMPLE_SIZE + 100
    rng = np.random.default_rng(0)
    words = [f"{'é' * (number % 3)}{number % 97}-{number}" for number in range(distinct)] or [None]
    text = pl.Series("k", words, pl.String).gather(rng.integers(0, len(words), n))
    rows = pl.DataFrame(
        [text.set(pl.Series(rng.random(n) < 0.1), None), pl.Series("at", rng.integers(0, 50, n))]
    )
    rows = pl.concat([rows[:1000], rows[1000:]], rechunk=False)
    keys = SortKeys(("k", "at"), descending, nulls_last, whole=True)
    ranks = range_splits._rank_repeated_text(rows["k"])
    assert ranks.dtype.is_integer() == (distinct < 100)
    expected = rows.with_row_index("__row__").sort(
        "k", "at", descending=descending, nulls_last=nulls_last, maintain_order=True
    )
    found = range_splits.find_sorted_positions(rows, keys)
    assert found.equals(expected["__row__"], check_names=False)


def test_columns_are_released_once_they_are_gathered():
    parts = [pl.DataFrame({"n": [n, n + 1], "text": [f"long text {n}"] * 2}) for n in range(3)]
    rows = pl.concat(parts, rechunk=False)
    expected = rows[[5, 0]]
    columns = range_splits.gather_columns(rows, list(rows.columns), pl.Series([5, 0]))
    first = next(columns)
    assert rows.columns == ["text"]
    found = pl.DataFrame([first, *columns])
    assert found.equals(expected)
    assert found.n_chunks("all") == [1, 1]
    assert not rows.columns


def test_a_sort_has_at_most_as_many_partitions_as_split_out_allows(monkeypatch):
    monkeypatch.setattr(exchange_memory, "get_memory_per_thread", lambda: 10**9)
    assert exchange_memory.choose_row_partition_count(1000, 7 * 10**12) == 10_000


def test_a_container_limits_what_fits_into_memory_without_a_cluster(monkeypatch):
    monkeypatch.setattr(system, "MEMORY_LIMIT", 2 * 10**9)
    assert exchange_memory.fits_in_memory(5 * 10**8)
    assert not exchange_memory.fits_in_memory(5 * 10**8 + 1)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "planned",
    [
        pytest.param("with one process", marks=ALSO_AT_FULL_SCALE),
        "with two",
        "without a client",
        pytest.param("adaptive", marks=ALSO_AT_FULL_SCALE),
    ],
)
@pytest.mark.usefixtures("forked_workers")
def test_workers_exchange_rows_through_files(log, planned, tmp_path):
    frame, folder = log

    def record_files():
        """Let a worker write all pieces to files, and remember their paths."""
        from hyperplane.collections.frames.kernels import table_files

        create, table_files.created = table_files.TableFile.__init__, []

        def create_and_record(self):
            create(self)
            table_files.created.append(self.path)

        table_files.TableFile.__init__, table_files._MIN_FILE_BYTES = create_and_record, 1

    def find_files(dask_worker):
        from hyperplane.collections.frames.kernels import table_files

        inside = [str(path).startswith(dask_worker.local_directory) for path in table_files.created]
        return inside, [str(path) for path in table_files.created if path.exists()]

    def plan():
        return sort_values(read(folder), ["user", "at"], split_out=5)

    with (
        dask.config.set({"temporary-directory": str(tmp_path / "workers")}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(exchange_memory, "fits_in_memory", lambda size: False)
        result = plan() if planned == "without a client" else None
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                memory_limit="1GB",
                dashboard_address="127.0.0.1:0",
            ) as cluster,
            Client(cluster) as client,
        ):
            if planned == "adaptive":
                adaptive = cluster.adapt(minimum=1, maximum=2)
                result = plan()
                adaptive.stop()
            elif planned == "with one process":
                result = plan()
            processes = 1 if planned == "with one process" else 2
            cluster.scale(processes)
            client.wait_for_workers(processes)
            if planned == "with two":
                result = plan()
            client.run(record_files)
            rows = result.compute()
            found = client.run(find_files)
            while any(left for _, left in found.values()):
                found = client.run(find_files)
    want = frame.sort_values(["user", "at"], kind="stable", ignore_index=True)
    same_frame(rows.reset_index(drop=True), want)
    assert len(found) == processes
    for inside, _ in found.values():
        assert len(inside) > 2
        assert all(inside)
    # Pieces that moved are files of the process that received them.
    assert (sum(len(inside) for inside, _ in found.values()) > 6) == (processes == 2)
    tasks = [key for key in result.__dask_graph__() if "piece" in str(key)]
    assert bool(tasks) == (processes == 2)
