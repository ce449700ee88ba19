"""Keys of operations: which they are, how frequent and how many different ones there are."""

from __future__ import annotations

import re
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane import dataframe
from hyperplane.forecasts import key_statistics, reasons
from hyperplane.forecasts.key_columns import find_key_columns
from hyperplane.forecasts.key_statistics import measure_keys
from hyperplane.forecasts.model import GraphInfo
from hyperplane.forecasts.records import KeyColumns, KeyStatistics, SampleResult
from hyperplane.forecasts.sample_process import count_groups
from hyperplane.forecasts.task_units import TablePiece

FILES, ROWS = 8, 5_000
GROUPS = 3_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("log")
    random = np.random.default_rng(0)
    for part in range(FILES):
        frame = pd.DataFrame(
            {
                "user": np.where(
                    random.random(ROWS) < 0.4, "root", random.integers(0, GROUPS, ROWS).astype(str)
                ),
                "flag": random.integers(0, 3, ROWS),
                "number": np.arange(ROWS) + part * ROWS,
                "value": random.random(ROWS),
            }
        )
        frame.to_parquet(path / f"{part}.parquet")
    return path


@pytest.fixture(scope="module")
def log(folder):
    return dd.read_parquet(folder)


def summarize(collection):
    return [
        (key.operation, key.names, key.columns, key.complete)
        for key in find_key_columns(collection)
    ]


def test_keys_are_traced_to_the_columns_of_files(log):
    renamed = log[log.value > 0.5].rename(columns={"user": "who"}).assign(twice=log.value * 2)
    assert summarize(renamed.groupby("who").twice.sum()) == [
        ("group-by", ("who",), ("user",), False)
    ]
    assert summarize(log.groupby(["user", log.flag]).value.mean()) == [
        ("group-by", ("user", "flag"), ("user", "flag"), True)
    ]
    assert summarize(log[["user", "flag"]].drop_duplicates()) == [
        ("distinct rows", ("user", "flag"), ("user", "flag"), True)
    ]
    assert summarize(log.user.nunique()) == [("distinct rows", ("user",), ("user",), True)]
    assert summarize(log.sort_values(["value", "user"])) == [("sort", ("value",), ("value",), True)]
    assert summarize(log.set_index("number")) == [("sort", ("number",), ("number",), True)]
    applied = log.groupby("user")[["value"]].apply(len, meta=pd.Series(dtype=int))
    assert summarize(applied) == [("shuffle", ("user",), ("user",), True)]


def test_keys_of_joins_are_those_of_both_tables(log):
    other = log[["user", "flag"]].rename(columns={"user": "who"})
    joined = log[["user", "value"]].merge(other, left_on="user", right_on="who")
    assert sorted(summarize(joined)) == [
        ("join", ("user",), ("user",), True),
        ("join", ("who",), ("user",), True),
    ]
    # After a join, a key is that of the table that has it.
    assert summarize(joined.groupby("flag").value.sum())[0] == (
        "group-by", ("flag",), ("flag",), False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda log: log.assign(user=log.user + "x").groupby("user").value.sum(),
        lambda log: log.groupby(log.value > 0.5).value.sum(),
        lambda log: log.merge(log, on="user", how="outer").groupby("user").flag_x.sum(),
        lambda log: log.map_partitions(lambda part: part).groupby("user").value.sum(),
        lambda log: dd.from_pandas(pd.DataFrame({"k": [1]})).groupby("k").size(),
        lambda log: log.value.sum(),
        lambda log: da.ones(4, chunks=2).sum(),
    ],
    ids=["changed", "computed", "outer", "function", "memory", "no key", "array"],
)
def test_keys_that_no_file_has_are_left_out(log, make):
    assert [key for key in find_key_columns(make(log)) if key.operation == "group-by"] == []


def test_frequent_and_distinct_keys(log, folder):
    keys = find_key_columns(log.groupby("user").value.sum())
    keys += find_key_columns(log.groupby(["user", "flag"]).value.sum())
    keys += find_key_columns(log.set_index("user"))
    keys += find_key_columns(hyperplane.dataframe.read(str(folder)).groupby("user").value.sum())
    one, two, index, ours = measure_keys(keys, lambda files: 60.0)
    exact = log.compute()
    assert one.distinct == pytest.approx(exact.user.nunique(), rel=0.1)
    assert two.distinct == pytest.approx(len(exact[["user", "flag"]].drop_duplicates()), rel=0.1)
    assert ours.distinct == one.distinct
    assert index.distinct is None  # of a sort it changes nothing
    assert one.frequent == index.frequent == "root"
    assert index.share == pytest.approx(0.4, abs=0.02)


def test_counting_distinct_keys_has_a_limit_of_time(log, monkeypatch):
    monkeypatch.setattr("hyperplane.forecasts.key_statistics._LEAST_SECONDS", 0.0)
    keys = find_key_columns(log.groupby("user").value.sum())
    asked = []
    (found,) = measure_keys(keys, lambda files: asked.append(files) or -1.0)
    assert asked == [FILES]
    assert found.distinct is None
    assert found.frequent == "root"


@pytest.mark.parametrize("read", [dd.read_parquet, dataframe.read], ids=["dask", "read"])
def test_the_keys_of_one_large_file_among_many_are_counted(tmp_path, read):
    for part in range(64):
        count = 20_000 if part == 33 else 50
        pd.DataFrame({"k": np.arange(count)}).to_parquet(tmp_path / f"{part}.parquet")
    keys = find_key_columns(dataframe.drop_duplicates(read(f"{tmp_path}/*.parquet"), "k"))
    (found,) = measure_keys(keys, lambda files: 60.0)
    assert found.distinct == pytest.approx(20_000, rel=0.2)


@pytest.mark.parametrize(
    ("find", "exact", "counted"),
    [
        (lambda part: np.arange(50), 50, [3, 4, 8, 16]),
        (lambda part: np.arange(50) + 50 * part, 12_800, [3, 4, 8, 16, 256]),
        # Files that are copies of others, and keys of one distribution.
        (lambda part: np.arange(50) + 50 * (part % 4), 200, None),
        (lambda part: np.random.default_rng(part).integers(0, 300, 50), 300, None),
        # Keys that all files have, and few that only one has: many together.
        (lambda part: np.append(np.arange(1000), 1000 + 5 * part + np.arange(5)), 2280, None),
    ],
)
def test_keys_of_a_part_of_the_files_show_how_many_all_have(
    tmp_path, monkeypatch, find, exact, counted
):
    monkeypatch.setattr(key_statistics, "_LEAST_SECONDS", 0.0)
    paths = [str(tmp_path / f"{part}.parquet") for part in range(256)]
    for part, path in enumerate(paths):
        pd.DataFrame({"k": find(part)}).to_parquet(path)
    files = []
    count = key_statistics._count_distinct
    monkeypatch.setattr(
        key_statistics,
        "_count_distinct",
        lambda parts, columns: files.append(len(parts)) or count(parts, columns),
    )
    key = KeyColumns("group-by", ("k",), ("k",), "read", tuple(paths), True)
    (found,) = measure_keys([key], lambda files: 60.0)
    assert found.distinct == pytest.approx(exact, rel=0.15)
    assert counted is None or files == counted


def test_all_files_are_counted_if_that_takes_little_time(tmp_path, monkeypatch):
    path = tmp_path / "part.parquet"
    pd.DataFrame({"k": np.arange(50)}).to_parquet(path)
    key = KeyColumns("group-by", ("k",), ("k",), "read", (str(path),) * 192, True)
    monkeypatch.setattr(key_statistics, "_LEAST_SECONDS", 100.0)
    monkeypatch.setattr(key_statistics, "estimate_more", lambda counts, files: 10**6)
    (found,) = measure_keys([key], lambda files: 100.0)
    assert found.distinct == pytest.approx(50, rel=0.05)


def test_files_that_cannot_be_read_and_null_keys(tmp_path):
    pd.DataFrame({"k": pd.array([None] * 5, dtype="Int64")}).to_parquet(tmp_path / "null.parquet")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing else")
    parts = [str(tmp_path / name) for name in ("null.parquet", "damaged.parquet", "missing")]
    keys = [KeyColumns("group-by", ("k",), ("k",), part, (part,), True) for part in parts]
    (found,) = measure_keys(keys, lambda files: 60.0)
    assert (found.frequent, found.share) == ("", 0.0)


def test_names_of_files_and_columns_have_no_special_meaning(tmp_path):
    path = tmp_path / "part[0]*.parquet"
    pd.DataFrame({"len": [1, 1, 2], "v": 1.0}).to_parquet(path)
    keys = [KeyColumns("group-by", ("len",), ("len",), "read", (str(path),), True)]
    (found,) = measure_keys(keys, lambda files: 60.0)
    assert (found.distinct, found.frequent) == (2, "1")


def test_rows_are_counted_only_if_each_has_another_key():
    keys = {("k",), ("a", "b")}
    grouped = pd.DataFrame({"k": [1, 2, 2], "v": 1.0}).groupby("k").v.sum()
    assert count_groups(grouped, keys) == 2
    assert count_groups(grouped.rename_axis("other"), keys) == 0
    assert count_groups(pd.concat([grouped, grouped]), keys) == 0
    pairs = pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 1]})
    assert count_groups(pairs, keys) == 3
    assert count_groups(pd.concat([pairs, pairs]), keys) == 0
    assert count_groups(pairs.a.drop_duplicates().rename("k"), keys) == 2
    assert count_groups([1, 2], keys) == 0
    assert count_groups(3, keys) == 0


def test_a_frequent_key_is_a_note_if_its_partition_is_large():
    def find(share, partitions, operation="sort"):
        key = KeyStatistics(operation, ("user",), None, "root", share)
        graph = SimpleNamespace(
            info=GraphInfo((), (), takes={0: (("s", 0, partitions),)}), shuffles={"s": None}
        )
        result = SampleResult((), 0, True, keys=(key,))
        return reasons.find_frequent_keys(graph, result, SimpleNamespace(shuffled=10**9))

    (note,) = find(0.4, 8)
    assert note.startswith(
        "40 % of the rows of the sort have the key user = root: one of 8 partitions gets all of "
        "them, 400 MB; "
    )
    assert "hyperplane.dataframe.sort_values" in note
    assert "hyperplane.dataframe.join" in find(0.4, 8, "join")[0]
    assert find(0.4, 4) == []  # an even share is a quarter
    assert find(0.04, 100) == []
    # In a shuffle with tasks the pieces of tables are known instead.
    key = KeyStatistics("sort", ("user",), None, "root", 0.4)
    splits = {0: TablePiece(0, 8)}
    graph = SimpleNamespace(info=GraphInfo((), (), splits=splits), shuffles={})
    result = SampleResult((), 0, True, keys=(key,))
    (note,) = reasons.find_frequent_keys(graph, result, SimpleNamespace(shuffled=0))
    assert "one of 8 partitions gets all of them; " in note
    assert find(0.4, 8, "group-by") == []  # its chunks have one row for each key


@pytest.mark.slow
@pytest.mark.process
def test_a_forecast_names_frequent_keys_and_counts_groups(log):
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )
    job = log.set_index("user").groupby("flag").value.sum()
    found = hyperplane.forecast(job.repartition(npartitions=1), plan)
    assert not found.refused, found.reasons
    text = str(found)
    assert re.search(r"user of the sort: (39|40|41) % of the rows have root", text)
    groups = next(key for key in found.keys if key.operation == "group-by")
    assert groups.distinct == 3
    assert "about 3 different keys" in text
    assert {key["operation"] for key in found.to_dict()["keys"]} == {"sort", "group-by"}
