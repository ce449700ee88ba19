"""Guards of Dask clusters: busy workers, idle clusters, forked processes, other users."""
