"""Layout of a node with GPUs: dask-cuda runs one worker process on each GPU."""

from __future__ import annotations

from dataclasses import replace

from hyperplane.spec.worker import WorkerSpec


def one_process_per_gpu(asked: WorkerSpec) -> tuple[WorkerSpec, str]:
    """Return a layout with one process on each GPU, and a note if that differs from the request.

    A layout without GPUs is returned unchanged. The threads of a process stay the same. The total
    memory of the node is divided among the processes, but each has at least the memory that was
    requested for a process.

    Examples
    --------
    >>> worker, note = one_process_per_gpu(WorkerSpec.from_gb(15, 1, 0.7, 15, ngpus=1))
    >>> print(worker)
    1 process x 1 thread x 10.5 GB, 1 GPU
    >>> print(note)
    one worker process runs on each GPU: asked 15 processes x 1 thread x 0.7 GB, 1 GPU;...
    """
    if not asked.ngpus or asked.nprocs == asked.ngpus:
        return asked, ""
    ram = max(asked.ram_per_proc, asked.total_ram // asked.ngpus)
    worker = replace(asked, nprocs=asked.ngpus, ram_per_proc=ram)
    return worker, f"one worker process runs on each GPU: asked {asked}; given {worker}"
