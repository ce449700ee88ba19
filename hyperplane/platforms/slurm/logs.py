"""Logs of jobs: their paths with Slurm's placeholders, and their last lines."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hyperplane.core.folder_entries import find_in

#: Placeholder for the index of a task of an array, with at least three digits.
TASK_INDEX = "%3a"
#: Bytes at the end of a log that are read.
_TAIL_BYTES = 1 << 16


def escape_path(path: Path | str) -> str:
    r"""Escape the placeholders of Slurm in a path, such as ``%j``.

    Examples
    --------
    >>> escape_path("/logs/100%")
    '/logs/100%%'
    """
    return str(path).replace("\\", "\\\\").replace("%", "%%")


def job_log(folder: Path, name: str) -> str:
    """Return the path of a log in a folder, with the placeholder for the id of the job.

    Examples
    --------
    >>> job_log(Path("/logs of 100%"), "flights")
    '/logs of 100%%/flights-%j.log'
    """
    return f"{escape_path(folder / name)}-%j.log"


def read_log_tail(folder: Path, job_id: str, lines: int) -> str:
    """Return the last lines of a log that :func:`job_log` names; empty if it cannot be read."""
    for file in find_in(folder, f"*-{job_id}.log"):
        with suppress(OSError), file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, 2) - _TAIL_BYTES))
            text = opened.read().decode(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
    return ""
