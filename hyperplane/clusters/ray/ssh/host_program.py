"""Program on hosts of the engine ``ray:ssh``: one worker node of Ray.

It receives its configuration, with token and certificates, and ends with the ssh connection, as
:mod:`hyperplane.platforms.ssh.host_program` describes.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from hyperplane.clusters.local_nodes.node_program import adopt_descendants
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.node_group import (
    LocalWorkerNode,
    RayNodeGroup,
    build_parameters,
    start_node,
)
from hyperplane.clusters.ray.ssh.certificates import Certificate
from hyperplane.platforms.local.machine import find_memory_fault
from hyperplane.platforms.ssh.host_program import (
    end_with_connection,
    read_configuration,
    send_reply,
)

#: Seconds for an orderly end, and how long a start may continue without the connection.
_END_SECONDS, _START_SECONDS = 15.0, 5.0
_POLL_SECONDS = 0.5


def main() -> None:
    """Start the worker node of the configuration, and run until it or the connection ends."""
    config = read_configuration()
    stop, ended = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stop.set())
    adopt_descendants()
    folder = Path(tempfile.mkdtemp(prefix="hyperplane-"))
    group = RayNodeGroup(lambda **event: None)  # for its end

    def clean() -> None:
        group.end()
        shutil.rmtree(folder, ignore_errors=True)

    def end() -> None:
        stop.set()
        if not ended.wait(_START_SECONDS):  # Ray waits for the head, which may have ended
            clean()

    end_with_connection(end, _END_SECONDS)
    try:
        if fault := find_memory_fault(config["ram"]):
            send_reply(fault=fault)
            return
        node = _start_node(config, folder)
        send_reply(pid=node.pid)
        while node.is_running() and not stop.wait(_POLL_SECONDS):
            pass
    except Exception as error:  # noqa: BLE001 - Ray raises any; the reply has the reason
        send_reply(fault=f"{type(error).__name__}: {error}")
    finally:
        clean()
        ended.set()


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


if __name__ == "__main__":
    main()
