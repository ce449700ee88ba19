"""Files of this machine that a Secret copies into a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hyperplane.platforms.kubernetes.pods import build_secret_volume

#: Maximum bytes of a staged file: a Secret has at most 1 MiB, and may also have variables.
MAX_FILE_BYTES = 900_000
_VOLUME = "files"
#: Read and execute.
_MODE = 0o555


class StagedFile(NamedTuple):
    """A file that is mounted into a pod.

    Parameters
    ----------
    key : str
        Key in the Secret, with a dash, because names of variables in the same Secret have none.
    path : str
        Path in the pod.
    content : bytes
        Content of the file.
    """

    key: str
    path: str
    content: bytes


def mount_files(files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    """Return the mounts of files in the container."""
    return [
        {"name": _VOLUME, "mountPath": file.path, "subPath": file.key, "readOnly": True}
        for file in files
    ]


def build_file_volumes(secret: str, files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    """Return the volumes of the files in a Secret, which leave out its variables."""
    keys = [file.key for file in files]
    return [build_secret_volume(_VOLUME, secret, _MODE, keys)] if keys else []
