"""The clusters that this program has started, by the place in it, for ``replace=True``."""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from hyperplane.engines import records, registry
from hyperplane.engines.base import Started

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


class CodeLocation(NamedTuple):
    """A place in a program: a cell of a notebook, or a line of a file.

    Parameters
    ----------
    place : str
        The cell or line.
    turn : int
        Number of the execution of a cell: clusters of the same execution belong together.
    """

    code: str
    execution_count: int


class _StartedCluster(NamedTuple):
    location: CodeLocation
    name: str
    client: weakref.ref[Client]
    cluster: weakref.ref[Cluster]


_started: list[_StartedCluster] = []


def current_location() -> CodeLocation:
    """The place outside this package that the present call comes from."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    if frame is None:
        return CodeLocation("", 0)
    cell, turn = _notebook_cell()
    if cell:
        return CodeLocation(cell, turn)
    file = frame.f_code.co_filename
    # ipykernel names the code of a cell after its text; the line is that within the cell.
    return CodeLocation(f"{file}:{frame.f_lineno}", turn)


def _is_internal(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "hyperplane"


def _notebook_cell() -> tuple[str, int]:
    """The id of the cell that runs, which stays as the cell is edited, and its execution."""
    shell: Any = None
    if "IPython" in sys.modules:
        with suppress(Exception):
            shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return "", 0
    cell = ""
    with suppress(Exception):  # not every front end says it
        cell = str(shell.get_parent()["metadata"]["cellId"])
    return cell, int(getattr(shell, "execution_count", 0) or 0)


def remember_cluster(location: CodeLocation, name: str, started: Started) -> None:
    """Note the cluster that a call has started, and forget those that have ended."""
    _started[:] = [each for each in _started if _is_open(each)]
    _started.append(
        _StartedCluster(location, name, weakref.ref(started.client), weakref.ref(started.cluster))
    )


def _is_open(entry: _StartedCluster) -> bool:
    cluster = entry.cluster()
    return cluster is not None and cluster.status.name == "running"


def close_previous_clusters(location: CodeLocation, name: str | None) -> list[str]:
    """Close what earlier executions of the place have started, or the cluster of a name.

    Returns
    -------
    list of str
        Names of the clusters that were open.
    """
    closed = []
    for entry in list(_started):
        earlier = entry.location.code == location.code and (
            location.execution_count == 0
            or entry.location.execution_count < location.execution_count
        )
        if not (earlier or entry.name == name):
            continue
        _started.remove(entry)
        closed += [entry.name] * _is_open(entry)
        for each in (entry.client(), entry.cluster()):
            if each is not None:
                each.close()
    if name is not None and name not in closed:
        for record in records.read_all():
            if record.name == name:
                _close_of_other_process(record)
                closed.append(name)
    return closed


def _close_of_other_process(record: records.Record) -> None:
    """Close a cluster that another program of this user runs."""
    from hyperplane import config

    engine = registry.load(record.engine)
    settings = config.engine_settings(record.engine, engine.settings)
    client, cluster = engine.connect(record.name, settings)
    client.close()
    cluster.close()
