"""Dask dataframes of Parquet files with a named RangeIndex."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
import hyperplane.dataframe as helpers
from hyperplane.errors import RequestError

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask's reader


def _file(folder, index, name="t.parquet"):
    frame = pd.DataFrame({"a": [1, 2, 3, 4, 5], "b": list("xyxyx")}, index=index)
    frame.to_parquet(folder / name)
    return str(folder / name)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return _file(tmp_path_factory.mktemp("range"), pd.RangeIndex(3, 13, 2, name="id"))


@pytest.fixture
def unreadable(file):
    return dd.read_parquet(file)


def test_dask_cannot_compute_files_with_a_named_range(unreadable):
    # When this passes with a release of Dask, formats/parquet/pandas_index.py can be removed.
    with pytest.raises(KeyError, match="not in index"):
        unreadable.compute()


CALLS = {
    "size_cluster": lambda df: hyperplane.size_cluster(df, "medium"),
    "size_cluster, series": lambda df: hyperplane.size_cluster(df.a, "medium"),
    "size_cluster, filtered": lambda df: hyperplane.size_cluster(df[df.a > 1][["b"]], "medium"),
    "size_cluster, optimized": lambda df: hyperplane.size_cluster(
        df.optimize(fuse=False), "medium"
    ),
    "explain": lambda df: helpers.explain(df.a.sum(), df),
    "repartition": lambda df: helpers.repartition(df, "1MB"),
    "save": lambda df: hyperplane.save(df, "x.parquet"),
    "save as CSV": lambda df: hyperplane.save(df, "x.csv", mode="overwrite"),
    "group_agg": lambda df: helpers.group_agg(df, "b", {"a": "sum"}),
    "value_counts": lambda df: helpers.value_counts(df, "b"),
    "sort_values": lambda df: helpers.sort_values(df, "a"),
    "drop_duplicates": lambda df: helpers.drop_duplicates(df, "b"),
    "top_n_per_group": lambda df: helpers.top_n_per_group(df, "b", "a", 1),
    "to_datetime": lambda df: helpers.to_datetime(df, "a", unit="s"),
    "join": lambda df: helpers.join(df, df, "a"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_of_a_call_names_a_way_to_read_the_file(name, unreadable, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        CALLS[name](unreadable)
    message = str(caught.value)
    assert "'id' is a range" in message
    assert "t.parquet" in message
    assert "hyperplane.dataframe.read" in message
    assert list(tmp_path.iterdir()) == []


def test_the_advised_calls_read_the_file(file):
    own = helpers.read(file)
    assert own.compute().id.to_list() == [3, 5, 7, 9, 11]
    assert hyperplane.size_cluster(own, "medium").nodes == 1
    without = dd.read_parquet(file, index=False)
    assert hyperplane.size_cluster(without, "medium").nodes == 1
    assert helpers.repartition(without, "1MB").compute().a.to_list() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(5),
        pd.RangeIndex(2, 12, 2),
        pd.Index([5, 1, 2, 7, 9], name="id"),
        pd.Index(list("abcde"), name="id"),
        pd.date_range("2025", periods=5, name="at"),
        pd.MultiIndex.from_tuples([(n, n) for n in range(5)], names=["p", "q"]),
    ],
    ids=["unnamed", "steps", "numbers", "text", "times", "levels"],
)
def test_other_indexes_are_accepted(index, tmp_path):
    df = dd.read_parquet(_file(tmp_path, index))
    assert hyperplane.size_cluster(df, "medium").nodes == 1
    assert helpers.explain(df).kinds == ()
    assert hyperplane.save(df, tmp_path / "out.parquet").rows == 5
    assert helpers.value_counts(df, "b").compute().to_dict() == {"x": 3, "y": 2}


def test_the_arrow_reader_of_dask_is_accepted(file):
    df = dd.read_parquet(f"file://{file}", filesystem="arrow")
    assert hyperplane.size_cluster(df, "medium").nodes == 1
    assert helpers.sort_values(df, "a").compute().a.to_list() == [1, 2, 3, 4, 5]


def test_frames_of_other_sources_are_accepted():
    df = dd.from_pandas(pd.DataFrame({"a": np.arange(4)}, index=pd.RangeIndex(4, name="id")))
    assert hyperplane.size_cluster(df, "medium").nodes == 1
    assert helpers.repartition(df, "1MB").compute().index.name == "id"


def test_filters_on_columns_of_the_files_are_accepted(file):
    for filters in ([("a", ">", 2)], [[("a", ">", 2), ("b", "!=", "z")]]):
        df = dd.read_parquet(file, filters=filters)
        assert df.compute().a.to_list() == [3, 4, 5]
        assert hyperplane.size_cluster(df, "medium").nodes == 1
        assert helpers.sort_values(df, "a").compute().a.to_list() == [3, 4, 5]


def test_filters_on_folders_only_are_refused(tmp_path):
    for value in ("u", "v"):
        (tmp_path / f"k={value}").mkdir()
        _file(tmp_path / f"k={value}", pd.RangeIndex(5, name="id"))
    folders = dd.read_parquet(tmp_path, filters=[("k", "==", "u")])
    with pytest.raises(KeyError, match="not in index"):
        folders.compute()
    with pytest.raises(RequestError, match="'id' is a range"):
        hyperplane.size_cluster(folders, "medium")
    both = dd.read_parquet(tmp_path, filters=[("k", "==", "u"), ("a", ">", 2)])
    assert helpers.sort_values(both, "a").compute().a.to_list() == [3, 4, 5]
