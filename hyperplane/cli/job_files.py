"""The files that ``hyperplane job render`` writes to a folder and replaces the next time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs.runners.base import Document

#: Names and checksums of the files, in the format of sha256sum; kubectl ignores the name.
LIST_NAME = ".hyperplane-rendered"


class RenderResult(NamedTuple):
    """Paths that a render wrote, removed, and left because the user has changed them."""

    written: list[str] = []  # noqa: RUF012 - never modified
    removed: list[str] = []  # noqa: RUF012
    left: list[str] = []  # noqa: RUF012


def write_documents(documents: Sequence[Document], out: Path) -> RenderResult:
    """Write a runner's files and remove those of the previous render that are obsolete.

    Raises
    ------
    RequestError
        If the folder cannot be written to, or if a file that no render wrote has one of the names.
    """
    texts = {document.name: document.text.encode() for document in documents}
    try:
        out.mkdir(parents=True, exist_ok=True)
        previous = _read_previous(out)
        check(_conflicts(out, previous, texts))
        removed, left = [], []
        for name in sorted(set(previous) - set(texts)):
            file = out / name
            if file.is_file() and not file.is_symlink():
                if _digest(file.read_bytes()) == previous[name]:
                    file.unlink()
                    removed.append(str(file))
                else:
                    left.append(str(file))
        # The list first, so that an interrupted render has no file that is not listed.
        lines = (f"{_digest(text)}  {name}\n" for name, text in texts.items())
        (out / LIST_NAME).write_text("".join(lines), encoding="utf-8", newline="")
        for name, text in texts.items():
            (out / name).write_bytes(text)
    except OSError as error:
        allowed = "a writable folder"
        raise RequestError([Fault("--out", str(out), allowed, error.strerror or "")]) from error
    return RenderResult([str(out / name) for name in texts], removed, left)


def _conflicts(
    out: Path, previous: Mapping[str, str], texts: Mapping[str, bytes]
) -> Iterator[Fault]:
    """Return a fault for each file that would be overwritten but is not a render's own."""
    for name, text in texts.items():
        file = out / name
        if not file.exists() and not file.is_symlink():
            continue
        if not file.is_file() or _digest(file.read_bytes()) not in (
            previous.get(name),
            _digest(text),
        ):
            allowed = "a name without a file, or with an unchanged file of an earlier render"
            yield Fault("--out", str(file), allowed, "move the file, or give another folder")


def _read_previous(out: Path) -> dict[str, str]:
    """Return the names and checksums of the files of the previous render."""
    try:
        lines = (out / LIST_NAME).read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("  ") for line in lines)
    return {name: digest for digest, _, name in pairs if name and Path(name).name == name}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
