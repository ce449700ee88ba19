"""Layout of the worker processes of one node."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import GB, bytes_to_gb, format_number, gb_to_bytes, plural

#: Limit for processes, threads, bytes, cores and GPUs.
_LARGEST = 2**60


def _is_number(value: object) -> bool:
    """Return whether a value is a real number of Python or NumPy, but not a bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _describe_allowed(value: Any, minimum: int) -> str:
    is_low = _is_number(value) and value < minimum
    return f"a number of at least {minimum}" if is_low else f"a whole number up to {_LARGEST:,}"


@check_call
@dataclass(frozen=True)
class WorkerSpec:
    """Layout of the worker processes of one node.

    Parameters
    ----------
    nprocs : int
        Number of worker processes on a node.
    nthreads : int
        Number of threads of each process.
    ram_per_proc : int
        Memory of each process, in bytes.
    cores_per_worker : float
        Cores reserved on the node for all its processes together.
    ngpus : int
        Number of GPUs of the node.

    Raises
    ------
    RequestError
        If a number is below its minimum, too large, or not a whole number where one is needed.

    Examples
    --------
    >>> worker = WorkerSpec.from_gb(nprocs=5, nthreads=3, ram_gb_per_proc=2.4, cores_per_worker=15)
    >>> worker.total_threads, worker.total_ram
    (15, 12000000000)
    """

    nprocs: int
    nthreads: int
    ram_per_proc: int
    cores_per_worker: float
    ngpus: int = 0

    def __post_init__(self) -> None:
        faults = [
            Fault(name, repr(value)[:80], _describe_allowed(value, minimum))
            for name, value, minimum in (
                ("nprocs", self.nprocs, 1),
                ("nthreads", self.nthreads, 1),
                ("ram_per_proc", self.ram_per_proc, 1),
                ("ngpus", self.ngpus, 0),
            )
            if not (_is_number(value) and minimum <= value <= _LARGEST and value == int(value))
        ]
        cores = self.cores_per_worker
        if not (_is_number(cores) and 0 < cores <= _LARGEST):
            allowed = f"a number more than 0, at most {_LARGEST:,}"
            faults.append(Fault("cores_per_worker", repr(cores)[:80], allowed))
        if faults:
            raise RequestError(faults)

    @classmethod
    @check_call
    def from_gb(
        cls,
        nprocs: int,
        nthreads: int,
        ram_gb_per_proc: float,
        cores_per_worker: float,
        ngpus: int = 0,
    ) -> WorkerSpec:
        """Create a layout from the memory of a process in GB (10**9 bytes)."""
        faults = []
        if not (_is_number(ram_gb_per_proc) and 0 < ram_gb_per_proc <= _LARGEST / GB):
            allowed = f"a number more than 0, at most {_LARGEST / GB:g}"
            faults = [Fault("ram_gb_per_proc", repr(ram_gb_per_proc)[:80], allowed)]
        ram = 1 if faults else gb_to_bytes(ram_gb_per_proc)
        try:
            worker = cls(nprocs, nthreads, ram, cores_per_worker, ngpus)
        except RequestError as error:
            raise RequestError([*error.faults, *faults]) from None
        check(faults)
        return worker

    @property
    def ram_gb_per_proc(self) -> float:
        """Memory of each process in GB."""
        return bytes_to_gb(self.ram_per_proc)

    @property
    def total_threads(self) -> int:
        """Number of threads of all processes of the node."""
        return self.nprocs * self.nthreads

    @property
    def total_ram(self) -> int:
        """Memory of all processes of the node, in bytes."""
        return self.nprocs * self.ram_per_proc

    def to_dict(self) -> dict[str, Any]:
        """Return the values by the names of the arguments of ``initialize_cluster``."""
        return {
            "nprocs": self.nprocs,
            "nthreads": self.nthreads,
            "ram_gb_per_proc": self.ram_gb_per_proc,
            "cores_per_worker": self.cores_per_worker,
            "ngpus": self.ngpus,
        }

    def __str__(self) -> str:
        gpus = f", {plural(self.ngpus, 'GPU')}" if self.ngpus else ""
        return (
            f"{plural(self.nprocs, 'process')} x {plural(self.nthreads, 'thread')} x "
            f"{format_number(self.ram_gb_per_proc)} GB{gpus}"
        )
