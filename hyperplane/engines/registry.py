"""Which engines there are: strings, imported on first use."""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import Any

from hyperplane.engines.base import Engine
from hyperplane.errors import Fault, RequestError

#: Engine -> where its class is.
BUILT_IN = {
    "local": "hyperplane.engines.local.engine:LocalEngine",
    "ssh": "hyperplane.engines.ssh.engine:SshEngine",
    "slurm": "hyperplane.engines.slurm.engine:SlurmEngine",
    "kubernetes": "hyperplane.engines.kubernetes.engine:KubernetesEngine",
    "gateway": "hyperplane.engines.gateway.engine:GatewayEngine",
    "cuda": "hyperplane.engines.cuda.engine:CudaEngine",
}

#: Packages of other people add engines under this entry-point group; they cannot replace ours.
GROUP = "hyperplane.engines"


def names() -> list[str]:
    """All engines, ours first."""
    return [*BUILT_IN, *(p.name for p in entry_points(group=GROUP) if p.name not in BUILT_IN)]


def load(name: Any) -> Engine:
    """The engine of that name.

    Raises
    ------
    RequestError
        When there is none, with the nearest names.
    """
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
