"""Errors of programs that would occur again after a restart, so that there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NAME = "_hyperplane_is_permanent"
#: Errors that may be those of another process, of a network or of a file system.
_TRANSIENT = (OSError, EOFError, MemoryError)
_TRANSIENT_WORDS = ("gloo", "nccl", "connection", "timed out", "timeout", "out of memory")
#: Base class of PyTorch's errors between ranks, whose texts often have none of these words.
_DISTRIBUTED = ("torch.distributed", "DistError")
#: Base class of errors of TensorFlow's operations, and those of them that a program causes. Others
#: are of lost ranks (``AbortedError``, ``UnavailableError``), of files and of memory.
_OPERATIONS = "tensorflow.python.framework.errors_impl"
_OF_PROGRAMS = ("InvalidArgumentError", "UnimplementedError")


@contextmanager
def mark_permanent_errors() -> Iterator[None]:
    """Mark the errors of a block as permanent, except those of connections, files and memory.

    Examples
    --------
    >>> try:
    ...     with mark_permanent_errors():
    ...         raise ValueError("wrong shape")
    ... except ValueError as error:
    ...     print(is_permanent(error))
    True
    """
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # classes with any __str__ and __setattr__
            if not _is_transient(error):
                mark_permanent(error)
        raise


def mark_permanent(error: BaseException) -> None:
    """Mark an error as permanent."""
    setattr(error, _NAME, True)


def _is_transient(error: Exception) -> bool:
    if isinstance(error, _TRANSIENT):
        return True
    names = [(base.__module__, base.__name__) for base in type(error).__mro__]
    if _DISTRIBUTED in names:
        return True
    if (_OPERATIONS, "OpError") in names and type(error).__name__ not in _OF_PROGRAMS:
        return True
    text = str(error).lower()
    return any(word in text for word in _TRANSIENT_WORDS)


def is_permanent(error: BaseException | None) -> bool:
    """Return whether an error was marked as permanent, in this or in another process."""
    return getattr(error, _NAME, False) is True
