"""The calculator's answer as people use it: read, drawn, kept as JSON or started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperplane.public_calls import check_call
from hyperplane.sizing import explain
from hyperplane.sizing.measure import DataSize
from hyperplane.sizing.recommend import PoolOption, SizingAnswer, SizingQuestion
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec
from hyperplane.tables import as_html, as_text
from hyperplane.units import bytes_to_gb

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class SizingAdvice:
    """How large a cluster to start, and why.

    Nodes and memory are those of one cluster. When the data is cut into pieces
    (``pieces > 1``) that is the cluster for one piece; each piece is a job of its own.

    Parameters
    ----------
    question : Question
        What was asked.
    found : Answer
        What the rules say.
    measured : Measured
        The size of the data and where it comes from.
    """

    question: SizingQuestion
    found: SizingAnswer
    measured: DataSize

    @property
    def data_gb(self) -> float:
        """Uncompressed data of all pieces, in GB."""
        return bytes_to_gb(self.measured.size)

    @property
    def memory_gb(self) -> float:
        """Memory that one cluster needs, in GB."""
        return bytes_to_gb(self.found.memory)

    @property
    def given_gb(self) -> float:
        """Memory that the workers of one cluster really have, in GB."""
        return bytes_to_gb(self.found.option.total_ram)

    @property
    def pool(self) -> PoolSpec:
        """The kind of node to use."""
        return self.found.option.pool

    @property
    def nodes(self) -> int:
        """How many nodes one cluster needs."""
        return self.found.option.nodes

    @property
    def worker(self) -> WorkerSpec:
        """The layout of worker processes on each node."""
        return self.found.option.worker

    @property
    def pieces(self) -> int:
        """Into how many jobs the data is best cut; 1 means not at all."""
        return self.found.pieces

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each choice."""
        return self.found.reasons

    @property
    def comfortable(self) -> int:
        """How many nodes meet the published rules of thumb on the room that a job wants."""
        return self.found.comfortable.nodes

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is unusual about the job, one line each, starting with the name of the rule."""
        return self.found.warnings

    @property
    def alternatives(self) -> tuple[PoolOption, ...]:
        """The other pools, each with its nodes and totals."""
        return self.found.alternatives

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the nodes of one cluster for an hour, if the pool carries one."""
        return self.found.option.cost_per_hour

    def as_arguments(self) -> dict[str, Any]:
        """The advice as arguments of ``initialize_cluster``."""
        # A pool that the caller brought need not be among those of the configuration.
        pool = self.question.pool or self.pool.name
        return {"num_workers": self.nodes, "pool": pool, **self.worker.to_dict()}

    @check_call(outcome="nothing was started")
    def start(self, **options: Any) -> tuple[Client, Cluster]:
        """Start the cluster for one piece.

        Parameters
        ----------
        **options
            Further arguments of ``initialize_cluster``, or others in place of the advised ones.

        Returns
        -------
        client : distributed.Client
        cluster : distributed.deploy.cluster.Cluster
        """
        from hyperplane.cluster import initialize_cluster

        return initialize_cluster(self, **options)

    @check_call
    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw memory needed against memory given, for each pool.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure without it.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingPackage
            When matplotlib is not installed (extra ``plot``).
        """
        from hyperplane.sizing.picture import draw

        return draw(self, ax)

    def rows(self) -> list[tuple[str, str]]:
        """What the advice shows, as labels and texts."""
        return explain.rows(self)

    def to_dict(self) -> dict[str, Any]:
        """The advice as JSON-able values."""
        return {
            "data_gb": self.data_gb,
            "measured": self.measured.how,
            "operation": self.question.operation,
            "weight": self.found.weight,
            "multiplier": self.found.multiplier,
            "tasks": self.question.tasks,
            "basis": self.question.basis,
            "memory_gb": self.memory_gb,
            "given_gb": self.given_gb,
            "pieces": self.pieces,
            **self.found.option.to_dict(),
            "comfortable_nodes": self.comfortable,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "alternatives": [other.to_dict() for other in self.alternatives],
        }

    def __str__(self) -> str:
        return as_text(self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.rows())
