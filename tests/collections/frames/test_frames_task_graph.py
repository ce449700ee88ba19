"""Common properties of all helpers: they are lazy, and errors name file or column."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import chain

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from dask._task_spec import DataNode
from dask.delayed import Delayed
from frame_strategies import cut

from hyperplane import dataframe as hp
from hyperplane.collections.frames import task_graph
from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.errors import DataError, ReadError, RequestError
from hyperplane.formats.reader import PartitionReader

LIKE = pd.DataFrame(
    {
        "time": pd.Series(dtype="datetime64[us]"),
        "text": pd.Series(dtype="str"),
        "n": pd.Series(dtype="int64"),
        "x": pd.Series(dtype="float64"),
    }
)
HELPERS = {
    "window_agg": lambda df: hp.window_agg(df, "time", "1h", {"n": ["nunique", "sum"]}, "text"),
    "window_agg of a calendar": lambda df: hp.window_agg(df, "time", "ME", {"x": "median"}),
    "window_counts": lambda df: hp.window_counts(df, "time", "1h", "text"),
    "window_counts of known": lambda df: hp.window_counts(
        df, "time", "1h", "text", categories=["a"]
    ),
    "group_agg": lambda df: hp.group_agg(df, "text", {"x": "median", "n": "first"}, split_out=3),
    "value_counts": lambda df: hp.value_counts(df, ["text", "n"]),
    "top_n_per_group": lambda df: hp.top_n_per_group(df, "text", "x", 2, split_out=2),
    "drop_duplicates": lambda df: hp.drop_duplicates(df, "text"),
    "to_datetime": lambda df: hp.to_datetime(df, "text"),
    "repartition": lambda df: hp.repartition(df, "10kB"),
    "join": lambda df: hp.join(df, df, "text", "left"),
}


@dataclass(frozen=True)
class UnreadablePartition:
    """A partition that fails when it is scanned."""

    number: int
    rows: int = 10
    nbytes: int = 1000
    urls: tuple[str, ...] = ("a/file.parquet",)

    def scan(self, where=None):
        raise AssertionError("it was read")

    def bounds(self, column):
        return None


def make_unreadable(numbers):
    """Return a collection like those of ``read``."""
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(
            PartitionReader(LIKE), [UnreadablePartition(n) for n in numbers], meta=LIKE
        )


def fail(*_, **__):
    raise AssertionError("it was computed")


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", sorted(HELPERS))
def test_calls_read_and_compute_no_rows(name, filtered):
    with dask.config.set(scheduler=fail):
        df = make_unreadable(range(20))
        result = HELPERS[name](df[df.n > 3] if filtered else df)
        again = HELPERS[name](df[df.n > 3] if filtered else df)
    # Equal calls have equal keys, so that persisted results are reused.
    assert sorted(map(str, result.__dask_keys__())) == sorted(map(str, again.__dask_keys__()))
    with pytest.raises(AssertionError, match="it was computed"):
        result.compute(scheduler=fail)
    with pytest.raises(AssertionError, match="it was read"):
        result.compute(scheduler="sync")


@pytest.mark.parametrize("name", sorted(HELPERS))
def test_different_rows_have_different_names(name):
    def keys(numbers):
        result = HELPERS[name](make_unreadable(numbers))
        return {str(key) for key in dask.core.flatten(result.__dask_keys__())}

    assert not keys([1, 2]) & keys([1, 3])


def rows(n=40):
    return pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=n, freq="20min"),
            "text": ["a", "b", None, "c"] * (n // 4),
            "n": range(n),
            "x": 0.5,
        }
    ).astype({"text": "str"})


@pytest.mark.parametrize("name", sorted(set(HELPERS) - {"to_datetime"}))
def test_a_file_damaged_after_the_call_is_named(name, tmp_path):
    for number in range(3):
        rows().to_parquet(tmp_path / f"{number}.parquet", row_group_size=10)
    result = HELPERS[name](hp.read(tmp_path, partition_size=1))
    damaged = tmp_path / "1.parquet"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:4] + b"\xff" * (len(content) - 1000) + content[-996:])
    # A join reads all files of its right side in one scan.
    message = "or one of 2 more files" if name == "join" else r"1\.parquet: "
    with pytest.raises(ReadError, match=message) as caught:
        result.compute(scheduler="sync")
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


MIXED = {
    "window_agg": lambda df: hp.window_agg(df, "time", "1h", {"v": "count"}),
    "window_counts": lambda df: hp.window_counts(df, "time", "1h", "v"),
    "group_agg": lambda df: hp.group_agg(df, "v", {"n": "sum"}),
    "value_counts": lambda df: hp.value_counts(df, "v"),
    "top_n_per_group": lambda df: hp.top_n_per_group(df, "n", "v", 1),
    "drop_duplicates": lambda df: hp.drop_duplicates(df),
}


@pytest.mark.parametrize("name", sorted(MIXED))
def test_a_column_of_values_of_several_kinds_is_named(name):
    frame = rows(4).assign(v=pd.Series([1, "a", b"b", 2.5], dtype=object))
    with pytest.raises(DataError, match="column 'v': holds values of different kinds"):
        MIXED[name](cut(frame, [])).compute(scheduler="sync")


@pytest.mark.parametrize("wrong", [rows(4), [], 3, None])
@pytest.mark.parametrize("name", sorted(set(HELPERS) - {"repartition"}))
def test_other_objects_than_dask_dataframes_are_refused_with_advice(name, wrong):
    with pytest.raises(RequestError, match=r"dask\.dataframe\.from_pandas"):
        HELPERS[name](wrong)


@pytest.mark.parametrize("names", [["time", "text", "n", 0], ["time", "text", "n", "n"]])
@pytest.mark.parametrize("name", ["window_agg", "group_agg", "drop_duplicates", "top_n_per_group"])
def test_column_names_with_equal_text_are_refused(name, names):
    frame = rows(4)
    frame.columns = names
    with pytest.raises(RequestError, match="unique column names that are strings"):
        HELPERS[name](cut(frame, []))


def test_urls_are_read(tmp_path):
    rows().to_parquet(tmp_path / "a.parquet")
    rows().to_parquet(tmp_path / "b.parquet")
    for urls in (
        str(tmp_path),
        tmp_path,
        [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")],
    ):
        result = hp.group_agg(urls, "text", {"n": "sum"}).compute(scheduler="sync")
        assert result.n.sum() == 2 * rows().dropna().n.sum()


def test_helpers_can_be_chained(tmp_path):
    rows().to_parquet(tmp_path / "a.parquet", row_group_size=10)
    df = hp.read(tmp_path, partition_size=1)
    once = hp.drop_duplicates(df[df.n > 3], "n")
    top = hp.top_n_per_group(once, "text", "n", 5)
    result = hp.window_agg(top, "time", "2D", {"n": "sum"}).compute(scheduler="sync")
    assert result.n.sum() == rows().dropna().groupby("text").n.nlargest(5).sum()


def chained(lists):
    return list(chain.from_iterable(lists))


def test_a_tree_combines_in_order():
    tables = task_graph.make_tasks("t", "x", lambda n: [n], [[n] for n in range(100)])
    levels = task_graph.reduce_tree("m", "x", chained, tables)
    assert len(levels) <= task_graph.FAN_IN
    assert chained(dask.compute(*levels, scheduler="sync")) == list(range(100))


@pytest.mark.parametrize("number", [1, 5, 128, 129, 400])
def test_an_exchange_brings_equal_keys_together_in_order(number):
    tables = task_graph.make_tasks("t", "x", lambda n: [n, n + 1], [[n] for n in range(number)])
    cut = [[table] for table in tables]
    cuts = task_graph.make_tasks(
        "c", "x", lambda t: [[n for n in t if n % 3 == k] for k in range(3)], cut
    )
    pieces = task_graph.exchange("e", "x", cuts, 3, chained)
    assert len({len(of_one) for of_one in pieces}) == 1
    assert len(pieces[0]) <= 128
    received = [chained(of_one) for of_one in dask.compute(*pieces, scheduler="sync")]
    both = sorted([*range(number), *range(1, number + 1)])
    assert received == [[n for n in both if n % 3 == k] for k in range(3)]


def add(*numbers):
    return sum(numbers)


def test_inputs_of_one_task_are_computed_in_it():
    def make(name, *argument_lists):
        return task_graph.make_tasks(name, "x", add, argument_lists)

    (shared,) = make("shared", [1])
    first = make("first", [10, shared], [20, shared])
    second = make("second", *([task] for task in first))
    (both,) = make("both", second)
    (end, other_end) = make("end", [both], [shared])
    fused = task_graph.fuse_inputs([end, other_end])
    names = {"shared-x-0", "first-x-0", "first-x-1", "second-x-0", "second-x-1"}
    assert set(fused[0].dask) == {*names, "end-x-0", "end-x-1"}
    assert dask.compute(*fused, scheduler="sync") == (32, 1)
    assert {"both-x-0", *fused[0].dask} == set(end.dask)
    # Tasks of other calls are no uses.
    assert set(task_graph.fuse_inputs(second)[0].dask) == {*names} - {"first-x-0", "first-x-1"}
    assert set(task_graph.fuse_inputs(second[:1])[0].dask) == {"second-x-0"}
    assert task_graph.fuse_inputs([]) == []


def test_barriers_data_and_futures_stay_tasks():
    class Barrier(Task):
        """A task that a scheduler must see, like that of Dask's shuffles."""

        block_fusion = True

    class Future:
        key = "b"

    graph = {
        "a": Barrier("a", add, 1),
        "b": Future(),
        "c": DataNode("c", 3),
        "d": (add, 1, 2),
        "e": Task("e", add, TaskRef("d")),
        **{f"end-{key}": Task(f"end-{key}", add, TaskRef(key)) for key in "abce"},
    }
    ends = [Delayed(f"end-{key}", graph) for key in "abce"]
    assert set(task_graph.fuse_inputs(ends)[0].dask) == set(graph) - {"e"}


def test_a_table_is_split_in_the_task_that_makes_it():
    df = cut(rows(), [10, 20, 30])
    results = [
        hp.group_agg(df, "text", {"n": "sum"}, split_out=3),
        hp.top_n_per_group(df, "text", "n", 2, split_out=3),
        hp.drop_duplicates(df, "text"),
    ]
    for result in results:
        names = {str(key) for key in result.dask}
        assert any("-split-" in name for name in names)
        assert not any("-partial-" in name for name in names)
    # The bins of windows are also taken from the tables.
    windows = hp.window_agg(df, "time", "7h", {"n": "sum"}, by="text", split_out=3)
    assert any("-partial-" in str(key) for key in windows.dask)
    want = rows().dropna().groupby("text").agg({"n": "sum"})
    pd.testing.assert_frame_equal(results[0].compute(scheduler="sync").sort_index(), want)
