"""A request cut to one machine: what the caller gave stays, what was left open is laid out anew."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from hyperplane.errors import DoesNotFit
from hyperplane.sizing.fit import SINGLE_PROCESS_CORES, balanced_layout
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.worker import WorkerSpec
from hyperplane.units import bytes_to_gb, format_bytes, plural

#: Less than this is what an idle worker process takes already (measured 130 to 160 MB).
MIN_RAM = 200_000_000


class MachineFit(NamedTuple):
    """A request cut to one machine.

    Parameters
    ----------
    worker : WorkerSpec
        Layout for the machine.
    nodes : int
        How many times the layout is started on it.
    note : str
        What was asked and what is given, in one line; empty when they are the same.
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
) -> MachineFit:
    """Keep a request if one machine can hold all its nodes, or cut it to the machine.

    The number of processes is cut first. Threads that the caller gave stay as they are while one
    process of them fits the cores, and are never raised; processes that the caller gave stay as
    many as there are cores for. What the caller left open is laid out by
    :func:`~hyperplane.sizing.fit.balanced_layout`, in no more processes than asked, except where
    the caller gave the memory of a process: that is what each one gets, or all that there is for
    a single one, and as many processes are kept as there are cores. Otherwise all processes
    together keep the memory asked for, or what the machine has to give.

    Parameters
    ----------
    asked : WorkerSpec
        Layout of one node.
    nodes : int
        Nodes asked for, all of which are this machine.
    machine : MachineCapacity
        What the machine has to give.
    single_process_cores : int
        Up to so many cores one process takes them all, where the layout is left open.
    explicit : collection of str
        Names of the arguments that the caller gave; the others may change freely.

    Raises
    ------
    DoesNotFit
        When there is not memory enough for one worker process.
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
            f"what this machine has free, less a reserve{_describe_open_clusters(machine)}: "
            f"{format_bytes(machine.ram)}; a worker process needs {format_bytes(least)}",
            "close something, or start the cluster on a larger machine",
        )
    ram_given = "ram_gb_per_proc" in explicit
    if ram_given:
        least = min(asked.ram_per_proc, free)
    room = free // least
    if room < nprocs:
        nprocs = room
        if ram_given and not {"nprocs", "nthreads"} & set(explicit):
            nthreads = min(machine.cores, threads) // nprocs
    share = free // nprocs
    given = WorkerSpec(
        nprocs=nprocs,
        nthreads=nthreads,
        ram_per_proc=min(share, asked.ram_per_proc) if ram_given else share,
        cores_per_worker=nprocs * nthreads,
        ngpus=asked.ngpus,
    )
    note = (
        f"asked {plural(nodes, 'node')} x {asked} ({plural(threads, 'thread')}, "
        f"{format_bytes(ram)}); this machine gives {given} "
        f"({plural(machine.cores, 'core')}, {bytes_to_gb(machine.ram):.1f} GB free less a reserve"
        f"{_describe_open_clusters(machine)})"
    )
    if share > given.ram_per_proc:
        note += "; ram_gb_per_proc is kept as given, without it there is more for each process"
    return MachineFit(given, 1, note)


def _describe_open_clusters(machine: MachineCapacity) -> str:
    """The open clusters that have memory of the machine, in words."""
    if not machine.clusters:
        return ""
    names = ", ".join(machine.clusters)
    verb = "is" if len(machine.clusters) == 1 else "are"
    return (
        f" and less {format_bytes(machine.promised)} of {names}, which {verb} open: "
        "replace=True closes the one that the same cell has started"
    )


def _layout_within(
    cores: int,
    asked: WorkerSpec,
    nodes: int,
    single_process_cores: int,
    explicit: Collection[str],
) -> tuple[int, int]:
    """Processes and threads of all nodes of a request on so many cores of one machine."""
    nprocs = nodes * asked.nprocs
    if nprocs * asked.nthreads <= cores:
        return nprocs, asked.nthreads
    if "nthreads" in explicit:
        nthreads = min(asked.nthreads, cores)
        return min(nprocs, cores // nthreads), nthreads
    if {"nprocs", "ram_gb_per_proc"} & set(explicit):  # fewer processes would be less memory
        nprocs = min(nprocs, cores)
        return nprocs, min(asked.nthreads, cores // nprocs)
    balanced, nthreads = balanced_layout(cores, single_process_cores)
    if balanced > nprocs:
        return nprocs, min(asked.nthreads, cores // nprocs)
    return balanced, nthreads
