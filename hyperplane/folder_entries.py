"""Entries of folders that other processes may change at any moment."""

from __future__ import annotations

from pathlib import Path


def find_in(folder: Path, pattern: str) -> list[Path]:
    """The entries of a folder that match; none where it is absent or is removed meanwhile."""
    try:
        return list(folder.glob(pattern))
    except FileNotFoundError:
        return []
