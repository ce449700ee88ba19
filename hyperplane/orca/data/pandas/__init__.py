"""Orca's module of the readers."""

from hyperplane.ml.shards.readers import read_csv, read_json, read_parquet

__all__ = ["read_csv", "read_json", "read_parquet"]
