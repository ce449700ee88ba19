"""Errors of hyperplane; their public module is ``hyperplane.errors``."""

from __future__ import annotations

from hyperplane.core.errors.base import (
    ConfigError,
    DoesNotFit,
    Fault,
    HyperplaneError,
    MissingPackage,
    RequestError,
    UnknownArgument,
    UnknownKey,
    UnknownName,
    UnknownPool,
    UnsupportedModule,
    check,
)
from hyperplane.core.errors.data import (
    BadLines,
    BadLinesWarning,
    DataError,
    OutputConflict,
    OutputExists,
    ReadError,
    SkippedFile,
    StorageError,
    WrongType,
)
from hyperplane.core.errors.engines import (
    ClusterStalled,
    EngineError,
    EngineUnavailable,
    PreflightError,
    StartFailed,
    StartTimeout,
)
from hyperplane.core.errors.jobs import (
    JobCancelled,
    JobError,
    JobFailed,
    JobStoreError,
    JobTimeout,
    QueryFailed,
)
from hyperplane.core.errors.ml import GangFailed, GangTimeout, SearchFailed, TrainingFailed

__all__ = [
    "BadLines",
    "BadLinesWarning",
    "ClusterStalled",
    "ConfigError",
    "DataError",
    "DoesNotFit",
    "EngineError",
    "EngineUnavailable",
    "Fault",
    "GangFailed",
    "GangTimeout",
    "HyperplaneError",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobStoreError",
    "JobTimeout",
    "MissingPackage",
    "OutputConflict",
    "OutputExists",
    "PreflightError",
    "QueryFailed",
    "ReadError",
    "RequestError",
    "SearchFailed",
    "SkippedFile",
    "StartFailed",
    "StartTimeout",
    "StorageError",
    "TrainingFailed",
    "UnknownArgument",
    "UnknownKey",
    "UnknownName",
    "UnknownPool",
    "UnsupportedModule",
    "WrongType",
    "check",
]

# Tracebacks and pickles name the public module, not the one that defines the class.
for _name in __all__:
    globals()[_name].__module__ = "hyperplane.errors"
