"""Interface of frameworks: the functions that all engines of one framework share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from hyperplane.clusters.engine import StartedCluster
    from hyperplane.spec.framework_options import FrameworkOptions
    from hyperplane.spec.plan import ClusterPlan
    from hyperplane.spec.request import ClusterRequest
    from hyperplane.spec.worker import WorkerSpec

#: Status of a cluster that can be used, and of one that has ended.
RUNNING, CLOSED = "running", "closed"


class OptionsDraft(NamedTuple):
    """Draft of a framework's section of a plan, written before the layout is known.

    Parameters
    ----------
    for_layout : callable
        Returns the section for the layout of a node and the number of nodes.
    notes, alerts : tuple of str
        Notes of the plan, and those that a start also prints to standard error.
    """

    for_layout: Callable[[WorkerSpec, int], FrameworkOptions]
    notes: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()


class ClusterAddresses(NamedTuple):
    """Addresses of a running cluster; an address that it does not have is empty.

    Parameters
    ----------
    scheduler : str
        Address that clients connect to.
    dashboard : str
        Address of the dashboard for a browser.
    """

    scheduler: str
    dashboard: str


class Framework(Protocol):
    """Interface that every framework implements, once for the engines of all its platforms.

    An engine contains the code for its platform. A framework contains the code for the objects that
    its engines return, for its section of a plan, and for the lines that a start prints.
    """

    name: ClassVar[str]

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the draft of the framework's section of a plan.

        Parameters
        ----------
        request : ClusterRequest
            The checked request.

        Raises
        ------
        RequestError, ConfigError
            With the faults of arguments or settings that only this framework has.
        """
        ...

    def check_process(self) -> None:
        """Raise an EngineError if clusters cannot be used in this process, such as in a fork."""
        ...

    def prepare(self, started: StartedCluster[Any, Any], attached: bool) -> None:
        """Complete the objects that an engine returned, before the caller gets them.

        Parameters
        ----------
        started : StartedCluster
            The objects.
        attached : bool
            Whether the cluster was running before the call.
        """
        ...

    def status(self, cluster: Any) -> str:
        """Return the status of a cluster object, among others ``RUNNING`` and ``CLOSED``."""
        ...

    def addresses(self, started: StartedCluster[Any, Any]) -> ClusterAddresses:
        """Return the addresses of a running cluster."""
        ...

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return the lines about a start whose engine has no ``start_line``."""
        ...

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return the lines about a cluster whose workers are connected."""
        ...


class BaseFramework:
    """Methods of frameworks whose cluster objects have ``status``, ``address`` and ``dashboard``.

    Their engines have a start line, and return complete objects in any process.
    """

    name: ClassVar[str]

    def check_process(self) -> None:
        """Accept every process."""

    def prepare(self, started: StartedCluster[Any, Any], attached: bool) -> None:
        """Leave the objects as the engine returned them."""

    def status(self, cluster: Any) -> str:
        """Return the status of a cluster object."""
        status: str = cluster.status
        return status

    def addresses(self, started: StartedCluster[Any, Any]) -> ClusterAddresses:
        """Return the addresses of the cluster's head and of its dashboard."""
        return ClusterAddresses(started.cluster.address, started.cluster.dashboard)

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return nothing: the engines have a start line."""
        del plan
        return []

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return the line about the dashboard."""
        del plan
        return [self.describe_dashboard(dashboard)] if dashboard else []

    @classmethod
    def describe_dashboard(cls, dashboard: str) -> str:
        """Return the line about the dashboard."""
        return f"{cls.name} dashboard available at {dashboard}"
