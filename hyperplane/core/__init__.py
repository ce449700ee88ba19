"""Errors, units, checks of arguments, registries and adapters to Dask, for all other packages."""
