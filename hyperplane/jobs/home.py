"""Where the state and the logs of jobs are on this machine."""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane import config
from hyperplane.optional import need

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore


def home() -> Path:
    """The folder of this user for jobs, closed to everybody else."""
    told = config.jobs().home
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(told).expanduser() if told else Path(state, "hyperplane")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def the_store() -> JobStore:
    """The store that the configuration names.

    Raises
    ------
    MissingPackage
        When the packages for jobs are not installed.
    """
    need("sqlalchemy", "jobs")
    # A connection does not survive a fork.
    return _opened(config.jobs().store or f"sqlite:///{home() / 'jobs.db'}", os.getpid())


@functools.lru_cache(maxsize=4)
def _opened(url: str, process: int) -> JobStore:
    del process
    from hyperplane.jobs.store import JobStore

    return JobStore(url)


def this_machine() -> str:
    """The name by which jobs of this machine are found in the store of a team."""
    return socket.gethostname()
