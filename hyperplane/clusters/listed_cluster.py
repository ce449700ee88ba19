"""A cluster that a platform lists, whichever machine has started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hyperplane.spec.settings import EngineSettings


@dataclass(frozen=True)
class ListedCluster:
    """A cluster of this user that the platform of an engine lists.

    Parameters
    ----------
    name, engine : str
        Names of the cluster and of its engine, for ``get_cluster``. A gateway's clusters have the
        names that the gateway gave.
    where : str
        Where it runs: a namespace, the address of a gateway, or Slurm.
    status : str
        Its status in the words of the platform.
    started : str
        When it was started, as an ISO 8601 time; empty if that is unknown.
    jobs : tuple of str
        IDs of its jobs of Slurm; empty on other platforms.
    shared_owner : str
        Name of its owner, if other users may have the same name, so that it may be theirs.
    """

    name: str
    engine: str
    where: str
    status: str
    started: str = ""
    jobs: tuple[str, ...] = ()
    shared_owner: str = ""


@runtime_checkable
class SupportsListing(Protocol):
    """Engine whose platform knows the clusters of this user, whichever machine started them."""

    def list_clusters(self, settings: Any, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user; an empty list if the engine is not configured.

        Parameters
        ----------
        settings : EngineSettings
            Configured settings of the engine.
        seconds : float
            Time within which the platform has to answer.

        Raises
        ------
        EngineError
            If the platform does not answer or refuses the request.
        """
        ...

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Make the platform end a cluster; raise an EngineError if it refuses."""
        ...
