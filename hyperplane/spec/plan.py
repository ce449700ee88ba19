"""Plan of a cluster: engine, pool, layout and settings, computed before the start."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hyperplane.core.html_output import make_bar, make_output, make_rows
from hyperplane.core.public_calls import warn_caller
from hyperplane.core.text_tables import as_text
from hyperplane.core.units import bytes_to_gb, format_bytes, parse_seconds, plural
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.engine_names import DASK, framework_of
from hyperplane.spec.framework_options import FrameworkOptions
from hyperplane.spec.memory import MemoryPolicy
from hyperplane.spec.node_range import most_nodes
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, PreflightSettings, StartupSettings
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.spec.tuning import Tuning


@dataclass(frozen=True, repr=False)
class ClusterPlan:
    """Engine, pool, layout and settings of a cluster that :func:`hyperplane.start` can start.

    Settings that only one framework has are in ``options``, whose type belongs to that framework.

    Parameters
    ----------
    name : str
        Name of the cluster, ``<framework>-cluster-<uuid4>`` unless the caller chose one.
    engine : str
        Name of the engine that starts the cluster.
    request : ClusterRequest
        The checked request.
    pool : PoolSpec or None
        Type of node; None if no pool is as large as the request.
    asked : WorkerSpec
        Requested layout of one node, completed with values of the pool.
    worker : WorkerSpec
        Layout of one node that is started.
    nodes : int
        Number of nodes that are started.
    settings : EngineSettings
        Settings of the engine, from the configuration and ``engine_options``.
    options : FrameworkOptions
        Settings of the engine's framework; for Dask a ``DaskOptions`` with the memory
        policy and the tuning.
    notes : tuple of str
        Choices made by the planner, and differences from the request.
    fit_note : str
        The note on how the layout differs from the request; empty if it does not.
    alerts : tuple of str
        The notes that a start prints to standard error, one line each.
    max_nodes : int or None
        Most nodes of an adaptive cluster; None if their number is fixed.
    pools : tuple of PoolSpec
        Pools that could be chosen instead; empty for engines without pools.

    Examples
    --------
    >>> import hyperplane
    >>> plan = hyperplane.plan_cluster(num_workers=2, pool="8_8", nprocs=2, engine="local")
    >>> plan.asked.nprocs, plan.pool.name
    (2, '8_8')
    """

    name: str
    engine: str
    request: ClusterRequest
    pool: PoolSpec | None
    asked: WorkerSpec
    worker: WorkerSpec
    nodes: int
    settings: EngineSettings
    options: FrameworkOptions = field(default_factory=FrameworkOptions)
    notes: tuple[str, ...] = ()
    fit_note: str = ""
    alerts: tuple[str, ...] = ()
    max_nodes: int | None = None
    pools: tuple[PoolSpec, ...] = ()

    @property
    def framework(self) -> str:
        """Name of the framework that the engine starts, such as ``dask``."""
        return framework_of(self.engine)

    @property
    def memory(self) -> MemoryPolicy:
        """Memory policy of a Dask cluster; use ``options.memory`` instead."""
        memory: MemoryPolicy = self._get_moved("memory")
        return memory

    @property
    def tuning(self) -> Tuning:
        """Tuning of a Dask cluster; use ``options.tuning`` instead."""
        tuning: Tuning = self._get_moved("tuning")
        return tuning

    def _get_moved(self, name: str) -> Any:
        """Return an attribute that moved to ``options`` in version 0.2."""
        if not hasattr(self.options, name):
            raise AttributeError(f"a plan for engine {self.engine} has no attribute {name!r}")
        warn_caller(f"ClusterPlan.{name} moved to ClusterPlan.options.{name}", FutureWarning)
        return getattr(self.options, name)

    @property
    def dask_workers(self) -> int:
        """Number of worker processes of the cluster: nodes x nprocs."""
        return self.nodes * self.worker.nprocs

    @property
    def total_threads(self) -> int:
        """Number of threads of the cluster."""
        return self.nodes * self.worker.total_threads

    @property
    def total_ram(self) -> int:
        """Memory of all worker processes of the cluster, in bytes."""
        return self.nodes * self.worker.total_ram

    @property
    def idle_timeout(self) -> float | None:
        """Seconds without use after which the cluster closes; None for never."""
        chosen = self.request.idle_timeout or self.settings.idle_timeout
        # Settings accept zero in several forms, such as "0s".
        return (parse_seconds(chosen) or None) if chosen else None

    @property
    def stall_timeout(self) -> float | None:
        """Seconds without progress after which tasks of a Dask cluster end; None for never."""
        chosen: str | float | None = self.request.stall_timeout
        if chosen is None and isinstance(self.settings, StartupSettings):
            chosen = self.settings.stall_timeout
        return (parse_seconds(chosen) or None) if chosen else None

    @property
    def oom(self) -> str:
        """What happens to tasks whose worker has run out of memory: ``retry`` or ``raise``."""
        if self.request.oom is not None or not isinstance(self.settings, StartupSettings):
            return self.request.oom or "raise"
        return self.settings.oom

    @property
    def preflight(self) -> bool:
        """Whether the engine checks before a start what would make it fail."""
        if self.request.preflight is not None or not isinstance(self.settings, PreflightSettings):
            return self.request.preflight is not False
        return self.settings.preflight

    @property
    def dashboard_port(self) -> int:
        """Requested port of the dashboard; 0 for any free port."""
        port = self.request.dashboard_port
        return 0 if port == "random" else int(port)

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed plan: labels and texts."""
        requested = _describe_nodes(int(self.request.num_workers), self.request.num_workers)
        return [
            ("cluster", self.name),
            ("engine", self.engine),
            ("pool", str(self.pool) if self.pool else "none"),
            ("asked", f"{requested}, each {self.asked}"),
            ("given", f"{_describe_nodes(self.nodes, self.max_nodes)}, each {self.worker}"),
            (
                "total",
                f"{plural(self.dask_workers, 'worker process')}, "
                f"{plural(self.total_threads, 'thread')}, {format_bytes(self.total_ram)}"
                + (" at the start" if self.max_nodes is not None else ""),
            ),
            *([("budget", str(self.request.budget))] if self.request.budget is not None else []),
            *(
                [("stall timeout", f"{parse_seconds(self.request.stall_timeout):g} s")]
                if self.request.stall_timeout is not None
                else []
            ),
            *([("oom", self.request.oom)] if self.request.oom is not None else []),
            *([("preflight", "no")] if self.request.preflight is False else []),
            *self.options.rows(),
            *(("note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON can represent."""
        return {
            "name": self.name,
            "engine": self.engine,
            "pool": self.pool.model_dump() if self.pool else None,
            "nodes": self.nodes,
            **({} if self.max_nodes is None else {"max_nodes": self.max_nodes}),
            "worker": self.worker.to_dict(),
            "dask_workers": self.dask_workers,
            "total_threads": self.total_threads,
            "total_ram_gb": bytes_to_gb(self.total_ram),
            **self.options.to_dict(),
            "notes": list(self.notes),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled plan; those of version 0.1 have no ``options``."""
        if "options" not in state:
            options = DaskOptions(state.pop("memory"), state.pop("tuning"))
            state = {**state, "options": options}
        vars(self).update(state)

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return make_output(make_rows([*self.rows(), *self._share_rows()]))

    def _share_rows(self) -> list[tuple[str, str]]:
        """Return the threads and the memory as bars, as shares of what was requested."""
        nodes = max(1, int(self.request.num_workers))
        shares = (
            ("threads", self.total_threads, nodes * self.asked.total_threads, str),
            ("RAM", self.total_ram, nodes * self.asked.total_ram, format_bytes),
        )
        return [
            (label, make_bar(given / asked, f"{show(given)} of {show(asked)} requested"))
            for label, given, asked, show in shares
        ]


def _describe_nodes(nodes: int, maximum: int | None) -> str:
    """Return a number of nodes, or the least and the most of an adaptive cluster."""
    most = nodes if maximum is None else most_nodes(maximum)
    return plural(nodes, "node") if most == nodes else f"{nodes} to {plural(most, 'node')}"


def new_cluster_name(framework: str = DASK) -> str:
    """Return a unique name for a cluster of a framework."""
    return f"{framework}-cluster-{uuid.uuid4()}"


def _accept_former_arguments(create: Callable[..., None]) -> Callable[..., None]:
    """Accept the arguments ``memory`` and ``tuning`` of version 0.1, which are options of Dask."""

    @functools.wraps(create)
    def init(self: ClusterPlan, *args: Any, **kwargs: Any) -> None:
        if len(args) > 7 and isinstance(args[7], MemoryPolicy):
            order = ("memory", "settings", "notes", "fit_note", "alerts", "tuning")
            kwargs.update(zip(order, args[7:], strict=False))  # in the order of version 0.1
            args = args[:7]
        former = {name: kwargs.pop(name) for name in ("memory", "tuning") if name in kwargs}
        if former:
            names = " and ".join(former)
            warn_caller(f"{names} of ClusterPlan moved to options=DaskOptions(...)", FutureWarning)
            kwargs["options"] = replace(kwargs.get("options") or DaskOptions(), **former)
        create(self, *args, **kwargs)

    return init


# Not a method of the class, because dataclass generates __init__; replace(plan, ...) calls it, too.
ClusterPlan.__init__ = _accept_former_arguments(ClusterPlan.__init__)  # type: ignore[method-assign]
