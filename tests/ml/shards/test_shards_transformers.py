"""Transformers with the names of Orca, compared with pandas and scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import preprocessing

from hyperplane.errors import DataError, RequestError
from hyperplane.ml import XShards
from hyperplane.orca.data.transformer import MinMaxScaler, StandardScaler, StringIndexer

pytestmark = pytest.mark.usefixtures("compute_here")


def test_an_index_has_the_numbers_of_sorted_values(shards, frame):
    indexer = StringIndexer("city")
    found = indexer.fit_transform(shards).concat_to_pdf()
    codes = pd.Categorical(frame["city"]).codes + 1
    assert found["city"].tolist() == codes.tolist()
    assert list(found) == list(frame)
    assert indexer.indices.to_dict() == {"a": 1, "b": 2, "c": 3}
    several = StringIndexer(inputCol=["price", "city"])
    found = several.fit_transform(shards).concat_to_pdf()
    assert [index.col_name for index in several.indices] == ["price", "city"]
    expected = frame["price"].rank(method="dense").astype("int64")
    assert found["price"].tolist() == expected.tolist()


def test_missing_and_unknown_values_are_nan_in_all_shards(shards):
    indexer = StringIndexer("city")
    indexer.fit_transform(shards)
    other = pd.DataFrame({"city": ["b", "a", None, "z"]})
    found = indexer.transform(XShards.from_pandas(other, 2)).collect()
    assert [shard["city"].dtype for shard in found] == ["float64", "float64"]
    assert np.array_equal(pd.concat(found)["city"], [2, 1, np.nan, np.nan], equal_nan=True)
    mixed = pd.DataFrame({"city": pd.Series(["b", 1, None], dtype="object")})
    indexer.fit_transform(XShards.from_pandas(mixed, 2))
    assert indexer.indices.to_dict() == {1: 1, "b": 2}
    category = pd.DataFrame({"city": pd.Categorical(["b", "a"], categories=["b", "a", "c"])})
    found = indexer.fit_transform(XShards.from_pandas(category, 2)).concat_to_pdf()
    assert found["city"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("scaler", "expected"),
    [
        (MinMaxScaler, preprocessing.MinMaxScaler()),
        (lambda **names: MinMaxScaler(-1, 3, **names), preprocessing.MinMaxScaler((-1, 3))),
    ],
)
def test_scaled_values_are_those_of_scikit_learn(shards, frame, scaler, expected):
    names = ["price", "rate"]
    fitted = scaler(inputCol=names, outputCol="scaled")
    found = fitted.fit_transform(shards).concat_to_pdf()
    wanted = expected.fit_transform(frame[names])
    assert np.allclose(found["scaled"].tolist(), wanted)
    assert found.drop(columns="scaled").equals(frame)
    other = frame.assign(price=frame["price"] * 3).set_axis(range(5, 13))
    found = fitted.transform(XShards.from_pandas(other, 3)).concat_to_pdf()
    assert np.allclose(found["scaled"].tolist(), expected.transform(other[names]))


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("with_std", [False, True])
def test_standard_scores_use_the_deviation_of_a_sample(shards, frame, with_mean, with_std):
    scaler = StandardScaler(with_mean, with_std, inputCol="price", outputCol="score")
    found = scaler.fit_transform(shards).concat_to_pdf()["score"]
    values = frame["price"] - (frame["price"].mean() if with_mean else 0)
    expected = values / (frame["price"].std() if with_std else 1)
    assert np.allclose(np.concatenate(found.to_list()), expected)


def test_columns_with_a_single_value():
    shards = XShards.from_pandas(pd.DataFrame({"a": [7, 7, 7]}), 2)
    middle = MinMaxScaler(0, 4, inputCol="a", outputCol="b").fit_transform(shards)
    assert middle.concat_to_pdf()["b"].tolist() == [[2.0]] * 3
    zero = StandardScaler(inputCol="a", outputCol="b").fit_transform(shards)
    assert zero.concat_to_pdf()["b"].tolist() == [[0.0]] * 3


def test_faults_of_transformers(shards, frame):
    for call, where in [
        (lambda: MinMaxScaler("0", float("nan")), ["min", "max"]),
        (lambda: MinMaxScaler(2, 1), ["min"]),
        (lambda: MinMaxScaler(inputCol=[], outputCol=""), ["inputCol", "outputCol"]),
        (lambda: StandardScaler(1, "yes"), ["withMean", "withStd"]),
        (lambda: StringIndexer(None), ["inputCol"]),
        (lambda: StringIndexer("city").transform(shards), ["StringIndexer"]),
        (lambda: MinMaxScaler().fit_transform(shards), ["inputCol"]),
        (lambda: MinMaxScaler(inputCol="rate", outputCol="b").transform(shards), ["MinMaxScaler"]),
        (lambda: MinMaxScaler(inputCol="city", outputCol="b").fit_transform(shards), ["inputCol"]),
        (lambda: StringIndexer("town").fit_transform(shards), ["inputCol"]),
        (lambda: StringIndexer("city").fit_transform(frame), ["shard"]),
    ]:
        with pytest.raises(RequestError) as caught:
            call()
        assert [fault.where for fault in caught.value.faults] == where
    missing = XShards.from_pandas(frame.assign(rate=np.nan), 2)
    scaled = MinMaxScaler(inputCol=["price", "rate"], outputCol="b").fit_transform(missing)
    with pytest.raises(DataError, match=r"rate.*missing values"):
        scaled.collect()
