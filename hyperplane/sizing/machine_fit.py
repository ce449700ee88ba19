"""Reduction of a request to the cores and memory of one machine."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from hyperplane.core.errors import DoesNotFit
from hyperplane.core.units import bytes_to_gb, format_bytes, plural
from hyperplane.sizing.fit import SINGLE_PROCESS_CORES, balanced_layout
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.worker import WorkerSpec

#: Least memory of a worker process: an idle one uses 130 to 160 MB (measured).
MIN_RAM = 200_000_000
#: What to do about clusters that already use this machine.
CLOSE_ADVICE = (
    "cluster.close() closes one, replace=True the one that the same notebook cell or line has "
    "started"
)


class MachineFit(NamedTuple):
    """A request reduced to one machine.

    The layout is started ``nodes`` times on the machine. ``note`` describes the difference from the
    request in one line; it is empty if there is none.
    """

    worker: WorkerSpec
    nodes: int
    note: str


def fit_machine(
    asked: WorkerSpec,
    nodes: int,
    machine: MachineCapacity,
    single_process_cores: int = SINGLE_PROCESS_CORES,
    explicit: Collection[str] = (),
    requested: tuple[WorkerSpec, int] | None = None,
) -> MachineFit:
    """Reduce a request to one machine that runs all its nodes, if it does not fit.

    The number of processes is reduced first:

    - Threads per process that the caller gave are kept if one such process fits the cores. They
      are never increased.
    - Processes that the caller gave are reduced to the number of cores.
    - Values that the caller omitted follow :func:`~hyperplane.sizing.fit.balanced_layout`, with no
      more processes than requested. ``single_process_cores`` is passed to it.
    - If the caller gave the memory of a process, each process keeps it (a single process gets at
      most the memory of the machine), and there are as many processes as fit cores and memory.
    - Otherwise, all processes together have the requested memory, or that of the machine.

    ``asked`` is the layout of one node, and ``explicit`` names the arguments that the caller gave.
    ``requested`` has the layout and the number of nodes for the note, if GPUs have reduced them.

    Raises
    ------
    DoesNotFit
        If there is not enough memory for one worker process.
    """
    threads = nodes * asked.total_threads
    ram = nodes * asked.total_ram
    if threads <= machine.cores and ram <= machine.ram:
        return MachineFit(asked, nodes, "")
    nprocs, nthreads = _layout_within(machine.cores, asked, nodes, single_process_cores, explicit)
    free = min(ram, machine.ram)
    least = min(MIN_RAM, asked.ram_per_proc)
    if free < least:
        raise DoesNotFit(
            "",
            f"{asked}, {format_bytes(ram)} in all",
            f"at most {format_bytes(machine.ram)}, the free memory of this machine less a reserve"
            f"{_describe_open_clusters(machine)}; "
            f"a worker process needs {format_bytes(least)}",
            "free memory, or start the cluster on a larger machine",
        )
    ram_given = "ram_gb_per_proc" in explicit
    if ram_given:
        least = min(asked.ram_per_proc, free)
    most = free // least
    if most < nprocs:
        nprocs = most
        if ram_given and not {"nprocs", "nthreads"} & set(explicit):
            nthreads = min(machine.cores, threads) // nprocs
    share = free // nprocs
    layout = WorkerSpec(
        nprocs=nprocs,
        nthreads=nthreads,
        ram_per_proc=min(share, asked.ram_per_proc) if ram_given else share,
        cores_per_worker=nprocs * nthreads,
        ngpus=nprocs * (asked.ngpus // asked.nprocs),
    )
    worker, count = requested or (asked, nodes)
    note = (
        f"asked {plural(count, 'node')} x {worker} "
        f"({plural(count * worker.total_threads, 'thread')}, "
        f"{format_bytes(count * worker.total_ram)}); this machine gives {layout} "
        f"({plural(machine.cores, 'core')}, {bytes_to_gb(machine.ram):.1f} GB free less a reserve"
        f"{_describe_open_clusters(machine)})"
    )
    if share > layout.ram_per_proc:
        note += "; without ram_gb_per_proc each process would have more memory"
    return MachineFit(layout, 1, note)


def _describe_open_clusters(machine: MachineCapacity) -> str:
    """Return a text with the memory and the names of open clusters; empty if there are none."""
    if not machine.clusters:
        return ""
    noun = "cluster" if len(machine.clusters) == 1 else "clusters"
    return (
        f" and less {format_bytes(machine.reserved_ram)} of the open {noun} "
        f"{', '.join(machine.clusters)}; {CLOSE_ADVICE}"
    )


def _layout_within(
    cores: int,
    asked: WorkerSpec,
    nodes: int,
    single_process_cores: int,
    explicit: Collection[str],
) -> tuple[int, int]:
    """Return processes and threads of all nodes of a request on a number of cores."""
    nprocs = nodes * asked.nprocs
    if nprocs * asked.nthreads <= cores:
        return nprocs, asked.nthreads
    if "nthreads" in explicit:
        nthreads = min(asked.nthreads, cores)
        return min(nprocs, cores // nthreads), nthreads
    # Fewer processes of a given memory would have less memory in all.
    if {"nprocs", "ram_gb_per_proc"} & set(explicit):
        nprocs = min(nprocs, cores)
        return nprocs, min(asked.nthreads, cores // nprocs)
    balanced, nthreads = balanced_layout(cores, single_process_cores)
    if balanced > nprocs:
        return nprocs, min(asked.nthreads, cores // nprocs)
    return balanced, nthreads
