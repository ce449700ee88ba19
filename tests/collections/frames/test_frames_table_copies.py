"""Copies of indexed tables, which the workers of a machine map in place of reading the rows."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from distributed import Client, LocalCluster
from polars.testing import assert_frame_equal

from hyperplane.collections.frames import joined_partition
from hyperplane.collections.frames.join_kinds import HOWS
from hyperplane.collections.frames.kernels import key_index, table_copies
from hyperplane.collections.frames.kernels.indexed_table import IndexedTable
from hyperplane.collections.frames.kernels.table_copies import dump_table, load_table
from hyperplane.dataframe import join, read

KEYS: dict[str, Any] = {
    "unique": list(range(0, 3000, 3)),
    "repeated": [None, *(number % 300 for number in range(999))],
    "text": [None, *(f"key {number % 400:>20}" for number in range(999))],
    "without an index": [number * 10**9 for number in range(1000)],
}


def _copy(table: IndexedTable) -> IndexedTable:
    file = io.BytesIO()
    dump_table(table, file)
    found = load_table(memoryview(file.getvalue()))
    assert found is not None
    return found


@pytest.mark.parametrize("name", KEYS)
def test_copies_have_the_same_rows_and_index(name, monkeypatch):
    monkeypatch.setattr(key_index, "_MIN_TEXTS", 2)
    right = pl.DataFrame({"key": KEYS[name]}).with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int16),
        text=pl.concat_str(pl.lit("a text of the row "), pl.col("key").cast(pl.String)),
        flag=pl.int_range(pl.len()) % 2 == 0,
        time=pl.int_range(pl.len()).cast(pl.Datetime("us", "Europe/Oslo")),
        bytes=pl.lit(b"\0"),
        money=pl.lit("1.20").cast(pl.Decimal(10, 2)),
    )
    for table in (right, pl.concat([right.head(7), right.tail(-7)])):
        indexed = IndexedTable.build(table, ["key"])
        copy = _copy(indexed)
        assert_frame_equal(copy.table, indexed.table)
        assert type(copy.index) is type(indexed.index)
        assert (copy.index is None) == (name == "without an index")
        left = pl.DataFrame({"key": [*KEYS[name][::2], None, *KEYS[name][::3]]})
        for how in HOWS if copy.index else ():
            want, found = (each.join(left, how) for each in (indexed, copy))
            assert want is not None
            assert found is not None
            assert_frame_equal(found, want)


def test_empty_tables_are_copied():
    empty = IndexedTable.build(pl.DataFrame({"key": pl.Series(dtype=pl.Int64), "w": []}), ["key"])
    assert_frame_equal(_copy(empty).table, empty.table)


def test_copies_of_other_hashes_are_not_used(monkeypatch):
    file = io.BytesIO()
    dump_table(IndexedTable.build(pl.DataFrame({"key": [1, 2]}), ["key"]), file)
    monkeypatch.setattr(table_copies, "hash_texts", lambda keys: key_index.hash_texts(keys) + 1)
    assert load_table(memoryview(file.getvalue())) is None


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(["a"]), pl.List(pl.String)])
def test_other_types_are_refused(kind):
    values = pl.Series([["a"]] if isinstance(kind, pl.List) else ["a"]).cast(kind)
    table = IndexedTable.build(pl.DataFrame({"key": [1], "other": values}), ["key"])
    with pytest.raises(TypeError, match="may have other types"):
        dump_table(table, io.BytesIO())


@pytest.mark.cluster
@pytest.mark.usefixtures("forked_workers")
def test_workers_of_a_machine_read_a_side_once(tmp_path):
    def record_reads():
        import time

        joined_partition._MIN_SHARED_BYTES = 0
        collect = joined_partition.JoinedPartition._collect_right

        def record(partition):
            joined_partition.reads = 1 + getattr(joined_partition, "reads", 0)
            time.sleep(0.3)  # the other process needs the table meanwhile
            return collect(partition)

        joined_partition.JoinedPartition._collect_right = record

    def count_reads():
        tables = len(joined_partition.SHARED_TABLES)
        return tables, getattr(joined_partition, "reads", 0)

    generator = np.random.default_rng(1)
    left = pd.DataFrame({"k": generator.integers(0, 900, 8000), "v": np.arange(8000)})
    right = pd.DataFrame({"k": np.arange(0, 900, 2), "w": np.arange(450), "t": "text of a row"})
    for name, frame, files in (("left", left, 8), ("right", right, 2)):
        (tmp_path / name).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
            frame.iloc[rows].to_parquet(tmp_path / name / f"{number}.parquet")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(record_reads)
        joined = join(read(tmp_path / "left"), read(tmp_path / "right"), "k")
        found = joined.compute()
        counts = list(client.run(count_reads).values())
    assert [tables for tables, _ in counts] == [1, 1]
    assert sum(reads for _, reads in counts) == 1
    want = left.merge(right, on="k")
    assert found.to_dict("list") == want.to_dict("list")
    assert joined.npartitions == 8
