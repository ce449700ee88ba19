"""Platforms: run a process or a batch job, its state, logs and end. Nothing here knows Dask."""
