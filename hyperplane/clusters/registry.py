"""Registry of the engines, which are imported on first use."""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import Any

from hyperplane.clusters.engine import Engine
from hyperplane.core.errors import Fault, RequestError

#: Name of an engine -> module and name of its class.
BUILT_IN = {
    "local": "hyperplane.clusters.dask.local.engine:LocalEngine",
    "ssh": "hyperplane.clusters.dask.ssh.engine:SshEngine",
    "slurm": "hyperplane.clusters.dask.slurm.engine:SlurmEngine",
    "kubernetes": "hyperplane.clusters.dask.kubernetes.engine:KubernetesEngine",
    "gateway": "hyperplane.clusters.dask.gateway.engine:GatewayEngine",
    "cuda": "hyperplane.clusters.dask.cuda.engine:CudaEngine",
}

#: Entry-point group in which other packages register engines; they cannot replace built-in ones.
GROUP = "hyperplane.engines"


def names() -> list[str]:
    """Return the names of all engines, built-in ones first."""
    return [*BUILT_IN, *(p.name for p in entry_points(group=GROUP) if p.name not in BUILT_IN)]


def load(name: Any) -> Engine:
    """Return the engine of a name; raise a RequestError with similar names if there is none."""
    if not isinstance(name, str):
        allowed = "a name, as text: " + ", ".join(names())
        raise RequestError([Fault("engine", repr(name)[:80], allowed)])
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        engine: Engine = getattr(importlib.import_module(module), attribute)()
        return engine
    for point in entry_points(group=GROUP):
        if point.name == name:
            found: Engine = point.load()()
            return found
    near = difflib.get_close_matches(name, names(), n=2)
    advice = f"did you mean {' or '.join(near)}?" if near else ""
    raise RequestError([Fault("engine", repr(name), "auto, " + ", ".join(names()), advice)])
