"""GPUs of a request: how processes share them, the nodes for which a machine has enough, faults."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from hyperplane.core.errors import DoesNotFit, Fault
from hyperplane.core.units import plural
from hyperplane.platforms.local.gpus import VARIABLE, Gpus
from hyperplane.sizing import fit
from hyperplane.spec.node_range import most_nodes
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.worker import WorkerSpec


def find_gpu_pool(pools: Iterable[PoolSpec], ngpus: object) -> PoolSpec | None:
    """Return the smallest pool whose nodes have as many GPUs; None if there is none.

    So it is for values that are no number of GPUs, which are a fault of the request.
    """
    if isinstance(ngpus, int) and ngpus > 0:
        with suppress(DoesNotFit):
            return fit.smallest_pool(pools, 0, 0, ngpus)
    return None


def count_gpus(worker: WorkerSpec) -> int:
    """Return the GPUs of one of the processes of a node, which share them equally."""
    return worker.ngpus // worker.nprocs


def find_division_fault(request: ClusterRequest) -> list[Fault]:
    """Return a fault if the worker nodes of one machine cannot have the same number of GPUs."""
    if request.ngpus % request.nprocs == 0:
        return []
    workers = "the number of Ray's worker nodes on each machine"
    allowed = f"a multiple of nprocs = {request.nprocs}, {workers}"
    advice = f"nprocs={request.ngpus} gives each of them one GPU"
    return [Fault("ngpus", str(request.ngpus), allowed, advice)]


def explain_none_visible(gpus: Gpus) -> str:
    """Return why this process may use no GPU."""
    if gpus.installed:
        hidden = plural(gpus.installed, "NVIDIA GPU")
        return f"{VARIABLE}={gpus.limit!r} hides the {hidden} of this machine from this process"
    return (
        "no NVIDIA GPU is visible: neither nvidia-smi nor the driver reports one. A container "
        "must be started with GPUs"
    )


def find_excess_gpus(request: ClusterRequest, gpus: Gpus) -> list[Fault]:
    """Return a fault if a request needs more GPUs than this process may use."""
    count = len(gpus.visible)
    asked_nodes = most_nodes(request.num_workers)
    if asked_nodes * request.ngpus <= count:
        return []
    asked = f"{asked_nodes} x {request.ngpus} = {asked_nodes * request.ngpus}"
    source = "of this machine" if gpus.limit is None else f"of {VARIABLE}={gpus.limit}"
    nodes = count // request.ngpus
    each = count - count % request.nprocs  # the processes of a node share them equally
    advice = f"num_workers={nodes} fits here" if nodes else f"num_workers=1, ngpus={each} fits here"
    allowed = f"at most {count}, the GPUs {source}"
    return [Fault("num_workers x ngpus", asked, allowed, advice if nodes or each else "")]


def fit_gpus(worker: WorkerSpec, nodes: int, count: int) -> tuple[WorkerSpec, int, str]:
    """Reduce the nodes to those that the GPUs suffice for, or to one node with fewer processes.

    Parameters
    ----------
    worker : WorkerSpec
        Layout of a node, whose processes have the same number of GPUs.
    nodes : int
        Requested number of nodes.
    count : int
        GPUs that this process may use; with 0, nothing is reduced.

    Returns
    -------
    worker : WorkerSpec
        Layout of a node.
    nodes : int
        Number of nodes.
    note : str
        How that differs from the request; empty if it does not.

    Examples
    --------
    >>> fit_gpus(WorkerSpec.from_gb(1, 4, 8, 4, ngpus=1), nodes=4, count=2)[1:]
    (2, 'asked 4 nodes x 1 GPU; this machine gives 2 nodes x 1 GPU (2 GPUs for this process)')
    """
    if not count or nodes * worker.ngpus <= count:
        return worker, nodes, ""
    reduced, fitting = worker, count // worker.ngpus
    if not fitting:
        nprocs = max(1, count // (worker.ngpus // worker.nprocs))
        gpus = min(count, nprocs * (worker.ngpus // worker.nprocs))
        reduced, fitting = replace(worker, ngpus=gpus, nprocs=nprocs), 1
    note = (
        f"asked {plural(nodes, 'node')} x {plural(worker.ngpus, 'GPU')}; this machine gives "
        f"{plural(fitting, 'node')} x {plural(reduced.ngpus, 'GPU')} "
        f"({plural(count, 'GPU')} for this process)"
    )
    return reduced, fitting, note
