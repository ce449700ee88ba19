"""Workers of EMR Serverless, and their prices."""

from __future__ import annotations

from hyperplane.platforms.aws.task_sizes import round_to_fargate
from hyperplane.platforms.task_size import TaskSize

#: MiB of a driver for the JVM and its threads; the rest is for the program of the step.
JVM_MEMORY = 2 << 10
#: Cores of the smallest worker. The sizes of the others are those of Fargate.
_LEAST_CORES = 1.0
#: Region -> prices in USD of an hour of one vCPU, and of one GB of memory, on x86. Other regions
#: are not in the table. The figures are those of two published tables, which name the source.
_PRICES = {"us-east-1": (0.052624, 0.0057785), "eu-west-1": (0.052624, 0.0057785)}
PRICE_DATE, PRICE_SOURCE = "2026-11", "https://aws.amazon.com/emr/pricing/"
#: The largest worker, for messages.
LARGEST = TaskSize(16, (120 << 10) - JVM_MEMORY)


def find_worker(size: TaskSize) -> TaskSize | None:
    """Return the smallest worker whose program has these cores and memory; None if there is none.

    Examples
    --------
    >>> find_worker(TaskSize(0.25, 1000)), find_worker(TaskSize(3, 20_000))
    (TaskSize(cores=1.0, memory=3072, gpus=0), TaskSize(cores=4.0, memory=22528, gpus=0))
    >>> find_worker(TaskSize(1, 1000, gpus=1))
    """
    cores = max(size.cores, _LEAST_CORES)
    return round_to_fargate(TaskSize(cores, size.memory + JVM_MEMORY, size.gpus))


def worker_price(region: str | None, worker: TaskSize) -> float | None:
    """Return the price of a worker in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> round(worker_price("us-east-1", TaskSize(4, 16 << 10)), 4)
    0.303
    >>> worker_price("us-west-1", TaskSize(4, 16 << 10))
    """
    prices = _PRICES.get(region or "")
    if prices is None:
        return None
    return worker.cores * prices[0] + worker.memory / 1024 * prices[1]
