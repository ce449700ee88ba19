"""The GPUs of a host that a node takes, and a nanny of dask-cuda for each of them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any, cast

from distributed import Nanny
from distributed.security import Security

from hyperplane.units import plural

VARIABLE = "CUDA_VISIBLE_DEVICES"


def gpu_fault(config: Mapping[str, Any]) -> str:
    """What this host lacks for the GPUs of a node; empty when nothing is."""
    if not config.get("ngpus"):
        return ""
    if importlib.util.find_spec("dask_cuda") is None:
        return "GPUs need dask-cuda there: pip install 'hyperplane[gpu]'"
    visible = _visible()
    if len(_assigned(config, visible)) == config["ngpus"]:
        return ""
    before = config["place"] * config["ngpus"]
    others = f" beside {before} of other nodes of the cluster" if before else ""
    return (
        f"the node needs {plural(config['ngpus'], 'GPU')}{others} and the host has "
        f"{plural(len(visible), 'GPU')} for this user ({VARIABLE} counts); ask for less (ngpus)"
    )


def nannies(config: Mapping[str, Any], security: Security) -> list[Nanny]:
    """The nannies of a node, one for each of its GPUs, as ``dask cuda worker`` makes them."""
    from dask_cuda import CUDAWorker

    # dask-cuda starts a process for each GPU that it sees.
    os.environ[VARIABLE] = ",".join(_assigned(config, _visible()))
    names = config["names"]
    # It adds the same numbers to the name of a node with several GPUs.
    name = names[0] if len(names) == 1 else names[0].rpartition("-")[0]
    worker = CUDAWorker(config["scheduler"], name=name, security=security, **config["options"])
    return cast("list[Nanny]", worker.nannies)


def _visible() -> list[str]:
    """The GPUs that this user may use, as the variable names them."""
    limit = os.environ.get(VARIABLE)
    if limit is not None:
        return [name.strip() for name in limit.split(",") if name.strip()]
    from dask_cuda.utils import get_n_gpus

    return [str(number) for number in range(get_n_gpus())]


def _assigned(config: Mapping[str, Any], visible: list[str]) -> list[str]:
    """Those of this node: earlier nodes on the host have the ones before."""
    first = config["place"] * config["ngpus"]
    return visible[first : first + config["ngpus"]]
