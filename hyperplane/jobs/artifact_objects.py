"""Artifacts in object stores: small copies of them, which are opened like files.

Only the stores of clouds, which are reached with the credentials of this user. An address of
another kind could lead to a service in the network of this machine that trusts it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.units import format_bytes
from hyperplane.jobs.artifact_files import ArtifactUnavailable
from hyperplane.jobs.store.artifact_records import Artifact

if TYPE_CHECKING:
    from hyperplane.objectstore.save_target import Target

#: Bytes of the largest object that is copied.
OBJECT_BYTES = 20_000_000
_PROTOCOLS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


def is_in_store(artifact: Artifact) -> bool:
    """Return whether an artifact is in an object store.

    Examples
    --------
    >>> is_in_store(Artifact("3f0c", "load", -1, 1, "a.csv", "table", url="gs://bucket/a.csv"))
    True
    """
    protocol, separator, _ = artifact.url.partition("://")
    return bool(separator) and protocol.lower() in _PROTOCOLS and "::" not in artifact.url


def is_object(artifact: Artifact) -> bool:
    """Return whether an artifact is one object, of which is not known that it is too large."""
    is_one = not artifact.is_folder and artifact.files is not None
    return is_one and is_in_store(artifact) and (artifact.size or 0) <= OBJECT_BYTES


@contextmanager
def open_object(artifact: Artifact, beginning: int | None = None) -> Iterator[BinaryIO]:
    """Open a copy of an object, or of the first object of a folder, as it is now.

    Parameters
    ----------
    artifact : Artifact
        The artifact.
    beginning : int, optional
        Bytes of the beginning that are enough; by default the object is copied whole.

    Raises
    ------
    ArtifactUnavailable
        If it is in no object store, was removed, is too large, or the store refuses a request.
    """
    if not is_in_store(artifact):
        raise ArtifactUnavailable("it is not on a disk of this machine, and in no object store")
    try:
        data = _read_object(artifact, beginning)
    except ArtifactUnavailable:
        raise
    except HyperplaneError as error:
        raise ArtifactUnavailable(" ".join(str(error).split())) from error
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield cast("BinaryIO", file)


def _read_object(artifact: Artifact, beginning: int | None) -> bytes:
    # Imported here: the modules of stores take half of a second, and most artifacts are files.
    from hyperplane.objectstore.retrying import translate_errors
    from hyperplane.objectstore.save_target import resolve_target

    target = resolve_target(artifact.url, None)
    with translate_errors(target.url):
        system: Any = target.store.system
        path = _find_path(artifact, target)
        system.invalidate_cache()
        size = int(system.info(path)["size"])
        if beginning is None and size > OBJECT_BYTES:
            text = f"objects of at most {format_bytes(OBJECT_BYTES)} are read from a store"
            raise ArtifactUnavailable(f"{text}, and it has {format_bytes(size)}")
        end = size if beginning is None else min(size, beginning)
        data = bytes(system.cat_file(path, start=0, end=end)) if end else b""
    if len(data) != end:
        raise ArtifactUnavailable("it has changed while it was read")
    return data


def _find_path(artifact: Artifact, target: Target) -> str:
    """Return the path of the object, or of the first one of a folder."""
    if not artifact.is_folder and artifact.files is not None:
        return target.path
    from hyperplane.storage.commit_protocol import commit_protocol_for

    commits = commit_protocol_for(target)
    manifest = commits.read_state().manifest
    path = None if manifest is None else next(iter(commits.part_paths(manifest)), None)
    if path is None:
        raise ArtifactUnavailable("it was removed from its store")
    return str(path)
