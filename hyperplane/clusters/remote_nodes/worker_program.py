"""One worker in a program on another machine, which ends with its connection."""

from __future__ import annotations

import glob
import shutil
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hyperplane.clusters.local_nodes.node_program import adopt_descendants
from hyperplane.platforms.local.machine import find_memory_fault

#: Seconds for an orderly end, and how long a start may continue without the connection.
_END_SECONDS, _START_SECONDS = 15.0, 5.0
_POLL_SECONDS = 0.5


class OwnerConnection(Protocol):
    """The connection of a program to the process that starts it."""

    def read_configuration(self) -> dict[str, Any]:
        """Return the config, whose item ``variables`` is in the environment."""
        ...

    def send_reply(self, **fields: Any) -> None:
        """Send the process ID of the worker as ``pid``, or a ``fault``."""

    def end_with_connection(self, stop: Callable[[], object], grace: float) -> None:
        """Call ``stop`` when the connection is closed; kill the process ``grace`` seconds later."""


class WorkerProgram(ABC):
    """What a framework adds to a program with one worker."""

    #: What has ended if the worker does not run any more.
    ended: ClassVar[str]

    def name_folder(self, config: dict[str, Any]) -> str:
        """Return the beginning of the name of the worker's folder, if it is only this worker's.

        Folders that a killed program of the same worker has left are then removed.
        """
        del config
        return ""

    def find_folder_fault(self, folder: Path) -> str:
        """Return why a folder is not suitable for the worker's files; "" if it is."""
        del folder
        return ""

    @abstractmethod
    def start(self, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Start the worker; return the reply, which has the item ``pid``."""

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether the worker runs."""

    @abstractmethod
    def end(self) -> None:
        """End all processes of the worker, also if it has not started completely."""


def run_worker(connection: OwnerConnection, config: dict[str, Any], program: WorkerProgram) -> None:
    """Start the worker of a config, and run until it or the connection ends."""
    stop, ended = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stop.set())
    adopt_descendants()
    folders: list[Path] = []

    def clean() -> None:
        program.end()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def end() -> None:
        stop.set()
        if not ended.wait(_START_SECONDS):  # it waits for the head, which may have ended
            clean()

    connection.end_with_connection(end, _END_SECONDS)
    try:
        if "ram" in config and (fault := find_memory_fault(config["ram"])):
            connection.send_reply(fault=fault)
            raise SystemExit(1)
        folders.append(_create_folder(config, program))
        connection.send_reply(**program.start(config, folders[0]))
        while program.is_running() and not stop.wait(_POLL_SECONDS):
            pass
        if not stop.is_set():
            raise SystemExit(program.ended)
    except Exception as error:
        connection.send_reply(fault=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from error
    finally:
        clean()
        ended.set()


def _create_folder(config: dict[str, Any], program: WorkerProgram) -> Path:
    """Return a new folder for the worker's files, by default in the temporary directory."""
    parent = Path(config.get("local_directory") or tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    prefix = program.name_folder(config)
    if prefix:
        for former in parent.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(former, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix or "hyperplane-", dir=parent))
    if fault := program.find_folder_fault(folder):
        folder.rmdir()
        raise OSError(fault)
    return folder
