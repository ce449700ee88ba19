"""The engine of Kubernetes with dask-kubernetes' operator."""
