"""Links on this machine's disk, as what they lead to."""

from __future__ import annotations

import os
import threading
from pathlib import PurePath
from typing import Any

from fsspec.implementations.local import LocalFileSystem

#: Types of entries, beside ``file`` and ``directory``: a link that leads nowhere, and one that
#: leads to a folder in which it is itself.
BROKEN, LOOP = "broken", "loop"


#: In a thread that lists folders for another one: ``stopped``, an event once that one has gone.
listing_thread = threading.local()


class ResolvedLinks(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of this machine in which a link is what it leads to.

    fsspec itself lists a link as neither file nor folder, and looks into no folder behind one.

    Parameters
    ----------
    recursive : bool
        Whether what is asked for goes to any depth; links that lead in a circle end it.
    """

    cachable = False

    def __init__(self, recursive: bool) -> None:
        super().__init__()
        self.recursive = recursive

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        """What is in a folder."""
        if getattr(listing_thread, "stopped", None) is not None and listing_thread.stopped.is_set():
            raise InterruptedError("the caller waits no longer")
        entries: list[Any] = super().ls(path, detail=detail, **options)
        return (
            [self._resolve(one) if one["islink"] else one for one in entries] if detail else entries
        )

    def _resolve(self, link: dict[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.info(link["name"])
        except OSError:
            return {**link, "type": BROKEN}
        if found["type"] == "directory" and self.recursive and _is_circular(link["name"]):
            return {**found, "type": LOOP}
        return found


def _is_circular(link: str) -> bool:
    """Whether a link leads to a folder from which one comes to the link again."""
    target = os.path.realpath(link)
    folders = {os.path.realpath(folder) for folder in PurePath(link).parents}
    return any(os.path.commonpath([target, folder]) == target for folder in folders)
