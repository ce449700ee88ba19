"""What will be started, worked out before anything is."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings
from hyperplane.spec.tuning import Tuning
from hyperplane.spec.worker import WorkerSpec
from hyperplane.tables import as_html, as_text
from hyperplane.units import bytes_to_gb, format_bytes, parse_seconds, plural


@dataclass(frozen=True, repr=False)
class ClusterPlan:
    """Everything that will be started, worked out before anything is.

    Parameters
    ----------
    name : str
        Name of the cluster, ``dask-cluster-<uuid4>`` unless the caller chose one.
    engine : str
        The engine that will start it.
    request : ClusterRequest
        What was asked for.
    pool : PoolSpec or None
        The kind of node; None where no pool is as large as the request.
    asked : WorkerSpec
        Layout of one node as asked, with what a pool has filled in.
    worker : WorkerSpec
        Layout of one node as it will be started.
    nodes : int
        Nodes that will be started.
    memory : MemoryPolicy
        Freeze policy of every worker.
    settings : EngineSettings
        The engine's own settings, from the configuration.
    notes : tuple of str
        What a reader should know: choices made, and what differs from the request.
    fit_note : str
        The note that says what was asked and what is given; empty when they are the same.
    alerts : tuple of str
        Those of the notes that a start prints on standard error, one line each.
    tuning : Tuning
        Settings of Dask that make plain Dask code cheaper; prints as a list.
    """

    name: str
    engine: str
    request: ClusterRequest
    pool: PoolSpec | None
    asked: WorkerSpec
    worker: WorkerSpec
    nodes: int
    memory: MemoryPolicy
    settings: EngineSettings
    notes: tuple[str, ...] = ()
    fit_note: str = ""
    alerts: tuple[str, ...] = ()
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def dask_workers(self) -> int:
        """Worker processes of the whole cluster: nodes x nprocs."""
        return self.nodes * self.worker.nprocs

    @property
    def total_threads(self) -> int:
        """Threads of the whole cluster."""
        return self.nodes * self.worker.total_threads

    @property
    def total_ram(self) -> int:
        """Bytes of all worker processes of the cluster."""
        return self.nodes * self.worker.total_ram

    @property
    def idle_timeout(self) -> float | None:
        """Seconds without use after which the cluster ends; None for never."""
        chosen = self.request.idle_timeout or self.settings.idle_timeout
        return parse_seconds(chosen) if chosen else None

    @property
    def dashboard_port(self) -> int:
        """The port that was asked for; 0 for any."""
        port = self.request.dashboard_port
        return 0 if port == "random" else int(port)

    def rows(self) -> list[tuple[str, str]]:
        """What the plan shows, as labels and texts."""
        asked = plural(self.request.num_workers, "node")
        return [
            ("cluster", self.name),
            ("engine", self.engine),
            ("pool", str(self.pool) if self.pool else "none"),
            ("asked", f"{asked}, each {self.asked}"),
            ("given", f"{plural(self.nodes, 'node')}, each {self.worker}"),
            (
                "total",
                f"{plural(self.dask_workers, 'worker process')}, "
                f"{plural(self.total_threads, 'thread')}, {format_bytes(self.total_ram)}",
            ),
            ("memory policy", str(self.memory)),
            ("tuning", self.tuning.summary()),
            *(("note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able values."""
        return {
            "name": self.name,
            "engine": self.engine,
            "pool": self.pool.model_dump() if self.pool else None,
            "nodes": self.nodes,
            "worker": self.worker.to_dict(),
            "dask_workers": self.dask_workers,
            "total_threads": self.total_threads,
            "total_ram_gb": bytes_to_gb(self.total_ram),
            "memory": self.memory.to_dict(),
            "tuning": self.tuning.model_dump(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.rows())


def new_cluster_name() -> str:
    """A name that no other cluster has."""
    return f"dask-cluster-{uuid.uuid4()}"
