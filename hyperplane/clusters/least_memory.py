"""Check that the worker processes of a cluster have enough memory to run tasks."""

from __future__ import annotations

from hyperplane.core.errors import Fault
from hyperplane.spec.engine_names import DASK
from hyperplane.spec.worker import WorkerSpec

#: Bytes of memory with which a worker process of Dask can run tasks.
_LEAST_MEMORY = 200_000_000


def find_memory_faults(framework: str, worker: WorkerSpec) -> list[Fault]:
    """Return the fault of processes that would be ended for memory before their first task."""
    if framework != DASK or worker.ram_per_proc >= _LEAST_MEMORY:
        return []
    given, least = f"{worker.ram_gb_per_proc:g}", f"{_LEAST_MEMORY / 1e9:g}"
    advice = "a worker process without data uses 0.15 GB, and pandas and Polars 0.1 GB more"
    return [Fault("ram_gb_per_proc", given, f"at least {least}", advice)]
