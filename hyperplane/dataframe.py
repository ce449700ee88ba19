"""Helpers for Dask dataframes: reading, time windows, group-bys, joins, sorts.

Each takes a Dask dataframe or URLs (:func:`repartition` only a dataframe) and returns a lazy Dask
collection, except :func:`explain`, which returns the expensive steps of collections.
:func:`to_ray_data` and :func:`from_ray_data` exchange rows with Ray, :func:`to_spark` and
:func:`from_spark` with Spark.
"""

from __future__ import annotations

from hyperplane.collections.frames.drop_duplicates import drop_duplicates
from hyperplane.collections.frames.explain import explain
from hyperplane.collections.frames.group_agg import group_agg, value_counts
from hyperplane.collections.frames.join import join
from hyperplane.collections.frames.join_asof import join_asof
from hyperplane.collections.frames.read import read
from hyperplane.collections.frames.repartition import repartition
from hyperplane.collections.frames.sort_values import sort_values
from hyperplane.collections.frames.to_datetime import to_datetime
from hyperplane.collections.frames.top_n_per_group import top_n_per_group
from hyperplane.collections.frames.window_agg import window_agg
from hyperplane.collections.frames.window_counts import window_counts
from hyperplane.exchange.ray_data import from_ray_data, to_ray_data
from hyperplane.exchange.spark_frames import from_spark, to_spark

__all__ = [
    "drop_duplicates",
    "explain",
    "from_ray_data",
    "from_spark",
    "group_agg",
    "join",
    "join_asof",
    "read",
    "repartition",
    "sort_values",
    "to_datetime",
    "to_ray_data",
    "to_spark",
    "top_n_per_group",
    "value_counts",
    "window_agg",
    "window_counts",
]


def __dir__() -> list[str]:
    return list(__all__)
