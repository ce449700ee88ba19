"""Interface of engines: start a finished plan and return a client and a cluster.

``clusters/registry.py`` lists the engines. CONTRIBUTING.md, *Add a platform*, lists the files of a
new one; ``clusters/dask/slurm`` is an example with a batch system.
"""

from __future__ import annotations

import enum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    runtime_checkable,
)

from typing_extensions import TypeVar

from hyperplane.core.errors import Fault
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


class SupportsClose(Protocol):
    """Client or cluster object of any framework."""

    def close(self) -> Any:
        """Release the object; safe to call repeatedly."""
        ...


ClientType = TypeVar("ClientType", bound=SupportsClose, default="Client")
ClusterType = TypeVar("ClusterType", bound=SupportsClose, default="Cluster")


class Feature(enum.Enum):
    """A feature that a request can ask for and that not every engine supports."""

    GPUS = "GPU workers (ngpus)"
    ADAPTIVE = "adaptive clusters (num_workers as a pair)"
    BUDGET = "budget"


class Availability(NamedTuple):
    """Whether an engine can be used on this machine.

    Parameters
    ----------
    usable : bool
        Whether the engine can be used.
    reason : str
        Why it can be used, or why not and what to do about it.
    """

    usable: bool
    reason: str


class SupportedDeployMode(NamedTuple):
    """The only ``scheduler_deploy_mode`` that an engine supports.

    Parameters
    ----------
    mode : {"remote", "local"}
        The supported mode.
    reason : str
        Why the engine supports no other mode.
    """

    mode: Literal["remote", "local"]
    reason: str


class StartedCluster(NamedTuple, Generic[ClientType, ClusterType]):
    """Client and cluster object of a running cluster, in the documented order.

    The types are those of Dask unless a framework names its own.
    """

    client: ClientType
    cluster: ClusterType


class Engine(Protocol):
    """Interface that every engine implements: a framework on a platform.

    The name of an engine of Dask is that of its platform; with other frameworks it is
    ``<framework>:<platform>``. :class:`~hyperplane.clusters.framework.Framework` has the code that
    the engines of one framework share.

    An engine receives a finished plan. It does not read hyperplane's configuration, chooses no
    sizes and uses no other engine. If :meth:`start` fails, it closes everything that it opened and
    raises an :class:`~hyperplane.errors.EngineError`, or a RequestError for values of the plan that
    are checked only then.
    """

    name: ClassVar[str]
    #: Features that a request must not ask for. An engine that supports more than GPUs has also
    #: ``supported``, with those features.
    unsupported: ClassVar[frozenset[Feature]]
    #: Arguments without effect on this engine; the notes of a plan name those that were passed.
    ignored: ClassVar[frozenset[str]]
    settings: ClassVar[type[EngineSettings]]
    #: Whether its nodes are taken from the configured pools.
    uses_pools: ClassVar[bool]

    def available(self) -> Availability:
        """Return whether the engine can be used on this machine, and why."""
        ...

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return the usable cores and memory if one machine limits the engine, else None."""
        ...

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return the faults of a request and of the settings; an empty list if there are none."""
        ...

    def start(self, plan: ClusterPlan) -> StartedCluster[Any, Any]:
        """Start the cluster and return when all its workers have connected.

        Raises
        ------
        RequestError
            If the platform does not accept values of the plan, such as the options of a gateway.
        StartFailed, StartTimeout
            If it did not start; nothing of it is left running.
        """
        ...

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster[Any, Any]:
        """Attach to a running cluster that any process of this user started.

        Parameters
        ----------
        name : str
            Name of the cluster in its plan.
        settings : EngineSettings
            Configured settings of the engine.

        Raises
        ------
        EngineError
            If no such cluster runs (the message lists those that do), or if it does not answer.
        """
        ...


@runtime_checkable
class SupportsLayout(Protocol):
    """Engine that may change the number of worker processes of a node."""

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout that the engine uses, and a note.

        Parameters
        ----------
        asked : WorkerSpec
            Requested layout of a node.

        Returns
        -------
        worker : WorkerSpec
            Layout that a start uses.
        note : str
            How the two differ; empty if they are equal.
        """
        ...


@runtime_checkable
class SupportsNodeFit(Protocol):
    """Engine of one machine that starts fewer nodes if the machine is too small for all."""

    def fit_nodes(self, worker: WorkerSpec, nodes: int) -> tuple[WorkerSpec, int, str]:
        """Return the layout and the number of nodes that fit on this machine, and a note.

        Parameters
        ----------
        worker : WorkerSpec
            Layout of a node, after :meth:`SupportsLayout.layout`.
        nodes : int
            Requested number of nodes.

        Returns
        -------
        worker : WorkerSpec
            Layout that a start uses.
        nodes : int
            Number of nodes that a start uses.
        note : str
            How they differ from the request; empty if all requested nodes fit.
        """
        ...


@runtime_checkable
class SupportsStartLine(Protocol):
    """Engine without pods, whose start prints one line in place of those about pods."""

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of processes that start, and with their hosts."""
        ...


@runtime_checkable
class SupportsRender(Protocol):
    """Engine that starts a cluster from a script, a manifest or a list of commands."""

    def render(self, plan: ClusterPlan) -> str:
        """Return the script, manifest or list of commands of a plan, without any connection."""
        ...


@runtime_checkable
class SupportsPreflight(Protocol):
    """Engine with checks before a start, for :func:`hyperplane.preflight`."""

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of a plan. They start no worker, and leave nothing behind."""
        ...
