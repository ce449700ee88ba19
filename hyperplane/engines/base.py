"""What an engine is: it starts a finished plan and returns Dask's own objects."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from hyperplane.errors import Fault
from hyperplane.spec.capacity import Capacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


class Feature(enum.Enum):
    """Something that a request may ask for and an engine may not have."""

    GPUS = "GPU workers (ngpus)"


class Availability(NamedTuple):
    """Whether an engine can be used here.

    Parameters
    ----------
    usable : bool
        Whether it can.
    reason : str
        Why, or why not and what to do about it.
    """

    usable: bool
    reason: str


class SchedulerPlace(NamedTuple):
    """Where the scheduler of an engine runs that has no choice (``scheduler_deploy_mode``).

    Parameters
    ----------
    mode : {"remote", "local"}
        The only one.
    reason : str
        Why.
    """

    mode: Literal["remote", "local"]
    reason: str


class StartedCluster(NamedTuple):
    """A running cluster: the client and the cluster object of Dask, in the documented order."""

    client: Client
    cluster: Cluster


class Engine(Protocol):
    """The seam between plans and the world.

    An engine receives a finished plan; it reads none of our configuration, chooses no size and
    knows no other engine. If :meth:`start` fails midway it closes what it opened and raises an
    :class:`~hyperplane.errors.EngineError`.
    """

    name: ClassVar[str]
    #: Asking for one of these is a fault.
    unsupported: ClassVar[frozenset[Feature]]
    #: Arguments that mean nothing here; a plan notes that they were given.
    ignored: ClassVar[frozenset[str]]
    settings: ClassVar[type[EngineSettings]]
    #: Whether its nodes are of the configured pools; else they are as large as they are.
    uses_pools: ClassVar[bool]

    def available(self) -> Availability:
        """Whether the engine can be used here, and why."""
        ...

    def capacity(self, settings: EngineSettings) -> Capacity | None:
        """What there is to give, for an engine that is bound to one machine; else None."""
        ...

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """What the engine cannot give as it is set up; empty when it can be planned."""
        ...

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start the cluster and return when its workers are there."""
        ...

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a running cluster that any process of this user started."""
        ...


@runtime_checkable
class SupportsLayout(Protocol):
    """An engine with a rule of its own for the worker processes of a node."""

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """The layout that it gives instead, and a note that says so; empty when it is as asked."""
        ...


@runtime_checkable
class SupportsNodeFit(Protocol):
    """An engine of one machine that starts fewer nodes where the machine has not enough for all."""

    def fit_nodes(self, worker: WorkerSpec, nodes: int) -> tuple[WorkerSpec, int, str]:
        """The layout and nodes that the machine can hold, and a note; empty when it holds all."""
        ...


@runtime_checkable
class SupportsStartLine(Protocol):
    """An engine without pods: one line says what it starts and where."""

    def start_line(self, plan: ClusterPlan) -> str:
        """What a start of the plan starts, in one line."""
        ...


@runtime_checkable
class SupportsRender(Protocol):
    """An engine that starts a cluster from a script, a manifest or a list of commands."""

    def render(self, plan: ClusterPlan) -> str:
        """What would start the plan, as text; nothing is contacted."""
        ...
