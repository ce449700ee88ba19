"""One worker node of Ray in a program on another machine, which ends with its connection."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hyperplane.clusters.local_nodes.node_program import adopt_descendants
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.certificates import Certificate
from hyperplane.clusters.ray.node_processes import (
    LONGEST_FOLDER,
    WAIT_VARIABLE,
    LocalWorkerNode,
    build_parameters,
    end_processes,
    start_node,
)
from hyperplane.platforms.local.machine import find_memory_fault

#: Seconds for an orderly end, and how long a start may continue without the connection.
_END_SECONDS, _START_SECONDS = 15.0, 5.0
_POLL_SECONDS = 0.5


class OwnerConnection(Protocol):
    """The connection of a program to the process that starts it."""

    def read_configuration(self) -> dict[str, Any]:
        """Return the configuration, whose item ``variables`` is in the environment."""
        ...

    def send_reply(self, **fields: Any) -> None:
        """Send the process ID of the raylet as ``pid``, or a ``fault``."""

    def end_with_connection(self, stop: Callable[[], object], grace: float) -> None:
        """Call ``stop`` when the connection is closed; kill the process ``grace`` seconds later."""


def run_worker_node(connection: OwnerConnection) -> None:
    """Start the worker node of the configuration, and run until it or the connection ends."""
    config = connection.read_configuration()
    stop, ended = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stop.set())
    adopt_descendants()
    os.environ[WAIT_VARIABLE] = "1"  # Ray reads it when it is imported
    folders: list[Path] = []

    def clean() -> None:
        end_processes()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def end() -> None:
        stop.set()
        if not ended.wait(_START_SECONDS):  # Ray waits for the head, which may have ended
            clean()

    connection.end_with_connection(end, _END_SECONDS)
    try:
        if "ram" in config and (fault := find_memory_fault(config["ram"])):
            connection.send_reply(fault=fault)
            raise SystemExit(1)
        folders.append(_create_folder(config.get("local_directory")))
        node = _start_node(config, folders[0])
        connection.send_reply(pid=node.pid)
        while node.is_running() and not stop.wait(_POLL_SECONDS):
            pass
        if not stop.is_set():
            raise SystemExit("the raylet of this worker node has ended")
    except Exception as error:
        connection.send_reply(fault=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from error
    finally:
        clean()
        ended.set()


def _create_folder(parent: str | None) -> Path:
    """Return a new folder for Ray's session, by default in the temporary directory."""
    if parent is not None:
        Path(parent).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="hyperplane-", dir=parent))
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        folder.rmdir()
        raise OSError(
            f"the path {folder} is too long for the sockets of Ray; set local_directory, or TMPDIR "
            f"on the node, to a path of at most {LONGEST_FOLDER - len(folder.name) - 1} bytes"
        )
    return folder


def _start_node(config: dict[str, Any], folder: Path) -> LocalWorkerNode:
    if config["tls"]:
        certificate = Certificate(*(text.encode() for text in config["tls"]))
        driver_environment.write_certificates(folder, *certificate)
    variables = driver_environment.build_variables(
        config["token"], loopback=False, tls_folder=str(folder) if config["tls"] else ""
    )
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    parameters = build_parameters(config, config["head"], str(folder), log_monitor=True)
    return LocalWorkerNode(start_node(config["host"], **parameters))
