"""Remove folders of this process at its end, but not at the end of a fork of it."""

from __future__ import annotations

import os
import shutil


def remove_folder(path: str, process: int) -> None:
    """Remove a folder if this process is the one with the id ``process``, which has created it.

    A forked process has copies of its parent's exit functions and finalizers.
    """
    if process == os.getpid():
        shutil.rmtree(path, ignore_errors=True)
