"""Assign GPUs of a host to a node, and create a dask-cuda nanny for each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from distributed import Nanny
from distributed.security import Security

from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.local.gpus import VARIABLE


def gpu_fault(config: Mapping[str, Any]) -> str:
    """Return why this host cannot supply the GPUs of a node, or "" if it can."""
    if not config.get("ngpus"):
        return ""
    if not is_installed("dask_cuda"):
        return "GPUs need dask-cuda on this host: pip install 'hyperplane[gpu]'"
    visible = _visible_gpus()
    if len(_select_gpus(config, visible)) == config["ngpus"]:
        return ""
    assigned = config["place"] * config["ngpus"]
    others = f" in addition to {assigned} of other nodes of the cluster" if assigned else ""
    return (
        f"the node needs {plural(config['ngpus'], 'GPU')}{others}, but the host has "
        f"{plural(len(visible), 'GPU')} for this user (see {VARIABLE}); request fewer (ngpus)"
    )


def nannies(config: Mapping[str, Any], security: Security) -> list[Nanny]:
    """Return the nannies of a node, one for each GPU, as ``dask cuda worker`` creates them."""
    from dask_cuda import CUDAWorker

    # dask-cuda starts a process for each visible GPU.
    os.environ[VARIABLE] = ",".join(_select_gpus(config, _visible_gpus()))
    names = config["names"]
    # dask-cuda appends the same numbers to the name of a node with several GPUs.
    name = names[0] if len(names) == 1 else names[0].rpartition("-")[0]
    worker = CUDAWorker(config["scheduler"], name=name, security=security, **config["options"])
    return cast("list[Nanny]", worker.nannies)


def _visible_gpus() -> list[str]:
    """Return the GPUs that this user may use, named as in ``CUDA_VISIBLE_DEVICES``."""
    limit = os.environ.get(VARIABLE)
    if limit is not None:
        return [name.strip() for name in limit.split(",") if name.strip()]
    from dask_cuda.utils import get_n_gpus

    return [str(number) for number in range(get_n_gpus())]


def _select_gpus(config: Mapping[str, Any], visible: list[str]) -> list[str]:
    """Return the GPUs of this node; nodes with lower indices on the host have the first ones."""
    first = config["place"] * config["ngpus"]
    return visible[first : first + config["ngpus"]]
