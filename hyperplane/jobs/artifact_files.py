"""Files of artifacts: their identity when they are recorded, and opening only that same file.

A path can lead to another file later: it was overwritten, or a folder of the path was replaced by a
link. What is opened here is a regular file, no part of its path is a link, and inode, size and time
of the last change are those that were recorded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from hyperplane.core.errors import HyperplaneError
from hyperplane.jobs.store.artifact_records import Artifact

#: Only to look up names in it, for which a folder need not be readable.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Not to wait for the other end of a pipe.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ArtifactUnavailable(HyperplaneError, RuntimeError):
    """The file of an artifact was removed or changed, or is not on a disk of this machine."""


class FileIdentity(NamedTuple):
    """What tells a version of a file from others."""

    inode: int
    size: int
    #: Nanoseconds since 1970.
    changed: int
    #: Path of the file in the folder that was recorded; empty if the file itself was.
    name: str = ""

    @classmethod
    def of(cls, status: os.stat_result, name: str = "") -> FileIdentity:
        """Return the identity of a file by its status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, name)

    @classmethod
    def parse(cls, text: str) -> FileIdentity:
        """Return an identity from its text.

        Raises
        ------
        ValueError
            If it is none.
        """
        inode, size, changed, name = text.split(":", 3)
        return cls(int(inode), int(size), int(changed), name)

    def __str__(self) -> str:
        return ":".join(map(str, self))


def open_regular(path: str) -> BinaryIO:
    """Open a regular file by an absolute path without links.

    Raises
    ------
    OSError
        If it is missing, no regular file, or a part of the path is a link.
    """
    *folders, name = PurePosixPath(path).parts[1:]
    if not path.startswith("/") or not name or ".." in (*folders, name):
        raise OSError(f"{path} is no absolute path")
    parent = os.open("/", _FOLDER_FLAGS)
    try:
        for folder in folders:
            child = os.open(folder, _FOLDER_FLAGS, dir_fd=parent)
            os.close(parent)
            parent = child
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def identify(path: str, name: str = "") -> FileIdentity | None:
    """Return the identity of a file, or of the file ``name`` in a folder; None if there is none."""
    file = str(PurePosixPath(path, name))
    with suppress(OSError, ValueError), open_regular(file) as opened:
        return FileIdentity.of(os.fstat(opened.fileno()), name)
    return None


@contextmanager
def open_artifact(artifact: Artifact) -> Iterator[BinaryIO]:
    """Open the file of an artifact, or the recorded file of a folder.

    Raises
    ------
    ArtifactUnavailable
        If it is not on a disk, was removed, or another file is in its place.
    """
    if not artifact.is_local:
        raise ArtifactUnavailable("it is not on a disk of this machine")
    try:
        identity = FileIdentity.parse(artifact.identity)
    except ValueError:
        reason = "it could not be read when its step ended, such as on a disk of another machine"
        raise ArtifactUnavailable(reason) from None
    path = str(PurePosixPath(artifact.url, identity.name))
    try:
        opened = open_regular(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no regular file"
        message = f"it was removed, moved or replaced, or cannot be read ({reason})"
        raise ArtifactUnavailable(message) from error
    with opened:
        if FileIdentity.of(os.fstat(opened.fileno()), identity.name) != identity:
            raise ArtifactUnavailable("it has changed since its step ended")
        yield opened


def resolve_parent(path: str) -> str:
    """Return an absolute path without links in its folders; the last part may be a link.

    Raises
    ------
    OSError
        If its folder does not exist.
    """
    absolute = Path(path)
    return str(Path(os.path.realpath(absolute.parent, strict=True), absolute.name))
