"""Guards of running clusters: busy workers, idle clusters, forked processes."""
