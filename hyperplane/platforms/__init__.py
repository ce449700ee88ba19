"""Run processes and batch jobs, and report their state, logs and exit codes, without Dask."""
