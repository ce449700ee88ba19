"""The kubernetes engine: pods that the operator of dask-kubernetes starts."""
