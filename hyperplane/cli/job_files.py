"""What ``hyperplane job render`` writes into a folder, and takes out of it the next time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hyperplane.errors import Fault, RequestError, check
from hyperplane.jobs.runners.base import Document

#: Names what a render wrote, as sha256sum does. It has no ending that kubectl would read.
LIST = ".hyperplane-rendered"


class Written(NamedTuple):
    """What has become of the files of a folder.

    Parameters
    ----------
    written : list of str
        Written now.
    removed : list of str
        Written by a former render and by this one no more, as they were.
    left : list of str
        The same, but changed since; they are somebody's own now.
    """

    written: list[str] = []  # noqa: RUF012 - nobody adds to it
    removed: list[str] = []  # noqa: RUF012
    left: list[str] = []  # noqa: RUF012


def write(documents: Sequence[Document], out: Path) -> Written:
    """Write a runner's files, and remove those of a former render that it has no more.

    Parameters
    ----------
    documents : sequence of Document
        The files.
    out : Path
        The folder, made if it is not there.

    Returns
    -------
    Written

    Raises
    ------
    RequestError
        When the folder cannot be written to, or has files of these names that are somebody's own.
    """
    texts = {one.name: one.text.encode() for one in documents}
    try:
        out.mkdir(parents=True, exist_ok=True)
        former = _former(out)
        check(_foreign(out, former, texts))
        removed, left = [], []
        for name in sorted(set(former) - set(texts)):
            file = out / name
            if file.is_file() and not file.is_symlink():
                if _digest(file.read_bytes()) == former[name]:
                    file.unlink()
                    removed.append(str(file))
                else:
                    left.append(str(file))
        # First the list: what is written is on it, wherever we are stopped.
        lines = (f"{_digest(text)}  {name}\n" for name, text in texts.items())
        (out / LIST).write_text("".join(lines), encoding="utf-8", newline="")
        for name, text in texts.items():
            (out / name).write_bytes(text)
    except OSError as error:
        allowed = "a folder that can be written to"
        raise RequestError([Fault("--out", str(out), allowed, error.strerror or "")]) from error
    return Written([str(out / name) for name in texts], removed, left)


def _foreign(out: Path, former: Mapping[str, str], texts: Mapping[str, bytes]) -> Iterator[Fault]:
    """Files that would be lost: no render wrote them, or somebody has changed them since."""
    for name, text in texts.items():
        file = out / name
        if not file.exists() and not file.is_symlink():
            continue
        if not file.is_file() or _digest(file.read_bytes()) not in (
            former.get(name),
            _digest(text),
        ):
            allowed = "a folder without a file of this name that no render wrote"
            yield Fault("--out", str(file), allowed, "move it away, or give another folder")


def _former(out: Path) -> dict[str, str]:
    """What a former render wrote: names of files of this folder, and what they held."""
    try:
        lines = (out / LIST).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("  ") for line in lines)
    return {name: digest for digest, _, name in pairs if name and Path(name).name == name}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
