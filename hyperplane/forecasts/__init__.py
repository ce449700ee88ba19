"""Forecast of memory and time of a Dask job from a sample of its tasks."""
