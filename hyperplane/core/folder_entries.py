"""Entries of folders that other processes may change at any time."""

from __future__ import annotations

from pathlib import Path


def find_in(folder: Path, pattern: str) -> list[Path]:
    """Return the entries of a folder that match a glob pattern; none if the folder is missing."""
    try:
        return list(folder.glob(pattern))
    except FileNotFoundError:
        return []
