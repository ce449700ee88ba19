"""Entries of folders that other processes may change at any time."""

from __future__ import annotations

from pathlib import Path


def find_in(folder: Path, pattern: str) -> list[Path]:
    """Entries of a folder that match a pattern; empty if the folder is missing or removed."""
    try:
        return list(folder.glob(pattern))
    except FileNotFoundError:
        return []
