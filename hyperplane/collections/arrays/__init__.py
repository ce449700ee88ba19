"""Implementation of ``hyperplane.array``: Zarr stores, chunk sizes and rechunking."""
