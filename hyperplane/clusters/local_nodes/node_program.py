"""Program that runs the nodes of one cluster on this machine, and ends them when its parent ends.

It is run by its path, with the process ID of its parent, the folder of this package, and module and
name of a class that starts the nodes of one framework, a :class:`NodeGroup`.

Each line of standard input is a JSON object, which the group handles: the cluster, then nodes, then
``{"ready": true}``. At the end of the input, and after SIGTERM, all nodes are ended. Each line of
standard output is a JSON object with an event that the group reports, or ``failed``.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

_POLL_SECONDS = 0.25


class NodeGroup(Protocol):
    """Interface of the classes that start the nodes of one framework.

    A class is called with a function that reports an event by its keywords. All processes that it
    starts are children of this process.
    """

    def handle(self, request: dict[str, Any]) -> None:
        """Carry out a request of the owner."""

    def check(self) -> bool:
        """Replace ended nodes; return False if the cluster has to end."""
        ...

    def end(self) -> None:
        """End all processes of the cluster."""


def report(**event: Any) -> None:
    """Write an event for the owner; ignore that the owner has ended."""
    with suppress(OSError):
        sys.__stdout__.write(json.dumps(event) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


def main() -> None:
    """Run the nodes until the owner ends, closes the pipe or sends SIGTERM."""
    parent, package, name = sys.argv[1:]
    group = _load_class(package, name)(report)
    folders: list[str] = []
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_descendants()
    threading.Thread(target=_end_with_owner, args=(int(parent),), daemon=True).start()
    try:
        for request in _read_requests(int(parent)):
            if request is None:
                if not group.check():
                    break
                continue
            folders += [request[key] for key in ("folder", "scratch") if key in request]
            group.handle(request)
    except Exception as error:  # noqa: BLE001 - the owner raises it
        report(event="failed", message=f"{type(error).__name__}: {error}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        group.end()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _end_with_owner(parent: int) -> None:
    """End this process when its owner has ended, also while a node starts.

    A library may wait for minutes. The handler of SIGTERM raises SystemExit there.
    """
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _load_class(package: str, name: str) -> Callable[[Callable[..., None]], NodeGroup]:
    """Return a class by its module and name, such as ``package.module:Class``.

    The package is that of a folder, because the folders that the parent searches for modules are
    not known here. What its ``__init__`` does for users, which loads Dask, is left out.
    """
    module, _, attribute = name.partition(":")
    root = types.ModuleType(module.partition(".")[0])
    root.__path__ = [package]
    sys.modules[root.__name__] = root
    found: Callable[[Callable[..., None]], NodeGroup] = getattr(
        importlib.import_module(module), attribute
    )
    return found


def _read_requests(parent: int) -> Iterator[dict[str, Any] | None]:
    """Yield requests, and None while there are none, until the owner ends or closes the pipe.

    A process that was forked from the owner may keep the pipe open after the owner has ended;
    therefore the process ID of the parent is compared, too.
    """
    received = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            yield None
            continue
        chunk = os.read(0, 65_536)
        if not chunk:
            return
        *lines, received = (received + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def adopt_descendants() -> None:
    """Become the parent of descendants whose parent ends, so that they are found at the end."""
    if sys.platform.startswith("linux"):
        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


if __name__ == "__main__":
    main()
