"""Symbolic links on local disk, resolved to the files and folders that they lead to."""

from __future__ import annotations

import os
import threading
from pathlib import PurePath
from typing import Any

from fsspec.implementations.local import LocalFileSystem

#: Types of entries other than ``file`` and ``directory``: a dangling link, and a link to one of the
#: folders that contain it.
BROKEN, LOOP = "broken", "loop"

#: In a worker thread, ``stopped`` is the event by which its caller ends the listing.
listing_thread = threading.local()


class ResolvedLinks(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local file system whose listings give each link the type and size of its target.

    fsspec lists a link as neither file nor folder, and does not descend into linked folders.

    Parameters
    ----------
    recursive : bool
        Whether listings descend to any depth, so that they must stop at circular links.
    """

    cachable = False

    def __init__(self, recursive: bool) -> None:
        super().__init__()
        self.recursive = recursive

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        """List a folder."""
        if getattr(listing_thread, "stopped", None) is not None and listing_thread.stopped.is_set():
            raise InterruptedError("the caller has stopped waiting")
        entries: list[Any] = super().ls(path, detail=detail, **options)
        return (
            [self._resolve(entry) if entry["islink"] else entry for entry in entries]
            if detail
            else entries
        )

    def _resolve(self, link: dict[str, Any]) -> dict[str, Any]:
        try:
            target: dict[str, Any] = self.info(link["name"])
        except OSError:
            return {**link, "type": BROKEN}
        if target["type"] == "directory" and self.recursive and is_circular(link["name"]):
            return {**target, "type": LOOP}
        return target


def is_circular(link: str) -> bool:
    """Return whether a link leads to one of the folders that contain it."""
    target = os.path.realpath(link)
    folders = {os.path.realpath(folder) for folder in PurePath(link).parents}
    return any(os.path.commonpath([target, folder]) == target for folder in folders)
