"""Dask clusters, one package for each platform."""
