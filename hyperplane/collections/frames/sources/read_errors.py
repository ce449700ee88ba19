"""How it is said what is wrong with files."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from hyperplane.errors import ReadError, SkippedFile
from hyperplane.public_calls import warn_caller


def join_errors(errors: Sequence[ReadError]) -> ReadError:
    """One error that names all files."""
    first, *others = errors
    if not others:
        return first
    more = "".join(f"\n  {error}" for error in others)
    return ReadError(first.url, f"{str(first).removeprefix(f'{first.url}: ')}; so are:{more}")


def warn_skipped(errors: Sequence[ReadError], worker: Any = None) -> None:
    """Warn of what is left out; from a task, also where the user is.

    Parameters
    ----------
    errors : sequence of ReadError
        What is wrong with each file.
    worker : distributed.Worker, optional
        That on which the task runs.
    """
    if not errors:
        return
    lines = "\n".join(f"  {error}" for error in errors)
    message = f"left out, as on_error='skip' asks ({len(errors)}):\n{lines}"
    if worker is not None:
        # distributed.warn does just this, but only in the thread of a task.
        event = {"message": pickle.dumps(message), "category": pickle.dumps(SkippedFile)}
        worker.log_event("warn", event)
    warn_caller(message, SkippedFile)


def get_current_worker() -> Any:
    """The worker of the task that runs in this thread, if one does."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None
