"""Fake commands of Slurm for the tests of the platform."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class SlurmPrograms:
    """Folder at the beginning of PATH, whose programs record each call.

    Parameters
    ----------
    folder : Path
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        """Write a program as shell code; its arguments are added to a file, one call a line."""
        program = self.folder / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {self.folder}/calls\n{text}\n")
        program.chmod(0o755)

    def calls(self) -> list[str]:
        """Return the arguments of each call."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> SlurmPrograms:
    """Put an empty folder of programs at the beginning of PATH."""
    place = folder / "slurm-programs"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return SlurmPrograms(place)
