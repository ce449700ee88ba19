"""Conversions between Dask dataframes and the data of other frameworks, through files."""
