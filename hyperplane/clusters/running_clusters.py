"""Find the running clusters of this machine by their records."""

from __future__ import annotations

from hyperplane.clusters import records
from hyperplane.core.errors import EngineError

#: Engine of an error that concerns no single engine.
UNKNOWN_ENGINE = ""


class ClusterNotFound(EngineError):
    """A cluster has ended, or there has never been one of its name."""


def find_engine(name: str) -> str:
    """Return the engine of a cluster that this machine has started.

    Parameters
    ----------
    name : str
        Name of the cluster in its plan, or the gateway's name for it.

    Raises
    ------
    EngineError
        If no cluster of that name runs (the message lists those that do) or if the records of
        clusters cannot be read.
    """
    running = read_running(UNKNOWN_ENGINE)
    for record in running:
        if name in record.names:
            return record.engine
    raise EngineError(
        UNKNOWN_ENGINE,
        f"this machine runs no cluster {name!r}; {describe_running(running)}. For a cluster on "
        "Kubernetes, or one that another machine started, name its engine: "
        f'get_cluster({name!r}, "kubernetes")',
    )


def read_running(engine: str) -> list[records.ClusterRecord]:
    """Return the records of running clusters; raise an EngineError if they cannot be read."""
    try:
        return records.read_all()
    except OSError as error:
        raise EngineError(engine, f"the list of clusters cannot be read: {error}") from error


def describe_running(running: list[records.ClusterRecord]) -> str:
    """Return the names and engines of running clusters, for messages."""
    names = ", ".join(f"{record.name} ({record.engine})" for record in running)
    return f"running: {names or 'none'}"
