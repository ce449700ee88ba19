"""The clusters that this program has started, by the place in it, for ``replace=True``."""

from __future__ import annotations

import sys
import weakref
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from hyperplane.engines import records, registry
from hyperplane.engines.base import StartedCluster

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster


class CallSite(NamedTuple):
    """A place in a program: a cell of a notebook, or a line of a file.

    Parameters
    ----------
    place : str
        The cell or line.
    turn : int
        Number of the execution of a cell: clusters of the same execution belong together.
    """

    place: str
    turn: int


class _Entry(NamedTuple):
    site: CallSite
    name: str
    client: weakref.ref[Client]
    cluster: weakref.ref[Cluster]


_started: list[_Entry] = []


def call_site() -> CallSite:
    """The place outside this package that the present call comes from."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return CallSite("", 0)
    cell, turn = _cell()
    if cell:
        return CallSite(cell, turn)
    file = frame.f_code.co_filename
    # ipykernel names the code of a cell after its text; the line is that within the cell.
    return CallSite(f"{file}:{frame.f_lineno}", turn)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "hyperplane"


def _cell() -> tuple[str, int]:
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


def remember(site: CallSite, name: str, started: StartedCluster) -> None:
    """Note the cluster that a call has started, and forget those that have ended."""
    _started[:] = [each for each in _started if _is_open(each)]
    _started.append(_Entry(site, name, weakref.ref(started.client), weakref.ref(started.cluster)))


def _is_open(entry: _Entry) -> bool:
    cluster = entry.cluster()
    return cluster is not None and cluster.status.name == "running"


def close_previous(site: CallSite, name: str | None) -> list[str]:
    """Close what earlier executions of the place have started, or the cluster of a name.

    Returns
    -------
    list of str
        Names of the clusters that were open.
    """
    closed = []
    for entry in list(_started):
        earlier = entry.site.place == site.place and (site.turn == 0 or entry.site.turn < site.turn)
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
                _close_from_here(record)
                closed.append(name)
    return closed


def _close_from_here(record: records.ClusterRecord) -> None:
    """Close a cluster that another program of this user runs."""
    from hyperplane import config

    engine = registry.load(record.engine)
    settings = config.engine_settings(record.engine, engine.settings)
    client, cluster = engine.connect(record.name, settings)
    client.close()
    cluster.close()
