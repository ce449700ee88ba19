"""Guards of running Dask clusters: busy workers, idle clusters and forked processes."""
