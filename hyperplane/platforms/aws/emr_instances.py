"""Machines of EMR clusters, and their prices."""

from __future__ import annotations

from typing import NamedTuple

from hyperplane.platforms.task_size import TaskSize

#: Region -> instance type -> prices in USD of an hour: of the machine of EC2 on demand, and of EMR,
#: which comes on top. Other regions and types are not in the table.
_PRICES = {
    "us-east-1": {
        "m5.xlarge": (0.192, 0.048),
        "r5.xlarge": (0.252, 0.063),
        "m5.2xlarge": (0.384, 0.096),
        "r5.2xlarge": (0.504, 0.126),
        "m5.4xlarge": (0.768, 0.192),
        "r5.4xlarge": (1.008, 0.252),
    }
}
#: The figures are those of two published tables, which name the source.
PRICE_DATE, PRICE_SOURCE = "2026-11", "https://aws.amazon.com/emr/pricing/"
#: MiB of the first machine that the services of Hadoop and the JVM of a driver take. Amazon
#: documents the sizes of their heaps: about 4 GiB on the smallest machine, without the driver.
SYSTEM_MEMORY = 6 << 10


class EmrInstance(NamedTuple):
    """A machine of a cluster.

    Parameters
    ----------
    name : str
        Instance type.
    cores : float
        Its vCPUs.
    memory : int
        MiB of the machine that runs a step, which its program can have.
    """

    name: str
    cores: float
    memory: int


def _instance(name: str, cores: float, gib: int) -> EmrInstance:
    return EmrInstance(name, cores, (gib << 10) - SYSTEM_MEMORY)


#: The machines of clusters, the cheapest first.
INSTANCES = (
    _instance("m5.xlarge", 4, 16),
    _instance("r5.xlarge", 4, 32),
    _instance("m5.2xlarge", 8, 32),
    _instance("r5.2xlarge", 8, 64),
    _instance("m5.4xlarge", 16, 64),
    _instance("r5.4xlarge", 16, 128),
    _instance("m5.8xlarge", 32, 128),
    _instance("r5.8xlarge", 32, 256),
)


def find_instance(size: TaskSize, least: str | None = None) -> EmrInstance | None:
    """Return the cheapest machine with these cores and memory; None if there is none.

    Parameters
    ----------
    size : TaskSize
        Cores, memory and GPUs; no machine has GPUs.
    least : str, optional
        Name of the cheapest machine that may be used.

    Examples
    --------
    >>> find_instance(TaskSize(1, 2000)).name, find_instance(TaskSize(1, 20_000)).name
    ('m5.xlarge', 'r5.xlarge')
    >>> find_instance(TaskSize(1, 2000), "m5.2xlarge").name
    'm5.2xlarge'
    >>> find_instance(TaskSize(1, 2000, gpus=1))
    """
    names = [instance.name for instance in INSTANCES]
    for instance in INSTANCES[names.index(least) if least in names else 0 :]:
        fits = size.cores <= instance.cores and size.memory <= instance.memory
        if fits and not size.gpus:
            return instance
    return None


def instance_price(region: str | None, name: str) -> float | None:
    """Return the price of a machine with EMR in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> round(instance_price("us-east-1", "m5.xlarge"), 3)
    0.24
    >>> instance_price("eu-west-1", "m5.xlarge")
    """
    prices = _PRICES.get(region or "", {}).get(name)
    return None if prices is None else sum(prices)
