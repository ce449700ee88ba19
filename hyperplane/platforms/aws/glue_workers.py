"""Machines of AWS Glue jobs: capacities of Python shell jobs, worker types of Spark, and prices."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane.platforms.task_size import TaskSize

PYTHON_SHELL, SPARK = "pythonshell", "glueetl"
#: Region -> price in USD of a DPU for an hour, without a discount. Other regions are not in the
#: table.
_PRICES = {"us-east-1": 0.44}
PRICE_DATE, PRICE_SOURCE = "2026-10", "https://aws.amazon.com/glue/pricing/"


class GlueWorker(NamedTuple):
    """A machine that runs the program of a step.

    Parameters
    ----------
    name : str
        Name of the worker type; of a Python shell job its capacity.
    dpus : float
        Data processing units: Amazon's measure of the price, 4 vCPU and 16 GB each.
    cores : float
        Its vCPUs.
    memory : int
        Its memory in MiB.
    """

    name: str
    dpus: float
    cores: float
    memory: int


#: Type of a job -> its machines, the smallest first. Larger worker types are not in all regions.
WORKERS = {
    PYTHON_SHELL: (
        GlueWorker("0.0625 DPU", 0.0625, 0.25, 1 << 10),
        GlueWorker("1 DPU", 1, 4, 16 << 10),
    ),
    SPARK: (
        GlueWorker("G.1X", 1, 4, 16 << 10),
        GlueWorker("G.2X", 2, 8, 32 << 10),
        GlueWorker("G.4X", 4, 16, 64 << 10),
        GlueWorker("G.8X", 8, 32, 128 << 10),
    ),
}


def find_worker(job_type: str, size: TaskSize, least: str | None = None) -> GlueWorker | None:
    """Return the smallest machine with these cores and memory; None if there is none.

    Parameters
    ----------
    job_type : str
        ``"pythonshell"`` or ``"glueetl"``.
    size : TaskSize
        Cores, memory and GPUs; no machine has GPUs.
    least : str, optional
        Name of the smallest machine that may be used.

    Examples
    --------
    >>> find_worker("pythonshell", TaskSize(0.25, 954)).name
    '0.0625 DPU'
    >>> find_worker("glueetl", TaskSize(1, 20_000)).name
    'G.2X'
    >>> find_worker("glueetl", TaskSize(1, 20_000, gpus=1))
    """
    workers = WORKERS[job_type]
    names = [worker.name for worker in workers]
    first = names.index(least) if least in names else 0
    for worker in workers[first:]:
        if not size.gpus and size.cores <= worker.cores and size.memory <= worker.memory:
            return worker
    return None


def dpu_price(region: str | None) -> float | None:
    """Return the price of a DPU in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> dpu_price("us-east-1")
    0.44
    >>> dpu_price("eu-west-1")
    """
    return _PRICES.get(region or "")
