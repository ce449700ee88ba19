"""XShards of DataFrames: shuffles, joins, statistics."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
from ml.shards.row_comparison import same_rows

from hyperplane.errors import (
    DataError,
    RequestError,
)
from hyperplane.ml import XShards

pytestmark = pytest.mark.usefixtures("compute_here")


def test_partition_by_brings_equal_values_together(shards, frame):
    found = shards.partition_by("city", num_partitions=2).collect()
    assert len(found) == 2
    same_rows(pd.concat(found), frame)
    assert sum(len(set(shard["city"])) for shard in found) == 3
    assert all(list(shard.index) == list(range(len(shard))) for shard in found)


def test_faults_of_partition_by(shards):
    with pytest.raises(RequestError, match=r"'prize'.*not in the DataFrame.*did you mean 'price'"):
        shards.partition_by("prize")
    with pytest.raises(RequestError, match="Only support partition by a column name"):
        shards.partition_by(["city", "price"])
    with pytest.raises(RequestError, match="partition by for XShards of Pandas DataFrame"):
        XShards.partition(np.ones(3), num_shards=1).partition_by("city")


def test_deduplicates_finds_equal_rows_of_other_shards(shards, frame):
    doubled = XShards([*shards.parts, *shards.parts])
    same_rows(doubled.deduplicates().concat_to_pdf(), frame)


def test_sort_values_across_shards(shards, frame):
    for names, ascending in (("price", True), (["city", "price"], [False, True]), (None, True)):
        found = shards.sort_values(names, ascending).concat_to_pdf().reset_index(drop=True)
        by = list(frame) if names is None else names
        expected = frame.sort_values(by, ascending=ascending, kind="stable", ignore_index=True)
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(RequestError, match="'x': expected one of city"):
        shards.sort_values("x")


def test_group_by(shards, frame):
    groups = frame.groupby("city")["price"]
    rows = shards.group_by("city", {"*": "count"}).concat_to_pdf()
    counts = rows.set_index("city")["count(1)"]
    assert counts.sort_index().to_dict() == groups.size().to_dict()
    found = shards.group_by(["city"], {"price": ["max", "mean"]}).concat_to_pdf()
    expected = groups.agg(["max", "mean"]).set_axis(["max(price)", "mean(price)"], axis=1)
    same_rows(found, expected.reset_index())
    joined = shards.group_by("city", {"price": "sum"}, join=True).concat_to_pdf()
    same_rows(joined, frame.assign(**{"sum(price)": groups.transform("sum")}))
    assert shards.group_by(agg="sum").concat_to_pdf()["sum(price)"].tolist() == [35]
    with pytest.raises(RequestError) as caught:
        shards.group_by("town", {"price": "median", "x": "sum"}, join="yes")
    assert all(part in str(caught.value) for part in ["'town'", "'median'", "'x'", "join"])


def test_group_by_with_names_and_lists_of_spark(shards, frame):
    groups = frame.groupby("city")
    by_list = shards.group_by("city", ["avg", "stddev", "count", "min"]).concat_to_pdf()
    expected = groups[["price", "rate"]].agg(["mean", "std", "count", "min"])
    expected.columns = [
        f"{ {'mean': 'avg', 'std': 'stddev'}.get(how, how) }({name})" for name, how in expected
    ]
    same_rows(by_list, expected.reset_index()[list(by_list)])
    default = shards.group_by("city").concat_to_pdf()
    assert list(default) == ["city", "count(price)", "count(rate)"]
    assert list(shards.group_by("rate", "max").first()) == ["rate", "max(city)", "max(price)"]
    only_keys = shards.select(["city"]).group_by("city").concat_to_pdf()
    assert only_keys["count(1)"].sum() == 8
    both = {"*": "count", "price": ["mean", "avg"]}
    assert list(shards.group_by([], both).first()) == ["count(1)", "mean(price)", "avg(price)"]
    with pytest.raises(RequestError) as caught:
        shards.group_by("price", {"city": "mean", "*": "sum", "rate": "nunique"})
    for part in ["a column of numbers for mean", "'count' of '*'", "'nunique'"]:
        assert part in str(caught.value)


def test_columns_whose_names_are_numbers_or_not_unique(frame):
    numbered = XShards.from_pandas(frame.set_axis([0, 1, 2], axis=1), 3)
    assert numbered.select([1, 2]).first().shape == (3, 2)
    assert numbered.assembleFeatureLabelCols([1, 2], [1]).first()["x"].shape == (3, 2)
    assert numbered.max_values(1) == 9
    assert numbered.get_null_sum()["col"].tolist() == [0, 1, 2]
    assert numbered.describe()[1]["mean"] == frame["price"].mean()
    assert list(numbered.drop_missing_value().first()) == [0, 1, 2]
    with pytest.raises(RequestError, match=r"sort_values = columns 0, 1.*transform_shard"):
        numbered.sort_values()
    twice = XShards.from_pandas(frame.set_axis(["city", "rate", "rate"], axis=1), 2)
    assert len(twice.get_null_sum()) == 3
    with pytest.raises(RequestError, match="2 have this one"):
        twice.assembleFeatureLabelCols(["rate"], ["city"]).collect()
    with pytest.raises(RequestError, match="cols"):
        numbered.select([])


def test_statistics_of_shards_with_different_types_and_missing_values():
    frames = [
        pd.DataFrame({"n": [1, 2], "i": pd.array([1, None], dtype="Int64"), "t": ["b", None]}),
        pd.DataFrame({"n": [], "i": pd.array([], dtype="Int64"), "t": []}).astype({"n": "int64"}),
        pd.DataFrame({"n": [2.5, None], "i": pd.array([7, 9], dtype="Int64"), "t": ["a", "c"]}),
    ]
    shards = XShards([dask.delayed(each) for each in frames])
    together = pd.concat(frames)
    rows = ["count", "mean", "std", "min", "max"]
    expected = together[["n", "i"]].astype("float64").describe().loc[rows]
    pd.testing.assert_frame_equal(shards.describe(), expected)
    assert shards.describe("t")["t"].tolist()[::3] == [3, "a"]
    assert (shards.max_values("n"), shards.max_values("t")) == (2.5, "c")
    assert shards.get_null_sum()["total"].tolist() == together.isna().sum().tolist()
    assert list(shards.drop_missing_value().first()) == []
    assert np.isnan(XShards([dask.delayed(frames[1])]).max_values("n"))
    other = XShards([dask.delayed(frames[0]), dask.delayed(frames[0][["n"]])])
    with pytest.raises(DataError, match="column 'i'"):
        other.get_null_sum()


def test_categories_that_differ_between_shards():
    frames = [pd.DataFrame({"c": pd.Categorical(list(text)), "n": [1, 2]}) for text in ("ab", "cb")]
    shards = XShards([dask.delayed(each) for each in frames])
    expected = pd.concat(frames)
    found = pd.concat(shard.astype({"c": str}) for shard in shards.partition_by("c").collect())
    same_rows(found, expected.astype({"c": str}))
    counts = shards.group_by("c", {"n": "sum"}).concat_to_pdf().astype({"c": str})
    assert dict(counts.to_numpy()) == {"a": 1, "b": 4, "c": 1}


def test_merge(shards, frame):
    other = pd.DataFrame({"city": ["a", "b", "z"], "zone": [1, 2, 3]})
    right = XShards.from_pandas(other, 2)
    for how in ("inner", "left", "outer"):
        same_rows(shards.merge(right, how).concat_to_pdf(), frame.merge(other, how))
    with pytest.raises(RequestError, match=r"(?s)how = 'up'.*right = an object of type list"):
        shards.merge([1], how="up")
    with pytest.raises(RequestError, match="'zone': expected one of"):
        shards.merge(right, on="zone")


def test_sample_select_describe_and_arrays(shards, frame):
    drawn = shards.sample(0.5, random_state=3)
    pd.testing.assert_frame_equal(drawn.concat_to_pdf(), drawn.concat_to_pdf())
    assert 3 <= len(drawn) <= 5
    assert list(shards.select("price").first()) == ["price"]
    with pytest.raises(RequestError, match="'x': expected one of city"):
        shards.select(["x"]).collect()
    rows = ["count", "mean", "std", "min", "max"]
    pd.testing.assert_frame_equal(shards.describe(), frame.describe().loc[rows])
    shard = shards.assembleFeatureLabelCols(["price", "rate"], ["price"]).first()
    assert (shard["x"].shape, shard["y"].shape) == ((3, 2), (3, 1))
    with pytest.raises(RequestError, match=r"(?s)featureCols.*labelCols"):
        shards.assembleFeatureLabelCols("price", [])
    assert shards.max_values("price") == 9
    assert shards.get_null_sum()["total"].tolist() == [0, 0, 0]
    assert shards.get_schema()["columns"] == ["city", "price", "rate"]


def test_types_and_columns_that_differ_name_shard_and_column():
    frames = [pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1.5, None]})]
    shards = XShards([dask.delayed(each) for each in frames])
    with pytest.raises(DataError, match="column 'n': shard 1 has the type float64"):
        shards.to_dataframe().compute()
    assert shards.compute().to_dataframe().compute()["n"].sum() == 4.5
    other = XShards([dask.delayed(frames[0]), dask.delayed(pd.DataFrame({"m": [1]}))])
    with pytest.raises(DataError, match="shard 1 has the columns m; the first shard has n"):
        other.to_dataframe().compute()


def test_column_names_that_shuffles_do_not_support(frame):
    for columns in ([0, 1, 2], ["city", "rate", "rate"]):
        shards = XShards.from_pandas(frame.set_axis(columns, axis=1), 2)
        with pytest.raises(RequestError, match="unique column names that are strings"):
            shards.group_by("city")
    counts = XShards.from_pandas(frame.rename(columns={"price": "count(1)"}), 2)
    assert counts.group_by("city", {"*": "count"})["count(1)"].concat_to_pdf().sum().item() == 8
    with pytest.raises(RequestError, match=r"two columns 'count\(1\)'"):
        counts.group_by("count(1)", {"*": "count"})
