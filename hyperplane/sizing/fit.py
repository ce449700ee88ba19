"""Layout of worker processes on a node of a pool, and whether it fits.

Layout rule
-----------
Above four cores, Dask derives the number of processes from the square root of the cores: it is the
smallest divisor of the core count that is at least the root (``nprocesses_nthreads`` in
``distributed.deploy.utils``; up to four cores it is the core count). For 15 cores that is the
published 5 x 3, but the result depends on the divisors: 94 cores result in 47 x 2 and 7 cores in
7 x 1. The rule of this module applies the square-root rule to the largest number of cores for which
it results in *at most twice as many processes as threads per process*: 94 cores result in 13 x 7
(91 of 94 cores), 7 in 3 x 2, 4 in 2 x 2. Up to three cores get one process: in measurements of
dataframe queries, one process with two threads was 1.2 to 1.4 times faster than two processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, cast

from hyperplane.core.errors import DoesNotFit, Fault, RequestError
from hyperplane.core.units import (
    GB,
    format_bytes,
    format_number,
    gb_to_bytes,
    plural,
    whole_number,
)
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

#: Largest accepted number of processes, threads or GB.
_MAXIMUM = 10**12
#: Largest number of cores for which one process is proposed (measured on two).
SINGLE_PROCESS_CORES = 3

#: Proposed sizes are multiples of 1 MB, so that they are short numbers of GB.
STEP = GB // 1000


def balanced_layout(
    cores: int, single_process_cores: int = SINGLE_PROCESS_CORES
) -> tuple[int, int]:
    """Return processes and threads for a number of cores, by the rule of this module.

    Examples
    --------
    >>> [balanced_layout(cores) for cores in (2, 7, 15, 28, 94)]
    [(1, 2), (3, 2), (5, 3), (7, 4), (13, 7)]
    """
    if cores <= single_process_cores:
        return 1, cores
    for used in range(cores, 0, -1):
        threads = math.isqrt(used)
        while used % threads:
            threads -= 1
        if used // threads <= 2 * threads:
            return used // threads, threads
    return 1, 1


def propose_worker(
    pool: PoolSpec,
    *,
    nprocs: int | None = None,
    nthreads: int | None = None,
    ram_gb_per_proc: float | None = None,
) -> WorkerSpec:
    """Propose a layout for one node of a pool that keeps the values that are given.

    Raises
    ------
    RequestError
        If a value is invalid.
    DoesNotFit
        If the values exceed a node of the pool.
    """
    processes, threads = whole_number(nprocs), whole_number(nthreads)
    faults = [
        Fault(name, repr(value)[:80], f"a whole number of at least 1{_describe_limit(number)}")
        for name, value, number in (
            ("nprocs", nprocs, processes),
            ("nthreads", nthreads, threads),
        )
        if value is not None and (number is None or not 1 <= number <= _MAXIMUM)
    ]
    if ram_gb_per_proc is not None and not _is_size(ram_gb_per_proc):
        faults.append(
            Fault("ram_gb_per_proc", repr(ram_gb_per_proc)[:80], "a number of GB above 0")
        )
    if faults:
        raise RequestError(faults)
    cores = pool.whole_cores
    if processes is not None:
        threads = threads or max(1, cores // processes)
    elif threads is not None:
        processes = max(1, cores // threads)
    else:
        processes, threads = balanced_layout(cores)
    if ram_gb_per_proc is None:
        share = pool.allocatable_ram // processes
        ram = share // STEP * STEP or share
    else:
        ram = gb_to_bytes(float(ram_gb_per_proc))  # NumPy's float16 would overflow
        if nprocs is None:
            most = pool.allocatable_ram // max(1, ram - 1)  # tolerates rounding, as fits() does
            processes = max(1, min(processes, most))
            threads = threads if nthreads is not None else cores // processes
    worker = WorkerSpec(processes, threads, ram, processes * threads, pool.gpus)
    check_fits(worker, pool)
    return worker


def _describe_limit(number: int | None) -> str:
    """Return the text of the upper limit for a number that exceeds it, otherwise an empty one."""
    return f" and at most {_MAXIMUM:g}" if number is not None and number > _MAXIMUM else ""


def _is_size(value: Any) -> bool:
    if type(value) is bool or not isinstance(value, Real):
        return False
    return bool(0 < cast("float", value) <= _MAXIMUM)


def check_fits(worker: WorkerSpec, pool: PoolSpec) -> None:
    """Raise :class:`~hyperplane.errors.DoesNotFit` unless the layout fits the pool."""
    if fits(worker, pool):
        return
    best = balanced_layout(pool.whole_cores)
    gpus = f", {plural(pool.gpus, 'GPU')}" if worker.ngpus else ""
    raise DoesNotFit(
        pool.name,
        f"{worker}, {format_number(worker.cores_per_worker)} cores "
        f"({format_bytes(worker.total_ram)})",
        f"at most {format_number(pool.allocatable_cores)} cores and "
        f"{format_bytes(pool.allocatable_ram)}{gpus} on a node of pool {pool.name}",
        f"{plural(best[0], 'process')} x {plural(best[1], 'thread')} would fit; "
        f"hyperplane.fit_workers({pool.name!r}) proposes a layout",
    )


def fits(worker: WorkerSpec, pool: PoolSpec) -> bool:
    """Return whether a layout fits a node of the pool.

    Compares the reserved cores, the threads unless the layout has GPUs, the memory, and the GPUs.
    The memory may exceed the limit by one byte per process, so that a request of exactly the
    limit fits after rounding.
    """
    cores = worker.cores_per_worker
    if not worker.ngpus:
        cores = max(cores, worker.total_threads)
    # 15 processes of 110/15 GB exceed 110 GB by the rounding of each to a byte.
    rounding = worker.nprocs
    return (
        cores <= pool.allocatable_cores + 1e-9
        and worker.total_ram <= pool.allocatable_ram + rounding
        and worker.ngpus <= pool.gpus
    )


def smallest_pool(pools: Iterable[PoolSpec], cores: float, ram: int, gpus: int = 0) -> PoolSpec:
    """Find the smallest pool whose nodes have at least these allocatable cores, bytes and GPUs.

    Smallest means fewest nominal cores, then least nominal memory, which is also the order of
    prices of cloud providers. Nodes with GPUs come last if no GPU is needed.

    Raises
    ------
    DoesNotFit
        If no pool is large enough, with the largest one.
    """
    ordered = sorted(pools, key=lambda pool: (not gpus and pool.gpus, pool.cores, pool.ram_gb))
    slack = max(1, ram // 10**9)  # bytes of rounding, as in fits()
    for pool in ordered:
        enough = cores <= pool.allocatable_cores + 1e-9 and ram <= pool.allocatable_ram + slack
        if enough and gpus <= pool.gpus:
            return pool
    largest = max(ordered, key=lambda pool: (pool.gpus >= gpus, pool.allocatable_ram))
    allowed = f"at most a node of the largest pool, {largest}"
    advice = "request smaller nodes, and more nodes"
    if gpus > largest.gpus:
        most = max(pool.gpus for pool in ordered)
        allowed = (
            f"at most {plural(most, 'GPU')} on one node, the most that a pool has"
            if most
            else "no GPU, because no pool has one"
        )
        advice = "add a pool with gpus to the configuration"
    raise DoesNotFit(
        largest.name,
        f"{format_number(cores)} cores and {format_bytes(ram)}"
        + (f" and {plural(gpus, 'GPU')}" if gpus else "")
        + " on one node",
        allowed,
        advice,
    )
