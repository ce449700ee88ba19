"""The gateway engine: clusters that a dask-gateway server starts."""
