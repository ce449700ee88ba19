"""Dataframes of Spark as data of estimators: the workers read them as Dask dataframes."""

from __future__ import annotations

from typing import Any


def is_spark_frame(data: Any) -> bool:
    """Return whether data are a dataframe of Spark, without importing Spark."""
    return type(data).__module__.partition(".")[0] == "pyspark" and hasattr(data, "sparkSession")


def read_spark_frame(data: Any) -> Any:
    """Return a dataframe of Spark as a Dask dataframe, and other data unchanged.

    The executors write Parquet files, which the Dask workers read.
    """
    if not is_spark_frame(data):
        return data
    from hyperplane.exchange.spark_frames import from_spark

    return from_spark(data)


def write_spark_frame(df: Any) -> Any:
    """Compute a Dask dataframe and return it as a dataframe of Spark."""
    from hyperplane.exchange.spark_frames import to_spark

    return to_spark(df)
