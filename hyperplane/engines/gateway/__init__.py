"""The engine of a dask-gateway server."""
