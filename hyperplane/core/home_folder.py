"""Home folder of this user."""

from __future__ import annotations

from pathlib import Path

from hyperplane.core.errors import ConfigError, Fault


def find_home(advice: str = "") -> Path:
    """Return the home folder of this user; ``advice`` is how to do without one.

    Raises
    ------
    ConfigError
        If the variable HOME is not set and the user has no entry in the password database, as in
        containers with any user.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        default = "set XDG_STATE_HOME to a folder of yours, whose path is absolute"
        allowed = "the home folder of this user, who has no entry in the password database"
        raise ConfigError([Fault("HOME", "nothing", allowed, advice or default)]) from error
