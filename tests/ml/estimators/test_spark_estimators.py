"""Estimators and shards with dataframes of Spark: equal to the same rows as a Dask dataframe."""

from __future__ import annotations

import numpy as np
import pytest
from spark_properties import PROPERTIES
from torch_training import X, Y, assert_equal_weights, create

import hyperplane
from hyperplane.dataframe import from_spark
from hyperplane.errors import RequestError
from hyperplane.ml import XShards
from hyperplane.spark import init_spark, stop_spark

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.torch,
    # pyspark 3.5 compares versions of packages with distutils.
    pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_datetime64tz_dtype is deprecated:DeprecationWarning"),
]
COLUMNS = {"feature_cols": "x", "label_cols": "y"}


@pytest.fixture(scope="module")
def spark():
    """A session with one executor, beside a Dask cluster of one worker."""
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, num_workers=1, ram_gb_per_proc=1.5, local_fit="exact"
    )
    yield init_spark("test", 1, 1, "1g", PROPERTIES)
    stop_spark()
    client.close()
    cluster.close()


@pytest.fixture(scope="module")
def rows(spark):
    """A dataframe of Spark with vectors of features and labels, a number and a text."""
    records = [
        (x, y, number, "t")
        for number, (x, y) in enumerate(zip(X.tolist(), Y.tolist(), strict=True))
    ]
    schema = "x array<float>, y array<float>, number int, text string"
    return spark.createDataFrame(records, schema).repartition(2).cache()


def test_an_estimator_fits_on_and_predicts_to_dataframes_of_spark(rows):
    options = {"epochs": 2, "batch_size": 10, **COLUMNS}
    estimator, other = create(), create()
    history = estimator.fit(rows, validation_data=rows, **options)
    assert [stats["num_samples"] for stats in history] == [90, 90]
    other.fit(from_spark(rows), **options)
    assert_equal_weights(estimator, other.get_model())
    assert estimator.evaluate(rows, **COLUMNS)["num_samples"] == 90
    found = estimator.predict(rows, feature_cols="x")
    assert found.sparkSession is rows.sparkSession
    assert found.columns == [*rows.columns, "prediction"]
    expected = estimator.predict(from_spark(rows), feature_cols="x").compute()
    one, two = (each.sort_values("number") for each in (found.toPandas(), expected))
    np.testing.assert_allclose(one["prediction"], two["prediction"], rtol=1e-6)
    assert one["number"].tolist() == list(range(90))


def test_columns_that_cannot_be_used_are_named(rows):
    estimator = create()
    with pytest.raises(RequestError, match=r"did you mean text\?"):
        estimator.fit(rows, feature_cols=["x", "texd"], label_cols="y")
    with pytest.raises(RequestError, match=r"'text' of type .* a column of numbers"):
        estimator.fit(rows, feature_cols=["x", "text"], label_cols="y")
    with pytest.raises(RequestError, match="expected XShards, a dataframe of Dask, Spark or"):
        estimator.fit(rows.rdd, **COLUMNS)


def test_shards_are_converted_directly(rows):
    shards = XShards.from_spark(rows)
    assert sum(len(part) for part in shards.collect()) == 90
    doubled = shards.transform_shard(lambda part: part.assign(number=2 * part["number"]))
    found = doubled.to_spark_df()
    assert found.columns == rows.columns
    assert found.groupBy().sum("number").first()[0] == 90 * 89
