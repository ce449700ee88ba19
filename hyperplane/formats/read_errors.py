"""Combine errors of several files, and warn about skipped ones."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from hyperplane.core.errors import ReadError, SkippedFile
from hyperplane.core.public_calls import warn_caller
from hyperplane.formats.text_errors import SKIP_ADVICE


def join_errors(errors: Sequence[ReadError]) -> ReadError:
    """Return one error that names all files."""
    first, *others = errors
    if not others:
        return first
    more = "".join(f"\n  {error}" for error in others)
    return ReadError(
        first.url, f"{str(first).removeprefix(f'{first.url}: ')}; more damaged files:{more}"
    )


def omit_skip_advice(error: ReadError) -> ReadError:
    """Return an error without the advice to skip, for calls that already have it."""
    text = str(error).removeprefix(f"{error.url}: ")
    return ReadError(error.url, text.replace(f", or {SKIP_ADVICE}", ""))


def warn_skipped(errors: Sequence[ReadError], worker: Any = None) -> None:
    """Warn about files that are left out; from a task on a worker, also at the client.

    Parameters
    ----------
    errors : sequence of ReadError
        The error of each file.
    worker : distributed.Worker, optional
        The worker that runs the task.
    """
    if not errors:
        return
    lines = "\n".join(f"  {omit_skip_advice(error)}" for error in errors)
    message = f"files left out because of on_error='skip' ({len(errors)}):\n{lines}"
    if worker is not None:
        # As distributed.warn does, which works only in the thread of the task.
        event = {"message": pickle.dumps(message), "category": pickle.dumps(SkippedFile)}
        worker.log_event("warn", event)
    warn_caller(message, SkippedFile)


def get_current_worker() -> Any:
    """Return the Dask worker of the task in this thread, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None
