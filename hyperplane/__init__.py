"""hyperplane: from a notebook to a right-sized Dask cluster to a production job.

>>> import hyperplane
>>> hyperplane.size_cluster("100GB", "groupby").nodes
8
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hyperplane.core import config_defaults as _defaults
from hyperplane.core import frame_tokens as _frame_tokens
from hyperplane.core import shared_expressions as _shared_expressions

if TYPE_CHECKING:
    from hyperplane import array, bag, dataframe, jobs, storage
    from hyperplane.calculator.advice import SizingAdvice
    from hyperplane.calculator.size_cluster import closest_pool, fit_workers, size_cluster
    from hyperplane.cluster import (
        get_cluster,
        initialize_cluster,
        plan_cluster,
        quickstart,
        start,
    )
    from hyperplane.config import get_pool, pools
    from hyperplane.errors import (
        ConfigError,
        DataError,
        DoesNotFit,
        EngineError,
        EngineUnavailable,
        Fault,
        HyperplaneError,
        JobCancelled,
        JobError,
        JobFailed,
        JobTimeout,
        MissingPackage,
        RequestError,
        StartFailed,
        StartTimeout,
        UnknownPool,
    )
    from hyperplane.jobs.decorator import job
    from hyperplane.shards.files import shard_files
    from hyperplane.shards.identity import Shard, shard
    from hyperplane.shards.output import output_path
    from hyperplane.shards.rows import shard_rows
    from hyperplane.spec.memory import MemoryPolicy
    from hyperplane.spec.plan import ClusterPlan
    from hyperplane.spec.pool import PoolSpec
    from hyperplane.spec.request import ClusterRequest
    from hyperplane.spec.worker import WorkerSpec
    from hyperplane.storage.loading import load
    from hyperplane.storage.saving import save

__all__ = [
    "ClusterPlan",
    "ClusterRequest",
    "ConfigError",
    "DataError",
    "DoesNotFit",
    "EngineError",
    "EngineUnavailable",
    "Fault",
    "HyperplaneError",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobTimeout",
    "MemoryPolicy",
    "MissingPackage",
    "PoolSpec",
    "RequestError",
    "Shard",
    "SizingAdvice",
    "StartFailed",
    "StartTimeout",
    "UnknownPool",
    "WorkerSpec",
    "array",
    "bag",
    "closest_pool",
    "dataframe",
    "fit_workers",
    "get_cluster",
    "get_pool",
    "initialize_cluster",
    "job",
    "jobs",
    "load",
    "output_path",
    "plan_cluster",
    "pools",
    "quickstart",
    "save",
    "shard",
    "shard_files",
    "shard_rows",
    "size_cluster",
    "start",
    "storage",
]

__version__ = "0.1.0"

# Module -> its public names; imported on first use, so that importing the package stays cheap.
_NAMES_BY_MODULE = {
    "hyperplane.cluster": (
        "get_cluster",
        "initialize_cluster",
        "plan_cluster",
        "quickstart",
        "start",
    ),
    "hyperplane.config": ("get_pool", "pools"),
    "hyperplane.jobs.decorator": ("job",),
    "hyperplane.errors": (
        "ConfigError",
        "DataError",
        "DoesNotFit",
        "EngineError",
        "EngineUnavailable",
        "Fault",
        "HyperplaneError",
        "JobCancelled",
        "JobError",
        "JobFailed",
        "JobTimeout",
        "MissingPackage",
        "RequestError",
        "StartFailed",
        "StartTimeout",
        "UnknownPool",
    ),
    "hyperplane.shards.files": ("shard_files",),
    "hyperplane.shards.identity": ("Shard", "shard"),
    "hyperplane.shards.output": ("output_path",),
    "hyperplane.shards.rows": ("shard_rows",),
    "hyperplane.calculator.advice": ("SizingAdvice",),
    "hyperplane.calculator.size_cluster": ("closest_pool", "fit_workers", "size_cluster"),
    "hyperplane.spec.memory": ("MemoryPolicy",),
    "hyperplane.spec.plan": ("ClusterPlan",),
    "hyperplane.spec.pool": ("PoolSpec",),
    "hyperplane.spec.request": ("ClusterRequest",),
    "hyperplane.spec.worker": ("WorkerSpec",),
    "hyperplane.storage.loading": ("load",),
    "hyperplane.storage.saving": ("save",),
}
# Public modules, also imported on first use.
_MODULES = ("array", "bag", "dataframe", "jobs", "storage")
# Public modules that a star import leaves out, because their names are common.
_OTHER_MODULES = ("errors", "notebook_common", "utils")
_MODULE_OF_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

_defaults.register()
_frame_tokens.register()
_shared_expressions.register()


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _OTHER_MODULES:
        return importlib.import_module(f"hyperplane.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'hyperplane' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_OTHER_MODULES, "__version__"])
