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
    +- EngineError (RuntimeError)     .engine .log_tail
       +- EngineUnavailable  +- StartFailed  +- StartTimeout (TimeoutError)

    UserWarning: SkippedFile, BadLinesWarning

A message states the invalid value, what is allowed and what to do next. All errors pickle with
their attributes, so that worker processes can send them to the client.
"""

from __future__ import annotations

from hyperplane.errors.data import (
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
from hyperplane.errors.engines import (
    EngineError,
    EngineUnavailable,
    StartFailed,
    StartTimeout,
)
from hyperplane.errors.jobs import (
    JobCancelled,
    JobError,
    JobFailed,
    JobStoreError,
    JobTimeout,
)
from hyperplane.errors.requests import (
    ConfigError,
    DoesNotFit,
    Fault,
    HyperplaneError,
    MissingPackage,
    RequestError,
    UnknownArgument,
    UnknownName,
    UnknownPool,
    UnsupportedModule,
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
    "SkippedFile",
    "StartFailed",
    "StartTimeout",
    "StorageError",
    "UnknownArgument",
    "UnknownName",
    "UnknownPool",
    "UnsupportedModule",
    "WrongType",
    "check",
]

# Tracebacks show the public module, not the one that defines the class.
for _name in __all__:
    globals()[_name].__module__ = __name__


def __dir__() -> list[str]:
    return list(__all__)
