"""``replace=True``: close the clusters that earlier runs of a cell or line have started."""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from hyperplane.clusters import records, registry
from hyperplane.clusters.engine import StartedCluster, SupportsClose
from hyperplane.clusters.framework import RUNNING, Framework
from hyperplane.core.notebook_output import find_cell_id
from hyperplane.core.tracebacks import is_internal
from hyperplane.spec.plan import ClusterPlan


class CodeLocation(NamedTuple):
    """A notebook cell or a line of a file, and the execution count of the cell.

    Clusters that one execution of a cell starts do not replace each other. ``execution_count`` is
    0 outside notebooks.
    """

    code: str
    execution_count: int


class _StartedCluster(NamedTuple):
    location: CodeLocation
    name: str
    framework: Framework
    client: weakref.ref[SupportsClose]
    cluster: weakref.ref[SupportsClose]


_started: list[_StartedCluster] = []


def current_location() -> CodeLocation:
    """Return the location of the nearest caller outside this package."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and is_internal(frame):
        frame = frame.f_back
    if frame is None:
        return CodeLocation("", 0)
    cell, execution_count = _notebook_cell()
    if cell:
        return CodeLocation(cell, execution_count)
    file = frame.f_code.co_filename
    # ipykernel derives the file name of a cell from its text; the line is relative to the cell.
    return CodeLocation(f"{file}:{frame.f_lineno}", execution_count)


def _notebook_cell() -> tuple[str, int]:
    """Return the id of the running cell, which editing does not change, and its execution count."""
    shell: Any = None
    if "IPython" in sys.modules:
        with suppress(Exception):
            shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return "", 0
    return find_cell_id(shell), int(getattr(shell, "execution_count", 0) or 0)


def remember_cluster(
    location: CodeLocation, plan: ClusterPlan, started: StartedCluster[Any, Any]
) -> None:
    """Remember a cluster that a call has started, and forget closed ones."""
    _started[:] = [each for each in _started if _is_open(each)]
    framework = registry.load_framework(plan.engine)
    client, cluster = weakref.ref(started.client), weakref.ref(started.cluster)
    _started.append(_StartedCluster(location, plan.name, framework, client, cluster))


def _is_open(entry: _StartedCluster) -> bool:
    cluster = entry.cluster()
    return cluster is not None and entry.framework.status(cluster) == RUNNING


def close_previous_clusters(location: CodeLocation, name: str | None) -> list[str]:
    """Close clusters of earlier executions of a location, or of a name; return their names.

    The result has only clusters that were open.
    """
    closed = []
    for entry in list(_started):
        is_earlier = entry.location.code == location.code and (
            location.execution_count == 0
            or entry.location.execution_count < location.execution_count
        )
        if not (is_earlier or entry.name == name):
            continue
        _started.remove(entry)
        if _is_open(entry):
            closed.append(entry.name)
        for closable in (entry.client(), entry.cluster()):
            if closable is not None:
                closable.close()
    if name is not None and name not in closed:
        for record in records.read_all():
            if record.name == name:
                _close_in_other_process(record)
                closed.append(name)
    return closed


def _close_in_other_process(record: records.ClusterRecord) -> None:
    """Close a cluster that another process of this user runs."""
    from hyperplane import config

    engine = registry.load(record.engine)
    settings = config.engine_settings(record.engine, engine.settings)
    client, cluster = engine.connect(record.name, settings)
    client.close()
    cluster.close()
