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
    +- SearchFailed (RuntimeError)    .failed .last
    +- GangFailed (RuntimeError)      .rank .worker .exit_code .traceback .log_tail .restarts
    |  +- GangTimeout (TimeoutError)
    +- TrainingFailed (RuntimeError)
    +- EngineError (RuntimeError)     .engine .log_tail
       +- EngineUnavailable  +- StartFailed  +- StartTimeout (TimeoutError)

    UserWarning: SkippedFile, BadLinesWarning

A message states the invalid value, what is allowed and what to do next. All errors pickle with
their attributes, so that worker processes can send them to the client.
"""

from __future__ import annotations

from hyperplane.core.errors import (
    BadLines,
    BadLinesWarning,
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

__all__ = [
    "BadLines",
    "BadLinesWarning",
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


def __dir__() -> list[str]:
    return list(__all__)
