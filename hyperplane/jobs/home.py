"""Where the state and the logs of jobs are on this machine."""

from __future__ import annotations

import errno
import functools
import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane import config
from hyperplane.errors import JobStoreError
from hyperplane.jobs.backoff import is_retryable
from hyperplane.optional import need

if TYPE_CHECKING:
    from hyperplane.jobs.store import JobStore


def jobs_folder() -> Path:
    """The folder of this user for jobs, closed to everybody else.

    Raises
    ------
    JobStoreError
        When it cannot be made, or belongs to another user.
    """
    told = config.jobs().home
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    # Not the current folder: the supervisor has another one.
    folder = Path.home() / Path(told).expanduser() if told else Path(state, "hyperplane")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it belongs to another user")
        return folder.resolve()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        wrong = f"the folder cannot be used ({said}); set hyperplane.jobs.home to one of yours"
        raise JobStoreError(str(folder), wrong, passing=is_retryable(error)) from error


def open_store() -> JobStore:
    """The store that the configuration names.

    Raises
    ------
    MissingPackage
        When the packages for jobs are not installed.
    """
    need("sqlalchemy", "jobs")
    # A connection does not survive a fork.
    return _open_cached(store_url(), os.getpid())


def store_url() -> str:
    """The URL of the store; a path that is relative is one of the folder of jobs."""
    told = config.jobs().store or "sqlite:///jobs.db"
    scheme, mark, path = told.partition(":///")
    if scheme.startswith("sqlite") and mark and path and not path.startswith(("/", ":")):
        return f"{scheme}:///{jobs_folder() / path}"
    return told


@functools.lru_cache(maxsize=4)
def _open_cached(url: str, process: int) -> JobStore:
    del process
    from hyperplane.jobs.store import JobStore

    return JobStore(url)


def this_machine() -> str:
    """By whom and where jobs are submitted, as a team's store tells them apart."""
    # Not by the environment, which keeps the name of another user with `sudo -E`.
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers often run as a number that has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
