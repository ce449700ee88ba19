"""Folder and store of this user's jobs."""

from __future__ import annotations

import errno
import functools
import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane import config
from hyperplane.core.config_sections import make_fault
from hyperplane.core.errors import ConfigError, JobStoreError
from hyperplane.core.home_folder import find_home
from hyperplane.core.optional import need
from hyperplane.jobs.store.backoff import is_retryable

if TYPE_CHECKING:
    from hyperplane.jobs.store.job_store import JobStore

#: What a user without a home folder can do.
_ADVICE = "set XDG_STATE_HOME or hyperplane.jobs.home to a folder of yours, whose path is absolute"


def jobs_folder() -> Path:
    """Return this user's private folder for jobs, created if needed.

    Raises
    ------
    JobStoreError
        If it cannot be created, or belongs to another user.
    ConfigError
        If this user has no home folder, and neither XDG_STATE_HOME nor ``hyperplane.jobs.home`` is
        the path of a folder elsewhere.
    """
    folder = _find_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it belongs to another user")
        return folder.resolve()
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        message = f"cannot use this folder ({cause}); set hyperplane.jobs.home to a folder of yours"
        raise JobStoreError(str(folder), message, passing=is_retryable(error)) from error


def _find_folder() -> Path:
    configured = config.jobs().home
    if not configured:
        state = os.environ.get("XDG_STATE_HOME") or find_home(_ADVICE) / ".local" / "state"
        return Path(state, "hyperplane")
    try:
        folder = Path(configured).expanduser()
    except RuntimeError:  # the user after the tilde does not exist, or this user has no home folder
        allowed = "the path of a folder; it begins with the home folder of an unknown user"
        raise ConfigError([make_fault("hyperplane.jobs.home", configured, allowed)]) from None
    # A relative path begins in the home folder, because the supervisor has another working folder.
    return folder if folder.is_absolute() else find_home(_ADVICE) / folder


def open_store() -> JobStore:
    """Open the configured job store.

    Raises
    ------
    MissingPackage
        If the packages for jobs are not installed.
    """
    need("sqlalchemy", "jobs")
    # Cached per process: a connection does not survive a fork.
    return _open_cached(store_url(), os.getpid())


def store_url() -> str:
    """Return the URL of the store; relative SQLite paths are relative to the jobs folder."""
    configured = config.jobs().store or "sqlite:///jobs.db"
    scheme, mark, path = configured.partition(":///")
    if scheme.startswith("sqlite") and mark and path and not path.startswith(("/", ":")):
        return f"{scheme}:///{jobs_folder() / path}"
    return configured


def has_store() -> bool:
    """Return whether there is a store; one of SQLite has none before the first job."""
    scheme, _, path = store_url().partition(":///")
    return not scheme.startswith("sqlite") or not path or Path(path).exists()


@functools.lru_cache(maxsize=4)
def _open_cached(url: str, process: int) -> JobStore:
    del process
    from hyperplane.jobs.store.job_store import JobStore

    return JobStore(url)


def this_machine() -> str:
    """Return ``user@host``, which identifies the submitter in a shared store."""
    # Not from the environment, which keeps another user's name with ``sudo -E``.
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers often run under a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
