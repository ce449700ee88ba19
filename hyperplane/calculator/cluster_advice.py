"""What all advice on the size of a cluster has: a pool, nodes, a layout, and a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from hyperplane.core.public_calls import check_call
from hyperplane.core.text_tables import as_html, as_text
from hyperplane.core.units import bytes_to_gb
from hyperplane.sizing.recommend import PoolOption
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster
    from matplotlib.axes import Axes


class ClusterAdvice(ABC):
    """Advice on the size of a cluster, which prints as a table and can be started."""

    @property
    @abstractmethod
    def option(self) -> PoolOption:
        """The recommended pool, number of nodes and layout."""

    @property
    @abstractmethod
    def alternatives(self) -> tuple[PoolOption, ...]:
        """Other pools and layouts for the same job."""

    @property
    @abstractmethod
    def reasons(self) -> tuple[str, ...]:
        """Reasons for the choices, one line each."""

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """Warnings, one line each."""

    @property
    @abstractmethod
    def memory_gb(self) -> float:
        """Memory that the job needs in one cluster, in GB."""

    @abstractmethod
    def as_arguments(self) -> dict[str, Any]:
        """Return the advice as arguments of ``initialize_cluster``."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return labels and texts: the cluster, reasons, warnings and other options."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the advice as values that JSON can represent."""

    @property
    def pool(self) -> PoolSpec:
        """Type of node to use."""
        return self.option.pool

    @property
    def nodes(self) -> int:
        """Number of nodes that one cluster needs."""
        return self.option.nodes

    @property
    def worker(self) -> WorkerSpec:
        """Layout of worker processes on each node."""
        return self.option.worker

    @property
    def pieces(self) -> int:
        """Number of separate jobs into which the data is split."""
        return 1

    @property
    def given_gb(self) -> float:
        """Memory that the workers of one cluster have, in GB."""
        return bytes_to_gb(self.option.total_ram)

    @property
    def cost_per_hour(self) -> float | None:
        """Price of one cluster for an hour; None if the pool has no price."""
        return self.option.cost_per_hour

    @check_call(outcome="nothing was started")
    def start(self, **options: Any) -> tuple[Client, Cluster]:
        """Start the advised cluster.

        Parameters
        ----------
        **options
            Arguments of ``initialize_cluster``, which override the recommended ones.

        Returns
        -------
        client : distributed.Client
        cluster : distributed.deploy.cluster.Cluster
        """
        from hyperplane.cluster import initialize_cluster

        return initialize_cluster(self, **options)

    def list_pools(self) -> list[PoolOption]:
        """Return one option of each pool: the recommended one first, then the alternatives."""
        options: dict[str, PoolOption] = {}
        for option in (self.option, *self.alternatives):
            options.setdefault(option.pool.name, option)
        return list(options.values())

    @check_call
    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the memory of each pool's cluster and the memory needed.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingPackage
            If matplotlib is not installed (extra ``plot``).
        """
        from hyperplane.calculator.plot import draw

        return draw(self.list_pools(), self.memory_gb, ax)

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.rows())
