"""Recognize devices, pipes and sockets, which a new file must not replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_special_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a device, pipe or socket, or a link to one.

    Examples
    --------
    >>> is_special_file("/dev/null"), is_special_file("."), is_special_file("missing.txt")
    (True, False, False)
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # missing, or no valid name
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
