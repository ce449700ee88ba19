"""The errors that hyperplane raises.

::

    HyperplaneError
    +- RequestError (ValueError)      .faults
    |  +- UnknownPool .name .known    +- DoesNotFit .pool .asked .allowed
    |  +- UnknownArgument (TypeError)
    +- ConfigError (ValueError)       .faults .path
    +- MissingPackage (ImportError)   .package .extra
    +- UnsupportedModule (ImportError) .module
    +- DataError (ValueError)         .column
    +- ReadError (OSError)            .url
    +- BadLines (ValueError)          .file .line .bad .lines
    +- WrongType (TypeError)          .field .value .where
    +- StorageError (OSError)         .url
    |  +- OutputExists (FileExistsError)  +- OutputConflict
    +- JobError (RuntimeError)        .job_id
    |  +- JobFailed  +- JobCancelled  +- JobTimeout (TimeoutError)
    +- JobStoreError (RuntimeError)   .store .passing
    +- QueryFailed (RuntimeError)     .errors .results
    +- SearchFailed (RuntimeError)    .failed .last
    +- GangFailed (RuntimeError)      .rank .worker .exit_code .traceback .log_tail .restarts
    |  +- GangTimeout (TimeoutError)
    +- TrainingFailed (RuntimeError)
    +- ClusterStalled (RuntimeError)  .cause .tasks .seconds
    +- WorkerOutOfMemory (MemoryError, distributed.KilledWorker)
    |     .task .operation .peak .limit .inputs .attempts .cause .fix
    +- WorkerCrash (RuntimeError, distributed.KilledWorker)
    |     .task .operation .exit_code .attempts .fix
    +- SchedulerUnreachable (ConnectionError, distributed.client.FutureCancelledError,
    |     distributed.CommClosedError)   .cause .seconds
    +- EngineError (RuntimeError)     .engine .log_tail
       +- EngineUnavailable  +- StartFailed  +- StartTimeout (TimeoutError)
                             +- PreflightError .faults

    UserWarning: SkippedFile, BadLinesWarning

A message states the invalid value, what is allowed and what to do next. All errors pickle with
their attributes, so that worker processes can send them to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hyperplane.core.errors import (
    BadLines,
    BadLinesWarning,
    ClusterStalled,
    ConfigError,
    DataError,
    DoesNotFit,
    EngineError,
    EngineUnavailable,
    Fault,
    GangFailed,
    GangTimeout,
    HyperplaneError,
    JobCancelled,
    JobError,
    JobFailed,
    JobStoreError,
    JobTimeout,
    MissingPackage,
    OutputConflict,
    OutputExists,
    PreflightError,
    QueryFailed,
    ReadError,
    RequestError,
    SearchFailed,
    SkippedFile,
    StartFailed,
    StartTimeout,
    StorageError,
    TrainingFailed,
    UnknownArgument,
    UnknownKey,
    UnknownName,
    UnknownPool,
    UnsupportedModule,
    WrongType,
    check,
)

if TYPE_CHECKING:
    from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable
    from hyperplane.guard.worker_out_of_memory import WorkerCrash, WorkerOutOfMemory

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
    "SchedulerUnreachable",
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
    "WorkerCrash",
    "WorkerOutOfMemory",
    "WrongType",
    "check",
]


def __getattr__(name: str) -> Any:
    # On first use, because their base classes load distributed.
    if name in ("WorkerCrash", "WorkerOutOfMemory"):
        from hyperplane.guard import worker_out_of_memory

        globals()[name] = getattr(worker_out_of_memory, name)
        return globals()[name]
    if name == "SchedulerUnreachable":
        from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable

        globals()[name] = SchedulerUnreachable
        return SchedulerUnreachable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
