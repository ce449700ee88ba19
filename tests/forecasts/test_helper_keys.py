"""Keys of the helpers of this package: which they are, and how many rows their tasks return."""

from __future__ import annotations

from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from dask.local import get_sync

import hyperplane
from hyperplane import dataframe
from hyperplane.collections.frames.helper_steps import GroupTasks
from hyperplane.forecasts import reasons
from hyperplane.forecasts.collection_graph import has_exchanges, materialize
from hyperplane.forecasts.group_counter import GroupCounter, count_rows
from hyperplane.forecasts.key_columns import find_key_columns
from hyperplane.forecasts.key_statistics import measure_keys
from hyperplane.forecasts.model import GraphInfo
from hyperplane.forecasts.records import KeyStatistics, SampleResult
from hyperplane.formats.pandas_frames.typed_table import TypedTable

FILES, ROWS, USERS = 8, 3_000, 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("visits")
    random = np.random.default_rng(0)
    for part in range(FILES):
        frame = pd.DataFrame(
            {
                "user": np.where(random.random(ROWS) < 0.4, 0, random.integers(0, USERS, ROWS)),
                "flag": random.choice(["a", "b", "c"], ROWS),
                "at": pd.Timestamp("2026-01-01")
                + pd.to_timedelta(random.integers(0, 10**6, ROWS), unit="s"),
                "value": random.random(ROWS),
            }
        )
        frame.to_parquet(path / f"{part}.parquet")
    return path


@pytest.fixture(scope="module", params=["dask", "read"])
def visits(request, folder):
    return dd.read_parquet(folder) if request.param == "dask" else dataframe.read(str(folder))


@pytest.fixture(scope="module")
def log(folder):
    return dd.read_parquet(folder)


def users(log):
    """A table of another name for the key, in several partitions."""
    return log[["user", "flag"]].rename(columns={"flag": "group"})


def summarize(collection):
    return [
        (key.operation, key.names, key.columns, key.complete, key.groups is not None)
        for key in find_key_columns(collection)
    ]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda df: dataframe.group_agg(df, ["user", "flag"], {"value": "sum"}, split_out=3),
            ("group-by", ("user", "flag"), ("user", "flag"), True, True),
        ),
        (
            lambda df: dataframe.value_counts(df, "flag"),
            ("group-by", ("flag",), ("flag",), True, True),
        ),
        (
            lambda df: dataframe.drop_duplicates(df, "user"),
            ("distinct rows", ("user",), ("user",), True, True),
        ),
        (
            lambda df: dataframe.drop_duplicates(df[["flag", "user"]]),
            ("distinct rows", ("flag", "user"), ("flag", "user"), True, True),
        ),
        (
            lambda df: dataframe.top_n_per_group(df, "user", "value", 2),
            ("top rows", ("user",), ("user",), True, True),
        ),
        (
            lambda df: dataframe.sort_values(df, ["user", "value"]),
            ("sort", ("user",), ("user",), True, False),
        ),
        (
            lambda df: dataframe.window_agg(df, "at", "1h", {"value": "sum"}, "flag"),
            ("windows", ("flag",), ("flag",), True, False),
        ),
        (
            lambda df: dataframe.window_counts(df, "at", "1h", "flag", "user", categories=["a"]),
            ("windows", ("user",), ("user",), True, False),
        ),
    ],
    ids=["groups", "counts", "subset", "rows", "top", "sort", "windows", "window counts"],
)
def test_keys_of_helpers_are_traced_to_files(visits, make, expected):
    assert summarize(make(visits)) == [expected]
    assert all(len(key.parts) == FILES for key in find_key_columns(make(visits)))


@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_keys_of_a_join_are_those_of_both_tables(visits, how):
    other = users(visits)
    joined = dataframe.join(visits, other, "user", how=how)
    # The right one is another step, or the same one with fewer columns.
    assert set(summarize(joined)) == {("join", ("user",), ("user",), True, False)}


def test_a_join_in_pandas_divides_the_keys_of_one_side(log):
    left = log.assign(kind=log.flag.astype("category"))
    found = find_key_columns(dataframe.join(left, users(log), "user"))
    assert {(key.names, key.receivers, key.is_divided) for key in found} == {
        (("user",), 0, True),
        (("user",), FILES, False),
    }


def test_keys_of_join_asof(log):
    keys = find_key_columns(
        dataframe.join_asof(log, users(log).assign(at=log["at"]), "at", by="user")
    )
    assert {(key.operation, key.names, key.complete) for key in keys} == {("join", ("user",), True)}
    assert find_key_columns(dataframe.join_asof(log, users(log).assign(at=log["at"]), "at")) == []


def test_results_of_helpers_are_followed(visits):
    filtered = visits[visits.value > 0.5]
    ordered = dataframe.sort_values(filtered, "at")
    pairs = dataframe.drop_duplicates(ordered, ["user", "flag"])
    groups = dataframe.group_agg(pairs, "user", {"value": "sum"}).reset_index()
    renamed = groups.rename(columns={"value": "total"})
    joined = dataframe.join(renamed, users(visits), "user")
    found = joined[joined.total > 1].groupby("group").total.sum()
    assert set(summarize(found)) == {
        ("group-by", ("group",), ("flag",), False, False),
        ("join", ("user",), ("user",), False, False),  # of both tables, which have one source
        ("group-by", ("user",), ("user",), False, True),
        ("distinct rows", ("user", "flag"), ("user", "flag"), False, True),
        ("sort", ("at",), ("at",), False, False),
    }


def test_a_sort_has_all_rows_and_functions_keep_the_keys_below_them(log):
    ordered = dataframe.sort_values(log, "at")
    grouped = dataframe.group_agg(ordered, "user", {"value": "sum"})
    mapped = grouped.map_partitions(lambda part: part + 1, meta=grouped._meta)
    assert ("group-by", ("user",), ("user",), True, True) in summarize(mapped)
    assert ("sort", ("at",), ("at",), True, False) in summarize(mapped)
    # The values of the function are computed.
    assert summarize(mapped.reset_index().groupby("user").value.sum()) == summarize(mapped)


@pytest.mark.parametrize(
    "make",
    [
        lambda log: dataframe.group_agg(log.assign(user=log.user % 7), "user", {"value": "sum"}),
        lambda log: dataframe.drop_duplicates(log.assign(day=log["at"].dt.day), ["user", "day"]),
        lambda log: dataframe.drop_duplicates(dd.from_pandas(pd.DataFrame({"k": [1, 2]}))),
        lambda log: dataframe.window_agg(log, "at", "1h", {"value": "sum"}),
        lambda log: dataframe.top_n_per_group(
            log.map_partitions(lambda part: part, meta=log._meta), "user", "value", 1
        ),
        lambda log: dataframe.sort_values(
            dataframe.to_datetime(log.assign(at=log["at"].astype(str)), "at"), "at"
        ),
    ],
    ids=["changed", "one computed", "memory", "no key", "function", "times"],
)
def test_computed_keys_of_helpers_have_no_files(log, make):
    assert find_key_columns(make(log)) == []


def test_keys_in_object_stores(log):
    frame = log.partitions[0].compute()
    frame.to_parquet("memory://helper-keys/0.parquet")
    frame.to_parquet("memory://helper-keys/1.parquet")
    for table in (
        dd.read_parquet("memory://helper-keys/"),
        dataframe.read("memory://helper-keys/*.parquet"),
    ):
        keys = find_key_columns(dataframe.drop_duplicates(table, "user"))
        (found,) = measure_keys(keys, lambda files: 60.0)
        assert found.distinct == pytest.approx(frame.user.nunique(), rel=0.1)
        assert (found.frequent, round(found.share, 1)) == ("0", 0.4)


def test_steps_are_forgotten_with_their_collections(log):
    from hyperplane.collections.frames.helper_steps import _STEPS

    found = dataframe.drop_duplicates(log, ["user", "flag", "value"])
    name = found.expr._name
    again = dataframe.drop_duplicates(log, ["user", "flag", "value"])
    del again
    assert name in _STEPS
    del found
    assert name not in _STEPS


@pytest.mark.parametrize("max_bytes", [None, 0], ids=["memory", "files"])
@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda df: dataframe.group_agg(df, "user", {"value": "sum"}), 1),
        (lambda df: dataframe.group_agg(df, "user", {"value": "median"}), 1),
        (lambda df: dataframe.group_agg(df, "user", {"value": "sum"}, split_out=4), 1),
        (lambda df: dataframe.drop_duplicates(df, "user", split_out=4), 1),
        (lambda df: dataframe.top_n_per_group(df, "user", "value", 2, split_out=4), 2),
    ],
    ids=["groups", "median", "divided groups", "distinct", "top"],
)
def test_tasks_of_helpers_have_at_most_some_rows_for_each_key(
    log, monkeypatch, make, most, max_bytes
):
    from hyperplane.collections.frames import exchange_memory, task_graph

    monkeypatch.setattr(exchange_memory, "choose_max_bytes", lambda *arguments: max_bytes)
    monkeypatch.setattr(task_graph, "count_processes", lambda: 3)
    monkeypatch.setattr(task_graph, "has_one_process", lambda: False)
    monkeypatch.setattr(task_graph, "FAN_IN", 3)
    job = make(log)
    (key,) = find_key_columns(job)
    distinct = log.user.nunique().compute()
    graph = dict(job.optimize().__dask_graph__())
    named = [name for name in graph if key.groups.find_rows_per_key(name) is not None]
    values = dict(zip(named, get_sync(graph, named), strict=True))
    shares = set()
    for name, value in values.items():
        share = key.groups.find_rows_per_key(name)
        shares.add(share)
        rows = count_rows(value)
        # A hash divides keys almost evenly.
        assert rows is None or rows <= distinct * share * (1 if share >= most else 1.2), name
    results = [
        count_rows(values[name])
        for name in named
        if f"{key.groups.name}-{key.groups.token}" in name
    ]
    assert sum(results) == len(job.compute())
    assert len(results) == key.groups.results
    assert min(shares) < max(shares) or key.groups.received == 1


def test_rows_of_the_first_table_of_a_step_are_counted(log):
    grouped = dataframe.group_agg(log, "user", {"value": "sum"})
    (key,) = find_key_columns(grouped)
    name = f"group-agg-{key.groups.token}-0"

    class Node:
        dependencies = ("x",)

        def __init__(self, result):
            self.result = result

        def __call__(self, values):
            return self.result

    frame = pd.DataFrame({"a": range(5)})
    counter = GroupCounter([key])
    members = counter.count_members(
        [("read", Node(1)), (name, Node(frame)), (name, Node(frame[:2]))]
    )
    assert [node({}) is not None for _, node in members] == [True] * 3
    assert [node.dependencies for _, node in members] == [("x",)] * 3
    assert (counter.rows, counter.names, counter.rows_per_key) == (5, ("user",), 1.0)
    assert count_rows([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [1, 2]})]) == 3
    assert count_rows([pl.DataFrame({"a": [1]}), object()]) is None
    assert count_rows(pd.DataFrame({"frame": [1, 2]})) == 2
    assert count_rows(TypedTable(pl.DataFrame({"a": [1]}), frame)) == 1
    assert count_rows(3) is None


def test_tasks_of_other_helpers_are_no_groups():
    tasks = GroupTasks("top-n", "0a1b", received=4, results=2, most_rows=3)
    assert tasks.find_rows_per_key("top-n-partial-0a1b-7") == 3
    assert tasks.find_rows_per_key("top-n-0a1b-1") == 1.5
    assert tasks.find_rows_per_key("top-n-table-0a1b-1") == 1.5
    assert tasks.find_rows_per_key("top-n-merge-received-0a1b-1") == 0.75
    assert tasks.find_rows_per_key("top-n-piece-3-0a1b-1") is None
    assert tasks.find_rows_per_key("top-n-0a1c-1") is None
    assert tasks.find_rows_per_key("sort-0a1b-1") is None
    assert tasks.find_rows_per_key(("top-n", 0)) is None


def test_what_helpers_do_with_a_frequent_key_is_reported(log):
    def describe(job):
        (found,) = measure_keys(find_key_columns(job)[:1], lambda files: 60.0)
        graph = SimpleNamespace(info=GraphInfo((), ()), shuffles={})
        result = SampleResult((), 0, True, keys=(found,))
        return str(found), reasons.find_frequent_keys(graph, result, SimpleNamespace(shuffled=0))

    text, notes = describe(dataframe.sort_values(log, "user", split_out=8))
    assert text == "user of the sort: 40 % of the rows have 0"
    (note,) = notes
    assert note.startswith(
        "40 % of the rows of the sort have the key user = 0: one of 8 partitions gets all of them; "
    )
    assert "hyperplane.dataframe.sort_values divides" not in note  # it is this helper
    assert describe(dataframe.sort_values(log, "user", split_out=2))[1] == []
    (note,) = describe(dataframe.group_agg(log, "user", {"value": "median"}, split_out=8))[1]
    assert "one of 8 partitions gets all of them; use aggregations that are combined" in note
    for job in (
        dataframe.group_agg(log, "user", {"value": "sum"}, split_out=8),
        dataframe.drop_duplicates(log, "user"),
        dataframe.top_n_per_group(log, "user", "value", 2, split_out=8),
    ):
        text, notes = describe(job)
        assert "40 % of the rows have 0" in text
        assert notes == []


def test_a_divided_key_needs_no_advice():
    key = KeyStatistics("join", ("user",), None, "root", 0.4, True, receivers=0, is_divided=True)
    assert str(key) == ("user of the join: 40 % of the rows have root, and are divided among tasks")
    graph = SimpleNamespace(info=GraphInfo((), (), takes={0: (("s", 0, 50),)}), shuffles={"s": 0})
    result = SampleResult((), 0, True, keys=(key,))
    assert reasons.find_frequent_keys(graph, result, SimpleNamespace(shuffled=10**9)) == []


def make_plan():
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )


def test_exchanges_between_processes_are_found(log, monkeypatch):
    from hyperplane.collections.frames import exchange_memory

    grouped = dataframe.group_agg(log, "user", {"value": "sum"})
    assert not has_exchanges(materialize(grouped, {}))
    for in_files in (False, True):
        if in_files:
            monkeypatch.setattr(exchange_memory, "_SHARE_IN_MEMORY", 0)
        assert has_exchanges(materialize(dataframe.sort_values(log, "user", split_out=3), {}))


@pytest.mark.slow
@pytest.mark.process
def test_a_forecast_names_the_frequent_key_of_a_join(log, monkeypatch):
    monkeypatch.setattr(
        "hyperplane.collections.frames.table_join._choose_small_side", lambda *a: None
    )
    right = log[["user", "flag"]].map_partitions(
        lambda part: part.drop_duplicates("user"), meta=log._meta[["user", "flag"]]
    )
    found = hyperplane.forecast(dataframe.join(log, right, "user").value.sum(), make_plan())
    assert not found.refused, found.reasons
    assert "user of the join: 40 % of the rows have 0, and are divided among tasks" in str(found)
    assert not [reason for reason in found.reasons if "have the key" in reason]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "make",
    [
        lambda log: dataframe.group_agg(log, "flag", {"value": "sum"}),
        lambda log: dataframe.group_agg(log, "user", {"value": "sum"}),
        lambda log: dataframe.drop_duplicates(log[["user", "flag"]], split_out=4),
    ],
    ids=["few", "many", "distinct"],
)
def test_a_forecast_has_no_more_groups_than_keys(log, make):
    job = make(log)
    found = hyperplane.forecast(job, make_plan(), history=False)
    assert not found.refused, found.reasons
    rows = job.compute()
    (key,) = found.keys
    assert key.distinct == pytest.approx(len(rows), rel=0.1)
    # The sample of three of eight files leads to as many keys as all files have.
    model = found.job.model
    assert not model.extrapolated
    size = int(rows.memory_usage(deep=True).sum())
    assert model.units[model.targets[0]].output == pytest.approx(size, rel=0.3, abs=5000)
