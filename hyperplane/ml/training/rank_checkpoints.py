"""Checkpoints of one rank, and files of states that are complete or absent."""

from __future__ import annotations

import io
import os
import re
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.core.optional import need

#: Number of epochs whose checkpoints are kept. A rank can be one epoch behind the others.
_KEPT_EPOCHS = 2


class DamagedCheckpoint(Exception):
    """A file is not a complete checkpoint."""


class RankCheckpoints:
    """Checkpoints of one rank, one file for each epoch; without a folder there are none.

    Parameters
    ----------
    kind : str
        Kind of training, which must be the same when a folder is used again.
    """

    def __init__(self, kind: str) -> None:
        folder = os.environ.get("HYPERPLANE_CHECKPOINTS", "")
        self._folder = Path(folder) if folder else None
        self._rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._identity = {"kind": kind, "ranks": self._size}
        self._name = re.compile(rf"rank-{self._rank}-epoch-(\d+)\.pt")

    def save(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Save the state after an epoch, and remove those of older ones."""
        if self._folder is None:
            return
        save_state(self._file(epoch), {"identity": self._identity, **state})
        for old in self._list_epochs():
            if old <= epoch - _KEPT_EPOCHS:
                with suppress(OSError):
                    self._file(old).unlink()

    def load(self) -> tuple[int, dict[str, Any]]:
        """Return the newest epoch that all ranks can read, and its state; 0 and nothing if none."""
        epochs = self._gather(self._list_epochs())
        common = set(epochs[0]).intersection(*epochs[1:])
        for epoch in sorted(common, reverse=True):
            state = self._read(epoch)
            if not all(self._gather(state is not None)):
                continue
            assert state is not None  # noqa: S101 - for mypy
            if state.get("identity") != self._identity:
                raise ValueError(
                    f"the checkpoints in {self._folder} are of another training, "
                    f"{state.get('identity')}; this one is {self._identity}: use another folder"
                )
            return epoch, state
        return 0, {}

    def _gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        dist = need("torch.distributed", extra="torch")
        values: list[Any] = [None] * self._size
        dist.all_gather_object(values, value)
        return values

    def _read(self, epoch: int) -> dict[str, Any] | None:
        """Return the state after an epoch; None, with a message, if the file is damaged."""
        try:
            return load_state(self._file(epoch))
        except DamagedCheckpoint as error:
            sys.stderr.write(f"{error}; the one before is used, or training begins again\n")
            return None

    def _list_epochs(self) -> list[int]:
        if self._folder is None or not self._folder.exists():
            return []
        names = (self._name.fullmatch(file.name) for file in self._folder.iterdir())
        return [int(name[1]) for name in names if name]

    def _file(self, epoch: int) -> Path:
        assert self._folder is not None  # noqa: S101 - for mypy
        return self._folder / f"rank-{self._rank}-epoch-{epoch}.pt"


def save_state(file: Path, state: Any, previous: Path | None = None) -> None:
    """Write a state or a model under another name and rename it, so that it is complete or absent.

    The file that had its name before is kept as ``previous``, if that is given.

    Raises
    ------
    OSError
        If it cannot be written, for example because the disk is full.
    """
    torch = need("torch", extra="torch")
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    try:
        with new.open("wb") as output:
            torch.save(state, output)
            output.flush()
            os.fsync(output.fileno())
        if previous is not None and file.exists():
            file.replace(previous)
        new.replace(file)
    except BaseException as error:
        with suppress(OSError):  # an incomplete file would only occupy the disk
            new.unlink()
        # PyTorch raises a RuntimeError about positions while it handles the OSError of the disk.
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, OSError):
            text = f"the file cannot be written: {cause.strerror or cause}"
            raise OSError(cause.errno, text, str(file)) from cause
        raise


def load_state(file: Path) -> dict[str, Any]:
    """Load a checkpoint; files with objects other than tensors and numbers are refused.

    Raises
    ------
    DamagedCheckpoint
        If the file is incomplete or corrupt, or has been removed.
    """
    torch = need("torch", extra="torch")
    if damage := _find_damage(file):
        raise DamagedCheckpoint(f"the checkpoint {file} {damage}")
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def load_newest(folder: Path, name: str, device: Any) -> dict[str, Any] | None:
    """Return the newest state that rank 0 can read, in all ranks; None if there is none.

    Only rank 0, which wrote the files, needs to have them: other ranks can be on other hosts.
    """
    torch = need("torch", extra="torch")
    content: list[bytes] = [b""]
    if torch.distributed.get_rank() == 0 and (number := find_newest(folder, name)) >= 0:
        content = [(folder / f"{name}.{number}.pt").read_bytes()]
    torch.distributed.broadcast_object_list(content, 0)
    if not content[0]:
        return None
    state: dict[str, Any] = torch.load(
        io.BytesIO(content[0]), map_location=device, weights_only=True
    )
    return state


def find_newest(folder: Path, name: str) -> int:
    """Return the largest number of a file ``NAME.NUMBER.pt`` that is not damaged; -1 if none.

    Damaged files are reported on standard error.
    """
    if not folder.exists():  # no rank has written to it on this host
        return -1
    found = (re.fullmatch(rf"{name}\.(\d+)\.pt", file.name) for file in folder.iterdir())
    for number in sorted((int(each[1]) for each in found if each), reverse=True):
        file = folder / f"{name}.{number}.pt"
        damage = _find_damage(file)
        if not damage:
            return number
        text = f"the checkpoint {file} {damage}; the one before is used, or training begins again"
        sys.stderr.write(f"{text}\n")
    return -1


def _find_damage(file: Path) -> str:
    """Return what is wrong with a file of ``torch.save``; ``torch.load`` does not verify it."""
    try:
        with zipfile.ZipFile(file) as archive:
            return "has other bytes than were written" if archive.testzip() else ""
    except FileNotFoundError:
        return "has been removed"
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError):
        return "is not complete"
