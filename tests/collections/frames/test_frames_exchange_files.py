"""Distinct rows and groups of more rows than fit into memory: exchanges through files."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import polars as pl
import pytest
from distributed import Client, LocalCluster
from frame_strategies import QUICK, aggregations, cut, frames, in_partitions, open_files
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane import load, save
from hyperplane.collections.frames import exchange_memory, task_graph
from hyperplane.collections.frames.kernels import table_files
from hyperplane.collections.frames.source_collection import select_source
from hyperplane.collections.frames.typed_partitions import list_typed_partitions
from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    read,
    sort_values,
    top_n_per_group,
    window_agg,
)
from hyperplane.errors import DataError, HyperplaneError, RequestError


@pytest.fixture(scope="module")
def files():
    with open_files(keep_objects=True) as opened:
        yield opened


@pytest.fixture
def little_memory(tmp_path):
    """Let rows of any size exceed the memory, and let all tables go to files of a folder."""
    folder = tmp_path / "exchange"
    with (
        no_memory(),
        dask.config.set({"temporary-directory": str(folder), "scheduler": "sync"}),
    ):
        yield folder


@contextmanager
def no_memory():
    """Let all rows of helpers that are called in this block go through files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange_memory, "_get_memory_of_exchange", lambda: -1)
        patch.setattr(table_files, "_MIN_FILE_BYTES", 1)
        patch.setattr(task_graph, "count_processes", lambda: 3)
        yield


@pytest.mark.slow
@settings(QUICK, max_examples=scaled(8, 60))
@given(data=st.data())
def test_distinct_rows_of_files_equal_pandas(data, files):
    subset = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "subset")
    frame = data.draw(frames(keys=2), "frame")
    frame["place"] = np.arange(len(frame))
    df = data.draw(in_partitions(frame, files), "df")
    keep = data.draw(st.sampled_from(["first", "last"]), "keep")
    want = df.compute().drop_duplicates(subset, keep=keep)
    with no_memory():
        into = data.draw(st.sampled_from([None, 2, 40]), "into")
        result = drop_duplicates(df, subset, keep=keep, split_out=into).compute()
    result = result.sort_values("place", ignore_index=True)
    pandas_results.same_frame(result, want.sort_values("place", ignore_index=True))


@pytest.mark.slow
@settings(QUICK, max_examples=scaled(8, 60))
@given(data=st.data())
def test_groups_of_files_equal_pandas(data, files):
    by = data.draw(st.sampled_from([["k0"], ["k0", "k1"]]), "by")
    frame = data.draw(frames(keys=len(by), values=2), "frame")
    agg = data.draw(aggregations(frame), "agg")
    df = data.draw(in_partitions(frame, files), "df")
    want = pandas_results.group_agg(df.compute(), by, agg)
    assume(want is not None)
    with no_memory():
        into = data.draw(st.sampled_from([1, 2, 30, None]), "split_out")
        result = group_agg(df, by[0] if len(by) == 1 else by, agg, split_out=into).compute()
    pandas_results.same_frame(result.sort_index() if into != 1 else result, want)


PLAIN = {
    "text": lambda rng, n: pd.Series(rng.integers(0, 9, n).astype(str), dtype="str"),
    "int64": lambda rng, n: pd.Series(rng.integers(-3, 3, n)),
    "uint8": lambda rng, n: pd.Series(rng.integers(0, 5, n), dtype="uint8"),
    "float64": lambda rng, n: pd.Series(rng.integers(-3, 3, n) / 2),
    "float32": lambda rng, n: pd.Series(rng.integers(-3, 3, n) / 2, dtype="float32"),
    "ns": lambda rng, n: pd.Series(rng.integers(0, 5, n)).astype("datetime64[ns]"),
    "seconds": lambda rng, n: pd.Series(rng.integers(0, 5, n)).astype("datetime64[s]"),
}


@settings(QUICK, max_examples=scaled(12, 100))
@given(data=st.data())
def test_tables_of_groups_are_those_of_pandas(data):
    keys = data.draw(st.lists(st.sampled_from(sorted(PLAIN)), min_size=1, max_size=3), "keys")
    values = data.draw(st.lists(st.sampled_from(sorted(PLAIN)), min_size=1, max_size=2), "values")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    rows = data.draw(st.integers(0, 60), "rows")
    columns = {f"k{n}": PLAIN[name](rng, rows) for n, name in enumerate(keys)}
    columns |= {f"v{n}": PLAIN[name](rng, rows) for n, name in enumerate(values)}
    for name, kind in zip(columns, [*keys, *values], strict=True):
        if kind not in ("int64", "uint8"):
            columns[name] = columns[name].mask(rng.random(rows) < 0.3)
    frame = pd.DataFrame(columns)
    agg = data.draw(aggregations(frame), "agg")
    df = cut(frame, [rows // 3, rows // 2])
    with no_memory():
        groups = group_agg(df, [name for name in frame if name[0] == "k"], agg, split_out=3)
    want = pandas_results.group_agg(frame, [name for name in frame if name[0] == "k"], agg)
    assume(want is not None)
    groups.columns = want.columns = [f"c{number}" for number in range(len(groups.columns))]
    groups = groups.reset_index()
    tables = list_typed_partitions(groups)
    assert (tables is None) == any(name.startswith("float") for name in keys)
    if tables is not None:
        found, frames = dask.compute(tables, groups.to_delayed(), scheduler="sync")
        for table, frame in zip(found, frames, strict=True):
            pd.testing.assert_frame_equal(table.to_pandas(), frame)
        result = pd.concat(frames).set_index(want.index.names).sort_index()
        pandas_results.same_frame(result, want)


def log(rows=6000):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "user": np.where(
                rng.random(rows) < 0.7, "heavy", rng.integers(0, 50, rows).astype(str)
            ),
            "at": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**5, rows), "s"),
            "v": rng.integers(0, 100, rows).astype(float),
            "row": np.arange(rows),
        }
    )
    frame.loc[rng.random(rows) < 0.02, "user"] = None
    frame.loc[rng.random(rows) < 0.1, "v"] = np.nan
    return frame


CALLS = {
    "duplicates": lambda df: drop_duplicates(df, ["user", "v"], keep="last"),
    "groups": lambda df: group_agg(df, "user", {"v": ["mean", "nunique"]}, split_out=5),
    "one partition": lambda df: group_agg(df, "user", {"v": ["median", "nunique"]}),
    "top": lambda df: top_n_per_group(df, "user", "v", 3, split_out=20),
    "top of many": lambda df: top_n_per_group(df, ["user", "row"], "v", 1, split_out=None),
    "windows": lambda df: window_agg(
        df, "at", "7h", {"v": ["first", "nunique"]}, by="user", split_out=3
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("senders", [6, 150])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_do_not_depend_on_files(little_memory, call, senders):
    frame = log(6000 if senders < 100 else 900)
    df = cut(frame, range(0, len(frame), len(frame) // senders))
    result = call(df).compute()
    gc.collect()
    assert list(little_memory.iterdir()) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange_memory, "_get_memory_of_exchange", lambda: 10**12)
        want = call(df).compute()
    if "row" in result:
        result, want = (each.sort_values("row", ignore_index=True) for each in (result, want))
    else:
        result, want = result.sort_index(), want.sort_index()
    pd.testing.assert_frame_equal(result, want)


def test_small_tables_of_many_rows_stay_in_memory(monkeypatch):
    frame = log()
    monkeypatch.setattr(exchange_memory, "_get_memory_of_exchange", lambda: 6 * 10_000)
    monkeypatch.setattr(table_files, "_MIN_FILE_BYTES", 1)
    monkeypatch.setattr(table_files, "TableFile", None)
    df = cut(frame, range(0, 6000, 1000))
    with dask.config.set(scheduler="sync"):
        result = group_agg(df, "user", {"v": "sum"}, split_out=3).compute()
    pandas_results.same_frame(
        result.sort_index(), pandas_results.group_agg(frame, "user", {"v": "sum"})
    )


def test_a_disk_that_is_full_for_a_moment_fails_only_the_tasks_of_its_pieces(tmp_path):
    numbers = np.random.default_rng(0)
    tables = [pl.DataFrame({"a": numbers.integers(0, 2**62, size)}) for size in (1000, 30_000, 900)]
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        first, large, last = (pickle.dumps(table_files.write_tables([each])[0]) for each in tables)
        received = pickle.loads(first)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            lost = pickle.loads(large)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        later, again = pickle.loads(last), pickle.loads(large)
    with pytest.raises(HyperplaneError, match=r"cannot be written.*free space"):
        lost.load()
    for piece, table in ((received, 0), (again, 1), (later, 2)):
        assert piece.load().equals(tables[table])


FORKED = """
import os, sys
import numpy as np, polars as pl
from hyperplane.collections.frames.kernels.table_files import write_tables

numbers = np.random.default_rng(0).integers(0, 2**62, 30_000)
pieces = write_tables([pl.DataFrame({"a": numbers}) for _ in range(2)])
child = os.fork()
if child == 0:
    del pieces[1]
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert [piece.load()["a"].to_list() for piece in pieces] == [numbers.tolist()] * 2
"""


@pytest.mark.process
@pytest.mark.slow
def test_files_remain_after_a_forked_process_has_ended(tmp_path):
    variables = {**os.environ, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)}
    subprocess.run([sys.executable, "-c", FORKED], check=True, env=variables)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_worker_that_is_closed_leaves_its_files_to_others_of_its_process(tmp_path):
    numbers = np.random.default_rng(0).integers(0, 2**62, 30_000)

    def write():
        return table_files.write_tables([pl.DataFrame({"a": numbers})])[0].make_movable()

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            local_directory=str(tmp_path),
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        first = next(iter(client.nthreads()))
        piece = client.submit(write, workers=[first], allow_other_workers=True)
        sizes = client.submit(lambda each: each.load().height, piece)
        assert sizes.result() == numbers.size
        client.retire_workers([first])
        held = client.submit(lambda each: each.load()["a"].to_list(), piece, pure=False)
        assert held.result() == numbers.tolist()
        assert len(list(tmp_path.rglob("hyperplane-table-*"))) == 1


@pytest.mark.slow
def test_threads_save_the_same_rows(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(20):
        pd.DataFrame({"k": np.arange(50)[::-1], "file": number}).to_parquet(
            tmp_path / "in" / f"{number:02}.parquet"
        )
    result = sort_values(read(tmp_path / "in"), "k", split_out=30)
    expected = result.compute(scheduler="sync").reset_index(drop=True)
    errors = []

    def save_rows(name):
        try:
            save(result, tmp_path / name)
        except Exception as error:  # noqa: BLE001 - the test shows it
            errors.append(error)

    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        with dask.config.set(scheduler="sync"):
            names = [f"out-{number}" for number in range(6)]
            threads = [threading.Thread(target=save_rows, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    for name in names:
        saved = load(tmp_path / name).compute(scheduler="sync").reset_index(drop=True)
        pd.testing.assert_frame_equal(saved, expected)


def test_sizes_are_those_of_the_columns_that_are_read(tmp_path):
    wide = pd.DataFrame({"k": np.arange(10_000) % 7, **{f"c{n}": 1.5 for n in range(50)}})
    wide.to_parquet(tmp_path / "a.parquet")
    df = read(tmp_path / "a.parquet")

    def estimate(df, columns):
        return exchange_memory.estimate_source_size(select_source(df, columns), df)

    assert 70_000 < estimate(df, ["k"]) < 150_000
    assert 150_000 < estimate(df[df.c1 > 1], ["k"]) < 300_000
    assert estimate(df, list(df.columns)) > 3 * 10**6
    pandas = dd.from_pandas(wide, npartitions=2)
    assert 70_000 < estimate(pandas, ["k"]) < estimate(pandas, list(wide.columns)) / 10


@pytest.mark.parametrize("senders", [2, 150])
def test_types_without_a_common_one_name_their_partitions(little_memory, senders):
    pieces = [pd.DataFrame({"k": [number]}) for number in range(senders)]
    pieces[-1] = pd.DataFrame({"k": ["a"]}, dtype=object)
    df = dd.from_map(lambda number: pieces[number], range(senders), meta=pieces[0])
    with pytest.raises(DataError, match=rf"partitions? .*{senders - 1}"):
        drop_duplicates(df, split_out=2).compute()
    with pytest.raises(DataError, match="partition"):
        sort_values(df, "k", split_out=2).compute()


def test_memory_decides_on_the_number_of_partitions(monkeypatch):
    monkeypatch.setattr(exchange_memory, "get_memory_per_thread", lambda: 10**9)
    monkeypatch.setattr(exchange_memory, "count_threads", lambda: 2)
    assert exchange_memory.choose_max_bytes(10, 5 * 10**8) is None
    assert exchange_memory.choose_max_bytes(10, 6 * 10**8) == 0
    assert exchange_memory.choose_max_bytes(10, None) == 5 * 10**7


def test_none_chooses_the_number_of_partitions_of_groups():
    df = cut(log(), range(0, 6000, 1000))
    groups = group_agg(df, ["user", "v"], {"row": "sum"}, split_out=None)
    assert groups.npartitions > 1
    want = pandas_results.group_agg(log(), ["user", "v"], {"row": "sum"})
    pandas_results.same_frame(groups.compute(scheduler="sync").sort_index(), want)
    with pytest.raises(RequestError, match="split_out"):
        group_agg(df, "user", {"v": "sum"}, split_out=0)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("processes", [1, 2])
def test_workers_drop_duplicates_through_files(processes, tmp_path):
    frame = log()
    for number in range(6):
        frame.iloc[number * 1000 : (number + 1) * 1000].to_parquet(tmp_path / f"{number}.parquet")

    def count_files():
        """Let a worker write all pieces to files, and count them."""
        from hyperplane.collections.frames.kernels import table_files

        create, table_files.created = table_files.TableFile.__init__, []

        def create_and_count(self):
            create(self)
            table_files.created.append(self.path)

        table_files.TableFile.__init__, table_files._MIN_FILE_BYTES = create_and_count, 1

    def get_files(dask_worker):
        from hyperplane.collections.frames.kernels import table_files

        return [str(path).startswith(dask_worker.local_directory) for path in table_files.created]

    with (
        LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
        no_memory(),
    ):
        client.run(count_files)
        rows = drop_duplicates(read(tmp_path), ["user", "v"]).compute()
        groups = group_agg(read(tmp_path), "user", {"v": "median"}, split_out=3).compute()
        found = client.run(get_files)
        assert all(client.run(lambda dask_worker: "evict" in vars(dask_worker.data)).values())
    held = read(tmp_path).compute()
    want = held.drop_duplicates(["user", "v"]).sort_values("row", ignore_index=True)
    pandas_results.same_frame(rows.sort_values("row", ignore_index=True), want)
    want = pandas_results.group_agg(held, "user", {"v": "median"})
    pandas_results.same_frame(groups.sort_index(), want)
    assert len(found) == processes
    assert all(len(inside) > 2 and all(inside) for inside in found.values())


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("step", ["split_by_key", "build_table"])
def test_groups_are_saved_after_a_worker_was_lost(step, tmp_path):
    frame = log()
    for number in range(6):
        frame.iloc[number * 1000 : (number + 1) * 1000].to_parquet(tmp_path / f"{number}.parquet")
    marker = str(tmp_path / "killed")

    def end_in_step(step, marker):
        """Let one worker end in its second task of a step; all of them write pieces to files."""
        import os
        from itertools import count
        from pathlib import Path

        from hyperplane.collections.frames import finalize, task_graph
        from hyperplane.collections.frames.kernels import table_files

        table_files._MIN_FILE_BYTES = 1
        name = "write_tables" if step == "split_by_key" else "concat_pieces"
        module = task_graph if step == "split_by_key" else finalize
        call, numbers = getattr(module, name), count()

        def call_or_end(*arguments):
            if next(numbers) == 1 and not Path(marker).exists():
                Path(marker).touch()
                os._exit(1)
            return call(*arguments)

        setattr(module, name, call_or_end)

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
        no_memory(),
    ):
        client.run(end_in_step, step, marker)
        rows = read([str(tmp_path / f"{number}.parquet") for number in range(6)])
        groups = group_agg(rows, "user", {"v": ["count", "max"], "row": "sum"}, split_out=8)
        groups.columns = ["count", "max", "sum"]
        save(groups.reset_index(), tmp_path / "out")
    assert Path(marker).exists()
    result = load(tmp_path / "out").compute(scheduler="sync").set_index("user").sort_index()
    want = pandas_results.group_agg(frame, "user", {"v": ["count", "max"], "row": "sum"})
    want.columns = result.columns
    pandas_results.same_frame(result, want)
