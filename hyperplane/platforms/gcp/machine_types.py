"""Machine types of Vertex AI custom jobs, their allocatable memory, and their prices."""

from __future__ import annotations

from typing import Any, NamedTuple

_GIB = 1024
#: Series and kind of memory -> GiB of memory for each core, and the cores of its machines, as the
#: documentation of Vertex AI lists them for custom training.
_SERIES = {
    ("e2", "standard"): (4.0, (4, 8, 16, 32)),
    ("e2", "highmem"): (8.0, (2, 4, 8, 16)),
    ("e2", "highcpu"): (1.0, (16, 32)),
    ("n1", "standard"): (3.75, (4, 8, 16, 32, 64, 96)),
    ("n1", "highmem"): (6.5, (2, 4, 8, 16, 32, 64, 96)),
    ("n1", "highcpu"): (0.9, (16, 32, 64, 96)),
    ("n2", "standard"): (4.0, (4, 8, 16, 32, 48, 64, 80)),
    ("n2", "highmem"): (8.0, (2, 4, 8, 16, 32, 48, 64, 80)),
    ("n2", "highcpu"): (1.0, (16, 32, 48, 64, 80)),
    ("c2", "standard"): (4.0, (4, 8, 16, 30, 60)),
}
#: Machines that have GPUs: cores, GiB of memory, GPUs and their type.
_GPU_MACHINES = {
    "g2-standard-4": (4, 16.0, 1, "NVIDIA_L4"),
    "g2-standard-8": (8, 32.0, 1, "NVIDIA_L4"),
    "g2-standard-12": (12, 48.0, 1, "NVIDIA_L4"),
    "g2-standard-16": (16, 64.0, 1, "NVIDIA_L4"),
    "g2-standard-32": (32, 128.0, 1, "NVIDIA_L4"),
    "g2-standard-24": (24, 96.0, 2, "NVIDIA_L4"),
    "g2-standard-48": (48, 192.0, 4, "NVIDIA_L4"),
    "g2-standard-96": (96, 384.0, 8, "NVIDIA_L4"),
    "a2-highgpu-1g": (12, 85.0, 1, "NVIDIA_TESLA_A100"),
    "a2-highgpu-2g": (24, 170.0, 2, "NVIDIA_TESLA_A100"),
    "a2-highgpu-4g": (48, 340.0, 4, "NVIDIA_TESLA_A100"),
    "a2-highgpu-8g": (96, 680.0, 8, "NVIDIA_TESLA_A100"),
    "a2-ultragpu-1g": (12, 170.0, 1, "NVIDIA_A100_80GB"),
    "a2-ultragpu-2g": (24, 340.0, 2, "NVIDIA_A100_80GB"),
    "a2-ultragpu-4g": (48, 680.0, 4, "NVIDIA_A100_80GB"),
    "a2-ultragpu-8g": (96, 1360.0, 8, "NVIDIA_A100_80GB"),
    "a3-highgpu-8g": (208, 1872.0, 8, "NVIDIA_H100_80GB"),
}
#: Series of machines to which GPUs can be attached, and the types and counts of these.
_ATTACHING = "n1"
ATTACHABLE = ("NVIDIA_TESLA_T4", "NVIDIA_TESLA_P4", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100")
_COUNTS = (1, 2, 4, 8)
#: Memory that the node of a container reserves: (GiB up to which, fraction); the kubelet evicts
#: containers when 100 MiB are left. From the documentation of GKE, to which Vertex AI refers.
_RESERVED = ((4, 0.25), (8, 0.20), (16, 0.10), (128, 0.06), (float("inf"), 0.02))
_EVICTION = 100
#: Region -> series -> prices in USD of an hour of one core and of one GiB of memory; and of one
#: GPU. They are the list prices of Compute Engine and the fee of Vertex AI of 15 %, without the
#: disk; their sum for n1-standard-4 is the price of the page below. Other regions and types, and
#: machines of the strategy SPOT, are not in the table.
_PRICES = {
    "us-central1": {
        "e2": (0.02508333, 0.00336206),
        "n1": (0.03635265, 0.00487255),
        "n2": (0.03635265, 0.00487255),
    }
}
_GPU_PRICES = {"us-central1": {"NVIDIA_TESLA_T4": 0.4025, "NVIDIA_TESLA_V100": 2.852}}
PRICE_DATE, PRICE_SOURCE = "2026-09", "https://cloud.google.com/vertex-ai/pricing"


class VertexMachine(NamedTuple):
    """A machine type and its GPUs.

    Parameters
    ----------
    name : str
        Its name, such as ``"n1-standard-4"``.
    cores : int
        Number of vCPUs.
    memory : int
        Memory in MiB.
    gpus : int
        Number of GPUs.
    gpu_type : str
        Their type; empty without any.
    """

    name: str
    cores: int
    memory: int
    gpus: int = 0
    gpu_type: str = ""

    @property
    def allocatable(self) -> int:
        """Memory in MiB that a container can have.

        Examples
        --------
        >>> find_machine("n1-standard-4").allocatable
        12700
        """
        left, lower, reserved = self.memory / _GIB, 0.0, 0.0
        for upper, fraction in _RESERVED:
            reserved += max(0.0, min(left, upper) - lower) * fraction
            lower = upper
        return int(self.memory - reserved * _GIB - _EVICTION)

    def spec(self) -> dict[str, Any]:
        """Return it as a request has it.

        Examples
        --------
        >>> find_machine("g2-standard-4").spec()
        {'machineType': 'g2-standard-4', 'acceleratorType': 'NVIDIA_L4', 'acceleratorCount': 1}
        """
        spec: dict[str, Any] = {"machineType": self.name}
        if self.gpus:
            spec |= {"acceleratorType": self.gpu_type, "acceleratorCount": self.gpus}
        return spec

    def describe(self) -> str:
        """Return type and GPUs as text."""
        gpus = f" with {self.gpus} {self.gpu_type}" if self.gpus else ""
        return f"{self.name}{gpus}"


def find_machine(name: str) -> VertexMachine | None:
    """Return the machine type of a name; None if it is not known.

    Examples
    --------
    >>> find_machine("g2-standard-24").describe()
    'g2-standard-24 with 2 NVIDIA_L4'
    """
    return _MACHINES.get(name)


def machine_names(series: str) -> list[str]:
    """Return the names of the machine types of a series."""
    return [name for name in _MACHINES if name.startswith(f"{series}-")]


def choose_machine(
    series: str, cores: float, memory: int, gpus: int, gpu_type: str | None
) -> VertexMachine | None:
    """Return the smallest machine of a series with cores, memory in MiB and GPUs; None if none has.

    Examples
    --------
    >>> choose_machine("n1", 2, 14_000, 0, None).name
    'n1-highmem-4'
    >>> choose_machine("n1", 2, 8_000, 2, "NVIDIA_TESLA_T4").describe()
    'n1-highmem-2 with 2 NVIDIA_TESLA_T4'
    >>> choose_machine("e2", 2, 8_000, 1, "NVIDIA_TESLA_T4")
    """
    machines = (_MACHINES[name] for name in machine_names(series))
    fitting = [
        machine
        for each in machines
        if (machine := attach_gpus(each, gpus, gpu_type)) is not None
        and machine.cores >= cores
        and machine.allocatable >= memory
    ]
    return min(fitting, key=lambda each: (each.gpus, each.cores, each.memory), default=None)


def attach_gpus(machine: VertexMachine, gpus: int, gpu_type: str | None) -> VertexMachine | None:
    """Return a machine with at least so many GPUs of a type; None if it cannot have them."""
    if machine.gpus:  # they are part of it
        fits = machine.gpus >= gpus and gpu_type in (None, machine.gpu_type)
        return machine if fits else None
    if not gpus:
        return machine
    if gpu_type not in ATTACHABLE or not machine.name.startswith(f"{_ATTACHING}-"):
        return None
    count = next((each for each in _COUNTS if each >= gpus), None)
    return None if count is None else machine._replace(gpus=count, gpu_type=gpu_type)


def machine_price(region: str | None, machine: VertexMachine) -> float | None:
    """Return the price of a machine in USD for an hour; None if it is unknown.

    Examples
    --------
    >>> round(machine_price("us-central1", find_machine("n1-standard-4")), 4)
    0.2185
    >>> machine_price("europe-west4", find_machine("n1-standard-4"))
    """
    prices = _PRICES.get(region or "", {}).get(machine.name.partition("-")[0])
    gpu = _GPU_PRICES.get(region or "", {}).get(machine.gpu_type) if machine.gpus else 0.0
    if prices is None or gpu is None:
        return None
    core, gib = prices
    return machine.cores * core + machine.memory / _GIB * gib + machine.gpus * gpu


def _list_machines() -> dict[str, VertexMachine]:
    machines = [
        VertexMachine(f"{series}-{kind}-{cores}", cores, int(cores * gib * _GIB))
        for (series, kind), (gib, sizes) in _SERIES.items()
        for cores in sizes
    ]
    machines += [
        VertexMachine(name, cores, int(gib * _GIB), gpus, gpu_type)
        for name, (cores, gib, gpus, gpu_type) in _GPU_MACHINES.items()
    ]
    return {machine.name: machine for machine in machines}


_MACHINES = _list_machines()
