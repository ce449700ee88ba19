"""Output of all ranks in the client: printed with the number of the rank, or written to files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from hyperplane.core.errors import Fault, check
from hyperplane.core.printed_text import print_text
from hyperplane.core.public_calls import warn_caller


class GangOutput:
    """Writer of the lines of ranks.

    Parameters
    ----------
    logs : bool or path
        Whether to print the lines, or the folder of a file for each rank.
    n : int
        Number of ranks.

    Raises
    ------
    RequestError
        If the files cannot be written.
    """

    def __init__(self, logs: bool | Path, n: int) -> None:
        self._is_printed = logs is True
        self._files: dict[int, TextIO] = {}
        if not isinstance(logs, Path):
            return
        folder = logs.expanduser()
        with ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for rank in range(n):
                    file = (folder / f"rank-{rank}.log").open(
                        "w", encoding="utf-8", errors="backslashreplace"
                    )
                    self._files[rank] = stack.enter_context(file)
            except OSError as error:
                allowed = f"a folder in which files can be written ({error.strerror})"
                check([Fault("logs", repr(str(logs)), allowed)])
            stack.pop_all()

    def __enter__(self) -> GangOutput:
        return self

    def __exit__(self, *error: object) -> None:
        for rank in list(self._files):
            self._close(rank)

    def write_lines(self, rank: int, lines: Sequence[str]) -> None:
        """Write lines of a rank."""
        if rank in self._files:
            try:
                self._files[rank].write("".join(f"{line}\n" for line in lines))
                self._files[rank].flush()
            except OSError as error:  # a full disk must not end the ranks
                name = self._files[rank].name
                self._close(rank)
                warn_caller(f"{name} ends here: {error.strerror}")
        elif self._is_printed:
            print_text("".join(f"rank {rank} | {line}\n" for line in lines), sys.stdout)

    def write_notice(self, text: str) -> None:
        """Write a line about all ranks."""
        for rank in list(self._files):
            self.write_lines(rank, [text])
        if self._is_printed:
            print_text(f"{text}\n", sys.stdout)

    def _close(self, rank: int) -> None:
        """Close a file; the rest of its lines is not written."""
        try:
            self._files.pop(rank).close()
        except OSError:  # the disk is full
            return
