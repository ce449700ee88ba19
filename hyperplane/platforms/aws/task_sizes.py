"""Sizes of tasks that Fargate has, and their prices."""

from __future__ import annotations

import math

from hyperplane.platforms.task_size import TaskSize

#: Bytes of a MiB, and MiB of a GiB; least memory of a container of EC2 in MiB.
_MIB, _GIB, _LEAST_MEMORY = 1 << 20, 1024, 4
#: Fargate's vCPUs -> least and most memory in MiB, and the difference between two sizes.
_FARGATE = {
    0.25: (512, 2 * _GIB, 0),
    0.5: (1 * _GIB, 4 * _GIB, _GIB),
    1.0: (2 * _GIB, 8 * _GIB, _GIB),
    2.0: (4 * _GIB, 16 * _GIB, _GIB),
    4.0: (8 * _GIB, 30 * _GIB, _GIB),
    8.0: (16 * _GIB, 60 * _GIB, 4 * _GIB),
    16.0: (32 * _GIB, 120 * _GIB, 8 * _GIB),
}
_SMALLEST = (512, _GIB, 2 * _GIB)
#: The largest task of Fargate, for messages.
LARGEST_FARGATE = "16 cores and 128.8 GB (120 GiB)"
#: Region -> prices in USD of an hour of one vCPU, and of one GB (2^30 bytes) of memory, for Linux
#: on x86 without a discount. Other regions, and instances of EC2, are not in the table.
_PRICES = {"us-east-1": (0.04048, 0.004445)}
PRICE_DATE, PRICE_SOURCE = "2026-03", "https://aws.amazon.com/fargate/pricing/"


def least_memory(size: float) -> int:
    """Return the MiB of a container that has at least ``size`` bytes.

    Examples
    --------
    >>> least_memory(4e9), least_memory(1)
    (3815, 4)
    """
    return max(_LEAST_MEMORY, math.ceil(size / _MIB))


def round_to_fargate(size: TaskSize) -> TaskSize | None:
    """Return the smallest size of Fargate with these cores and memory; None if there is none.

    Examples
    --------
    >>> round_to_fargate(TaskSize(1.5, 3000)), round_to_fargate(TaskSize(1, 9000))
    (TaskSize(cores=2.0, memory=4096, gpus=0), TaskSize(cores=2.0, memory=9216, gpus=0))
    """
    if size.gpus:
        return None
    for cores, (least, most, step) in _FARGATE.items():
        if cores < size.cores or size.memory > most:
            continue
        if not step:
            return TaskSize(cores, next(each for each in _SMALLEST if each >= size.memory))
        steps = -(-max(0, size.memory - least) // step)
        return TaskSize(cores, least + steps * step)
    return None


def fargate_price(region: str | None, size: TaskSize) -> float | None:
    """Return the price of a task in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> round(fargate_price("us-east-1", TaskSize(1, 4096)), 5)
    0.05826
    >>> fargate_price("eu-west-1", TaskSize(1, 4096))
    """
    prices = _PRICES.get(region or "")
    if prices is None:
        return None
    return size.cores * prices[0] + size.memory / _GIB * prices[1]
