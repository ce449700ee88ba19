"""Polars tables of helpers are saved as the files that their frames of pandas would be."""

from __future__ import annotations

import gc

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from saving_cases import in_this_thread, parts_of

import hyperplane
from hyperplane.collections.frames import typed_partitions
from hyperplane.collections.frames.typed_partitions import list_typed_partitions
from hyperplane.core.progress import compute_with_progress
from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    read,
    sort_values,
    top_n_per_group,
)
from hyperplane.errors import OutputExists, ReadError
from hyperplane.formats.pandas_frames.typed_table import TypedTable
from hyperplane.formats.parquet import write
from hyperplane.storage import part_saving
from hyperplane.storage.part_schemas import serialize_schema

_here = pytest.fixture(autouse=True)(in_this_thread)

COLUMNS = {
    "int64": (pl.Int64, "int64", [1, -2, 2**62]),
    "uint8": (pl.UInt8, "uint8", [0, 255, 3]),
    "float64": (pl.Float64, "float64", [0.0, -0.0, float("nan"), float("inf")]),
    "float32": (pl.Float32, "float32", [0.5, -0.0, float("-inf")]),
    "bool": (pl.Boolean, "bool", [True, False]),
    "us": (pl.Datetime("us"), "datetime64[us]", [0, 1, -(10**15)]),
    "ns": (pl.Datetime("ns"), "datetime64[ns]", [0, 1, 10**18]),
    "text": (pl.String, "str", ["", "a", "a text of more than twelve bytes", "日本"]),
    "nullable text": (pl.String, "string", ["", "b"]),
    # Types that are converted to pandas.
    "Int64": (pl.Int64, "Int64", [1, 2]),
    "zoned": (pl.Datetime("us", "Europe/Berlin"), "datetime64[us, Europe/Berlin]", [0, 1]),
    "category": (pl.String, pd.CategoricalDtype(["x", "y"]), ["x", "y"]),
    "seconds": (pl.Datetime("ms"), "datetime64[s]", [0, 10**6]),
    "object": (pl.String, object, ["x", "y"]),
    "other": (pl.Int64, "float64", [1, 2]),
    "decimal": (pl.Decimal(10, 2), pd.ArrowDtype(pa.decimal128(10, 2)), [1, 2]),
    "arrow": (pl.String, pd.ArrowDtype(pa.string()), ["x", "y"]),
}
DIRECT = ("int64", "uint8", "float64", "float32", "bool", "us", "ns", "text", "nullable text")


def column(name, rows, rng, missing):
    kind, dtype, values = COLUMNS[name]
    chosen = pl.Series(
        values, dtype=kind if name not in ("us", "ns", "seconds") else pl.Int64, strict=False
    )
    chosen = chosen.gather(rng.integers(0, len(values), rows)).cast(kind)
    if missing and name != "bool":
        chosen = chosen.set(pl.Series(rng.random(rows) < missing), None)
    return chosen, pd.Series(dtype=dtype)


@pytest.mark.parametrize("missing", [0, 0.3, 1])
@pytest.mark.parametrize("rows", [0, 1, 5000])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_the_same_file(name, rows, missing):
    rng = np.random.default_rng(rows)
    values, like = column(name, rows, rng, missing)
    check_file(pl.DataFrame({"a": values}), pd.DataFrame({"a": like}))


def check_file(frame, like):
    typed = TypedTable(frame, like)
    encoded, want = write.encode_typed_table(typed), write.encode_parquet(typed.to_pandas())
    assert bytes(encoded.data) == bytes(want.data)
    assert encoded.rows == want.rows
    assert serialize_schema(encoded.table, encoded.schema) == serialize_schema(want.table)


@pytest.mark.parametrize("rows", [9000, 60_000])
def test_a_table_of_many_columns_is_the_same_file(rows):
    rng = np.random.default_rng(1)
    columns, like = {}, {}
    for name in DIRECT:
        columns[name], like[name] = column(name, rows, rng, 0.1)
    # Some columns have more distinct values than a dictionary holds.
    columns["row"], like["row"] = pl.Series(rng.permutation(rows)), pd.Series(dtype="int64")
    texts = [f"{n:0100}" for n in rng.permutation(rows)]
    columns["long"], like["long"] = pl.Series(texts), pd.Series(dtype="str")
    frame = pl.DataFrame(columns)
    assert TypedTable(frame, pd.DataFrame(like)).to_arrow() is not None
    check_file(frame, pd.DataFrame(like))
    check_file(frame.slice(7, rows // 2), pd.DataFrame(like))


def test_files_are_the_same_without_views_of_text(monkeypatch):
    monkeypatch.setattr(write, "writes_views", lambda: False)
    check_file(pl.DataFrame({"a": ["x", None]}), pd.DataFrame({"a": pd.Series(dtype="str")}))


def test_names_that_are_no_texts_are_those_of_pandas():
    frame, like = pl.DataFrame({"0": [1, 2]}), pd.DataFrame({0: pd.Series(dtype="int64")})
    check_file(frame, like)


@pytest.fixture
def log(tmp_path):
    """Return a folder of files with all kinds of columns."""
    rng = np.random.default_rng(3)
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(4):
        rows = [3000, 0, 1, 5000][number]
        frame = pd.DataFrame(
            {
                "user": pd.Series(rng.integers(0, 40, rows).astype(str), dtype="str"),
                "n": rng.integers(0, 9, rows),
                "x": rng.normal(size=rows),
                "at": pd.Series(rng.integers(0, 10**15, rows)).astype("datetime64[us]"),
                "kind": pd.Series(rng.integers(0, 3, rows).astype(str)).astype("category"),
            }
        )
        frame.loc[rng.random(rows) < 0.1, ["user", "x", "at"]] = None
        frame.to_parquet(folder / f"{number}.parquet")
    return folder


TEXT_AND_NUMBERS = ["user", "n", "x", "at"]


def rename_all(df):
    """Return a collection with columns a, b, ..., named by assignment."""
    df.columns = list("abcdefgh"[: len(df.columns)])
    return df


CALLS = {
    "read": read,
    "columns": lambda url: read(url)[["at", "user"]],
    "filters": lambda url: read(url, TEXT_AND_NUMBERS, [("n", ">", 4)]),
    "filtered": lambda url: read(url, TEXT_AND_NUMBERS).query("n > 4"),
    "sorted": lambda url: sort_values(read(url, TEXT_AND_NUMBERS), ["user", "x"], split_out=3),
    "duplicates": lambda url: drop_duplicates(read(url, TEXT_AND_NUMBERS), ["user", "n"]),
    "top": lambda url: top_n_per_group(
        read(url, TEXT_AND_NUMBERS), ["user", "n"], "x", 2, split_out=None
    ),
    "of pandas": lambda url: sort_values(
        dd.from_pandas(read(url, TEXT_AND_NUMBERS).compute(), npartitions=3), "x"
    ),
    "groups": lambda url: group_agg(
        read(url), ["user", "n"], {"x": "max", "at": "min", "kind": "count"}, split_out=3
    ).reset_index(),
    "groups with other names": lambda url: (
        rename_all(group_agg(read(url), "at", {"x": ["count", "min"], "user": "last"}, split_out=2))
        .reset_index()
        .rename(columns={"at": "^at$"})
    ),
    "groups as index": lambda url: group_agg(read(url), "n", {"x": "count"}, split_out=2),
    "groups without keys": lambda url: group_agg(
        read(url), "n", {"x": "count"}, split_out=2
    ).reset_index(drop=True),
    "groups of one partition": lambda url: group_agg(read(url), "n", {"x": "count"}).reset_index(),
    "groups by categories": lambda url: group_agg(
        dd.from_pandas(read(url).compute().astype({"kind": "category"}), npartitions=3),
        ["kind", "n"],
        {"x": "count"},
        split_out=2,
    ).reset_index(),
    "groups by floats": lambda url: group_agg(
        read(url), "x", {"n": "sum"}, split_out=2
    ).reset_index(),
    "other steps": lambda url: sort_values(read(url), "x", split_out=3).reset_index(),
}
TYPED = (
    *("read", "columns", "filters", "sorted", "duplicates", "top", "of pandas"),
    *("groups", "groups with other names"),
)


@pytest.mark.parametrize("call", CALLS)
def test_saved_files_are_those_of_the_frames_of_pandas(log, tmp_path, call, monkeypatch):
    df = CALLS[call](log)
    assert (list_typed_partitions(df) is not None) == (call in TYPED)
    result = hyperplane.save(df, tmp_path / "out")
    monkeypatch.setattr(typed_partitions, "list_typed_partitions", lambda df: None)
    if call != "duplicates":  # whose rows are in no particular order
        # Equal parts are not written again.
        assert not hyperplane.save(df, tmp_path / "out").changed
    loaded = hyperplane.load(tmp_path / "out").compute()
    want = df.compute()
    assert result.rows == len(want)
    if call == "duplicates":
        loaded, want = (
            each.sort_values(["user", "n"], ignore_index=True)[["user", "n"]]
            for each in (loaded, want)
        )
    pd.testing.assert_frame_equal(
        loaded.reset_index(drop=True), want.reset_index(drop=True), check_categorical=False
    )


def test_tables_are_built_in_the_tasks_that_write_them(log, tmp_path, monkeypatch):
    """Otherwise a worker whose scheduler is slow to answer holds several of them."""
    graphs = []

    def compute(tasks, text):
        graphs.extend(dict(task.dask) for task in tasks[:1])
        return compute_with_progress(tasks, text)

    monkeypatch.setattr(part_saving, "compute_with_progress", compute)
    df = sort_values(read(log, TEXT_AND_NUMBERS), "x", split_out=3)
    groups = group_agg(read(log), "user", {"x": "count"}, split_out=3)
    for result, splits in ((df, "sort-split"), (df, "sort-split"), (groups, "group-agg-split")):
        # The tables of a collection are built anew each time.
        hyperplane.save(result, tmp_path / "out", mode="overwrite")
        keys = {key[0] if isinstance(key, tuple) else key for key in graphs.pop()}
        names = {key.rpartition("-")[0].rpartition("-")[0] for key in keys}
        assert {"save", splits} <= names
        assert not names & {"sort-table", "group-agg", "group-agg-partial", "delayed"}
        loaded = hyperplane.load(tmp_path / "out").compute()
        pd.testing.assert_frame_equal(loaded, result.compute())


def test_rows_without_columns_are_counted(log, tmp_path):
    df = read(log)[[]]
    assert hyperplane.save(df, tmp_path / "out").rows == len(df.compute()) == 8001


SOURCES = {
    "sorted": lambda df: sort_values(df, "n"),
    "duplicates": lambda df: drop_duplicates(df, ["n"]),
    "groups": lambda df: group_agg(df, "n", {"x": "sum"}).reset_index(),
    "other steps": lambda df: sort_values(df.assign(m=df.n + 1)[["m", "n"]], "m"),
    "twice": lambda df: sort_values(drop_duplicates(df, ["n"]), "x").query("n > 1"),
    "renamed": lambda df: sort_values(df.rename(columns={"n": "^n$"}), "^n$"),
}


@pytest.mark.parametrize("call", SOURCES.values(), ids=SOURCES)
def test_rows_computed_from_files_do_not_overwrite_them(log, tmp_path, call):
    out = tmp_path / "out"
    hyperplane.save(read(log, ["n", "x"]), out)
    before = parts_of(str(out))
    with pytest.raises(OutputExists, match="read from"):
        hyperplane.save(call(read(out)), out, mode="overwrite")
    assert parts_of(str(out)) == before
    hyperplane.save(call(read(out)), tmp_path / "out2", mode="overwrite")
    assert hyperplane.save(call(read(log)), out, mode="overwrite").changed


def test_modes_see_the_rows(log, tmp_path):
    out = tmp_path / "out"
    hyperplane.save(read(log), out)
    before = parts_of(str(out))
    with pytest.raises(OutputExists, match=r"part \d differs"):
        hyperplane.save(read(log, filters=[("n", ">", 4)]), out)
    assert hyperplane.save(read(log), out, mode="overwrite").written == 0
    assert parts_of(str(out)) == before
    hyperplane.save(read(log), out, mode="append", run="b")
    assert not hyperplane.save(read(log), out, mode="append", run="b").changed
    assert len(hyperplane.load(out)) == 2 * len(read(log))
    assert hyperplane.save(sort_values(read(log, ["n"]), "n"), out, mode="skip").written == 0
    with pytest.raises(OutputExists, match="read from"):
        hyperplane.save(read(out), out, mode="overwrite")
    hyperplane.save(sort_values(read(log, ["n"]), "n"), out, mode="overwrite")
    assert hyperplane.load(out).compute().n.is_monotonic_increasing


def test_a_damaged_file_is_named(log, tmp_path):
    df = read(log)
    (log / "3.parquet").write_bytes(b"no Parquet" * 1000)
    with pytest.raises(ReadError, match=r"3\.parquet"):
        hyperplane.save(df, tmp_path / "out")


def test_tables_are_forgotten_with_their_collection(log):
    gc.collect()
    before = len(typed_partitions._TABLES)
    df = sort_values(read(log), "x")
    assert len(typed_partitions._TABLES) == before + 1
    del df
    gc.collect()
    assert len(typed_partitions._TABLES) == before


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_other_formats_are_written_from_pandas(log, tmp_path, scheduler):
    with dask.config.set(scheduler=scheduler):
        hyperplane.save(read(log, TEXT_AND_NUMBERS), tmp_path / "out", format="csv")
    assert len(hyperplane.load(tmp_path / "out")) == 8001
