"""Worker processes of a cluster, of a plan or of a running one, as a forecast needs them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

import dask

from hyperplane.clusters import registry
from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import plural
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.engine_names import DASK
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import LocalSettings, MachineSettings
from hyperplane.spec.worker import WorkerSpec

#: Dask's limit of rows that wait in a worker until others have received them.
_SHUFFLE_BUFFER = 2**30
#: Dask's setting of the method of shuffles.
SHUFFLE_METHOD = "dataframe.shuffle.method"


@dataclass(frozen=True)
class Layout:
    """Worker processes and their settings.

    Parameters
    ----------
    processes, threads : int
        Number of worker processes, and threads of each.
    limit : int
        Memory limit of a process in bytes; 0 for none.
    spill : float
        Fraction of the limit from which on results are written to disk; 0 if they are not.
    shuffle_buffer : float
        Bytes of shuffled rows that a process holds at most until they are sent.
    settings : mapping
        Dask settings of clients that change the graph.
    environ : mapping of str to str
        Environment variables of worker processes.
    modules : tuple of str
        Modules that worker processes import when they start.
    forked : bool
        Whether worker processes are forked.
    is_local : bool
        Whether they are on this machine.
    runs_main : bool
        Whether they may run the main module of the program, as those of the local engine.
    """

    processes: int
    threads: int
    limit: int = 0
    spill: float = 0.0
    shuffle_buffer: float = _SHUFFLE_BUFFER
    settings: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    forked: bool = False
    is_local: bool = False
    runs_main: bool = False

    def __str__(self) -> str:
        return f"{plural(self.processes, 'worker process')} x {plural(self.threads, 'thread')}"


def find_layout(plan: ClusterPlan | None) -> Layout:
    """Return the layout of a plan, or of the running cluster without one.

    Raises
    ------
    RequestError
        If the value is no plan of a Dask cluster, or if no cluster is running.
    """
    value: object = plan
    advice = "pass plan=hyperplane.plan_cluster(...), or call initialize_cluster() first"
    if value is None:
        client = get_active_client()
        found = None if client is None else _read_cluster(client)
        if found is None:
            allowed = "a ClusterPlan, because no cluster is running"
            raise RequestError([Fault("plan", "None", allowed, advice)])
        return found
    if not isinstance(value, ClusterPlan):
        raise RequestError([Fault("plan", repr(value)[:80], "a ClusterPlan or None", advice)])
    if value.framework != DASK:
        allowed = "the plan of a Dask cluster"
        raise RequestError([Fault("plan.engine", repr(value.engine), allowed)])
    options = DaskOptions.of(value.options)
    tuning, policy = options.tuning, options.memory
    is_local = isinstance(value.settings, LocalSettings)
    forked = is_local and value.settings.start_method == "preload"  # type: ignore[attr-defined]
    buffer = tuning.server.get("distributed.p2p.comm.buffer", _SHUFFLE_BUFFER)
    return Layout(
        processes=value.dask_workers,
        threads=value.worker.nthreads,
        limit=value.worker.ram_per_proc,
        spill=float(policy.spill or 0.0),
        shuffle_buffer=float(buffer) if isinstance(buffer, int | float) else _SHUFFLE_BUFFER,
        settings=tuning.client,
        environ=tuning.environ,
        modules=tuple(value.settings.preload) if forked else (),  # type: ignore[attr-defined]
        forked=forked,
        is_local=isinstance(value.settings, MachineSettings),
        runs_main=is_local,
    )


def find_shuffle_method(layout: Layout) -> str:
    """Return the method of shuffles that a client of the cluster would choose."""
    return str(
        layout.settings.get(SHUFFLE_METHOD) or dask.config.get(SHUFFLE_METHOD, None) or "p2p"
    )


class LayoutTemplate:
    """Makes layouts with other numbers of processes and threads, and other limits.

    Parameters
    ----------
    plan : ClusterPlan or None
        Plan whose settings they have; None for those of a running cluster.
    layout : Layout
        Layout of the plan or of the running cluster.
    """

    def __init__(self, plan: ClusterPlan | None, layout: Layout) -> None:
        self._plan, self._layout = plan, layout
        self._draft = None
        policy = dask.config.get("distributed.worker.memory", {})
        if plan is not None:
            self._draft = registry.FRAMEWORKS.load(DASK)().draft_options(plan.request)
            policy = DaskOptions.of(plan.options).memory.to_dict()
        fractions = [policy.get(name) for name in ("spill", "pause", "terminate")]
        #: Fraction of the limit of a process from which on it writes results to disk; if it does
        #: not, that from which on it starts no tasks.
        self.usable = next((float(each) for each in fractions if each), 1.0)

    def make_layout(self, worker: WorkerSpec, nodes: int) -> Layout:
        """Return the layout of nodes with these worker processes."""
        if self._plan is None or self._draft is None:
            processes = nodes * worker.nprocs
            return replace(
                self._layout, processes=processes, threads=worker.nthreads,
                limit=worker.ram_per_proc,
            )  # fmt: skip
        options = self._draft.for_layout(worker, nodes)
        return find_layout(replace(self._plan, worker=worker, nodes=nodes, options=options))


def _read_cluster(client: Any) -> Layout | None:
    """Return the layout of a client's cluster; None if it has no workers."""
    found = client.scheduler_info(n_workers=-1)["workers"]
    workers = list(found.values())
    if not workers:
        return None
    spill = dask.config.get("distributed.worker.memory.spill", 0.0)
    return Layout(
        processes=len(workers),
        threads=max(worker["nthreads"] for worker in workers),
        limit=min(worker["memory_limit"] or 0 for worker in workers),
        spill=float(spill or 0.0),
        is_local=all(map(_is_local, found)),
    )


def _is_local(address: str) -> bool:
    """Return whether a worker's address can only be reached on this machine."""
    scheme, _, place = address.rpartition("://")
    with suppress(ValueError):  # a name of a host
        return scheme == "inproc" or ip_address(place.rpartition(":")[0].strip("[]")).is_loopback
    return False
