"""Helpers that take and return Dask collections: bags, dataframes and arrays."""
