"""States of processes that may end at any moment."""

from __future__ import annotations

import psutil


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, also if its parent has not read its exit code."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two calls
        return True
