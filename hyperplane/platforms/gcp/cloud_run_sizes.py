"""Sizes of containers that Cloud Run jobs can have, and their prices."""

from __future__ import annotations

from hyperplane.platforms.task_size import TaskSize

_GIB = 1024
#: vCPUs -> least and most memory in MiB, as the documentation of Cloud Run lists them for jobs.
_SIZES = {
    1.0: (_GIB // 2, 4 * _GIB),
    2.0: (_GIB // 2, 8 * _GIB),
    4.0: (2 * _GIB, 16 * _GIB),
    6.0: (4 * _GIB, 24 * _GIB),
    8.0: (4 * _GIB, 32 * _GIB),
}
#: The GPU of a container, its least vCPUs and memory in MiB, and the longest time of a task.
GPU_TYPE, _GPU_CORES, _GPU_MEMORY = "nvidia-l4", 4.0, 16 * _GIB
GPU_SECONDS = 3600
#: The longest time of other tasks.
MAX_SECONDS = 168 * 3600
#: The largest container, for messages.
LARGEST = "8 cores and 34.3 GB (32 GiB)"
#: Prices in USD of an hour of one vCPU and of one GiB of memory in the regions of tier 1, without
#: the free amounts. Other regions, and GPUs, are not in the table.
_CORE, _MEMORY = 0.000018 * 3600, 0.000002 * 3600
_TIER_1 = {
    "asia-east1", "asia-northeast1", "asia-northeast2", "europe-north1", "europe-southwest1",
    "europe-west1", "europe-west4", "europe-west8", "europe-west9", "me-west1", "us-central1",
    "us-east1", "us-east4", "us-east5", "us-south1", "us-west1",
}  # fmt: skip
PRICE_DATE, PRICE_SOURCE = "2026-10", "https://cloud.google.com/run/pricing"


def round_to_cloud_run(size: TaskSize) -> TaskSize | None:
    """Return the smallest size of a container with these resources; None if there is none.

    Examples
    --------
    >>> round_to_cloud_run(TaskSize(0.5, 100)), round_to_cloud_run(TaskSize(3, 17_000))
    (TaskSize(cores=1.0, memory=512, gpus=0), TaskSize(cores=6.0, memory=17000, gpus=0))
    >>> round_to_cloud_run(TaskSize(1, 1000, 1)), round_to_cloud_run(TaskSize(1, 33_000))
    (TaskSize(cores=4.0, memory=16384, gpus=1), None)
    """
    if size.gpus > 1:
        return None
    asked = size
    if size.gpus:
        asked = TaskSize(max(size.cores, _GPU_CORES), max(size.memory, _GPU_MEMORY), 1)
    for cores, (least, most) in _SIZES.items():
        if cores >= asked.cores and most >= asked.memory:
            return TaskSize(cores, max(least, asked.memory), asked.gpus)
    return None


def cloud_run_price(region: str | None, size: TaskSize) -> float | None:
    """Return the price of a container in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> round(cloud_run_price("europe-west4", TaskSize(1, 2048)), 4)
    0.0792
    >>> cloud_run_price("europe-west3", TaskSize(1, 2048))
    """
    if region not in _TIER_1 or size.gpus:
        return None
    return size.cores * _CORE + size.memory / _GIB * _MEMORY
