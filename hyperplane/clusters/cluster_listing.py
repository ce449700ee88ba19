"""List the clusters of this user on the platforms of all configured engines."""

from __future__ import annotations

import queue
import threading
import time
from typing import NamedTuple

from hyperplane import config
from hyperplane.clusters import records, registry
from hyperplane.clusters.listed_cluster import ListedCluster, SupportsListing
from hyperplane.core.errors import EngineError

#: Seconds within which each platform has to answer.
ANSWER_SECONDS = 5.0
#: Seconds in addition, in which an engine is imported and reports why its platform did not answer.
MARGIN_SECONDS = 2.0


class ClusterListing(NamedTuple):
    """Clusters of all platforms that answered, and a line for each that did not.

    Parameters
    ----------
    clusters : tuple of ListedCluster
        The clusters, by engine and name.
    warnings : tuple of str
        The engines, and why their clusters are missing.
    """

    clusters: tuple[ListedCluster, ...]
    warnings: tuple[str, ...]


def list_clusters(running: list[records.ClusterRecord]) -> ClusterListing:
    """Return the clusters that the platforms list, without those with a record on this machine.

    All platforms are asked at the same time; those that do not answer delay by a few seconds.
    """
    answers: queue.Queue[_EngineAnswer] = queue.Queue()
    waiting = set(registry.ENGINES.names())
    for engine in waiting:
        # Daemons, because a library that does not return must not delay the end of the program.
        threading.Thread(target=lambda name=engine: answers.put(_ask(name)), daemon=True).start()
    clusters: list[ListedCluster] = []
    failures: dict[str, list[str]] = {}
    limit = ANSWER_SECONDS + MARGIN_SECONDS
    deadline = time.monotonic() + limit
    while waiting:
        try:
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        waiting.remove(answer.engine)
        clusters += answer.clusters
        if answer.failure:
            failures.setdefault(answer.failure, []).append(answer.engine)
    if waiting:
        failures[f"no answer within {limit:g} s"] = [*waiting]
    known = {(record.engine, name) for record in running for name in record.names}
    others = [item for item in clusters if (item.engine, item.name) not in known]
    others.sort(key=lambda item: (item.engine, item.name))
    # Engines of several frameworks ask the same platform: one line, whose reason is the same.
    warnings = [f"{', '.join(sorted(names))}: {reason}" for reason, names in failures.items()]
    return ClusterListing(tuple(others), tuple(sorted(warnings)))


class _EngineAnswer(NamedTuple):
    """Clusters of an engine, or why they are unknown."""

    engine: str
    clusters: list[ListedCluster]
    failure: str = ""


def _ask(name: str) -> _EngineAnswer:
    try:
        engine = registry.load(name)
        if not isinstance(engine, SupportsListing):
            return _EngineAnswer(name, [])
        settings = config.engine_settings(name, engine.settings)
        return _EngineAnswer(name, engine.list_clusters(settings, ANSWER_SECONDS))
    except EngineError as error:
        return _EngineAnswer(name, [], " ".join(error.message.split()))
    except Exception as error:  # noqa: BLE001 - an engine of another package may raise any exception
        return _EngineAnswer(name, [], " ".join(f"{type(error).__name__}: {error}".split()))


def stop_listed(cluster: ListedCluster) -> None:
    """Make the platform end a cluster; raise an EngineError if it refuses."""
    engine = registry.load(cluster.engine)
    assert isinstance(engine, SupportsListing)  # noqa: S101 - it has listed the cluster
    engine.stop_listed(cluster, config.engine_settings(cluster.engine, engine.settings))
