"""One worker node of Ray in a program on another machine, which ends with its connection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.gpus import choose_gpus
from hyperplane.clusters.ray.node_processes import (
    LONGEST_FOLDER,
    WAIT_VARIABLE,
    LocalWorkerNode,
    build_parameters,
    end_processes,
    start_node,
)
from hyperplane.clusters.remote_nodes.certificates import Certificate
from hyperplane.clusters.remote_nodes.worker_program import (
    OwnerConnection,
    WorkerProgram,
    run_worker,
)
from hyperplane.platforms.local.gpus import VARIABLE


class RayWorkerProgram(WorkerProgram):
    """The program with a worker node of Ray."""

    ended: ClassVar[str] = "the raylet of this worker node has ended"

    def __init__(self) -> None:
        self._node: LocalWorkerNode | None = None

    def find_folder_fault(self, folder: Path) -> str:
        """Return why the path is too long for the sockets of Ray; "" if it is not."""
        if len(os.fsencode(folder)) <= LONGEST_FOLDER:
            return ""
        longest = LONGEST_FOLDER - len(folder.name) - 1
        return (
            f"the path {folder} is too long for the sockets of Ray; set local_directory, or TMPDIR "
            f"on the node, to a path of at most {longest} bytes"
        )

    def start(self, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Start the node; return the process ID of its raylet."""
        os.environ[WAIT_VARIABLE] = "1"  # Ray reads it when it is imported
        if config["tls"]:
            certificate = Certificate(*(text.encode() for text in config["tls"]))
            certificate.write(folder)
        variables = driver_environment.build_variables(
            config["token"],
            loopback=False,
            tls_folder=str(folder) if config["tls"] else "",
        )
        os.environ.update({name: value for name, value in variables.items() if value is not None})
        if config["gpus"]:
            os.environ[VARIABLE] = ",".join(choose_gpus(config["gpus"], config.get("index", 0)))
        parameters = build_parameters(config, config["head"], str(folder), log_monitor=True)
        self._node = LocalWorkerNode(start_node(config["host"], **parameters))
        return {"pid": self._node.pid}

    def is_running(self) -> bool:
        """Return whether the raylet runs."""
        return self._node is not None and self._node.is_running()

    def end(self) -> None:
        """End all processes of the node."""
        end_processes()


def run_worker_node(connection: OwnerConnection) -> None:
    """Start the worker node of the config, and run until it or the connection ends."""
    run_worker(connection, connection.read_configuration(), RayWorkerProgram())
