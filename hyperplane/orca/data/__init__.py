"""Orca's module of shards."""

from hyperplane.ml.shards.shared_value import SharedValue
from hyperplane.ml.shards.xshards import SparkXShards, XShards

__all__ = ["SharedValue", "SparkXShards", "XShards"]
