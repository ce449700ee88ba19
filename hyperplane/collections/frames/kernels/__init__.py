"""Polars code that runs inside Dask tasks."""
