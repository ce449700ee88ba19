"""One worker of Spark in a program on another machine, which ends with its connection."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters.remote_nodes.worker_program import WorkerProgram
from hyperplane.clusters.spark import configuration, installation, processes
from hyperplane.platforms.local.machine import find_memory_fault

#: Seconds for a connection to the master, and in which a worker opens its port.
_CONNECT_SECONDS, _START_SECONDS = 10.0, 300.0
_JAVA_ADVICE = (
    "; for hosts set java_home in hyperplane.engines.spark_ssh, for jobs of Slurm add a line to "
    "prologue"
)
#: Variable from which processes of Spark read the secret.
_SECRET = "_SPARK_AUTH_SECRET"  # noqa: S105 - a name


def read_versions() -> dict[str, str]:
    """Return the versions that must be the same on all machines."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pyspark": importlib.metadata.version("pyspark"),
    }


def find_machine_fault(expected: dict[str, Any]) -> str:
    """Return why workers cannot run on this machine; "" if they can.

    ``expected`` has the versions of :func:`read_versions` on the machine of the master, and
    ``ram``, the memory of all workers here in bytes.
    """
    faults = [installation.find_problem(_JAVA_ADVICE), find_memory_fault(expected["ram"])]
    if not faults[0]:
        faults += [
            f"it has {name} {found}, but the machine of the master has {expected[name]}; install "
            "the same version, or set python in the section of the engine"
            for name, found in read_versions().items()
            if found != expected[name]
        ]
    return "; ".join(filter(None, faults))


class SparkWorkerProgram(WorkerProgram):
    """The program with a worker of Spark."""

    ended: ClassVar[str] = "the worker of Spark has ended"

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def name_folder(self, config: dict[str, Any]) -> str:
        """Return a name with that of the worker."""
        return f"hyperplane-{config['worker']}-"

    def start(self, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Start the worker; return its process ID and its port."""
        if fault := find_machine_fault(config["check"]) if "check" in config else "":
            raise RuntimeError(fault)
        _check_connection(config["master"])
        home = installation.find_home()
        former = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
        configuration.create_folder(folder, former)
        configuration.write_properties(folder, None, config["properties"])
        self._process = processes.start_worker(
            processes.build_java_command(home, folder),
            config["host"],
            config,
            str(folder / "work"),
            config["master"],
            {**processes.build_environment(home, folder), **_build_variables(config, folder)},
        )
        return {"pid": self._process.pid, "port": self._wait_for_port(config["host"])}

    def _wait_for_port(self, host: str) -> int:
        """Return the port at which the worker listens."""
        assert self._process is not None  # noqa: S101 - for mypy
        deadline = time.monotonic() + _START_SECONDS
        while self.is_running() and time.monotonic() < deadline:
            for address, port in processes.find_addresses(self._process.pid):
                if address == host:
                    return port
            time.sleep(0.1)
        raise RuntimeError(
            "the worker of Spark has ended, or opened no port in time; its output has the reason"
        )

    def is_running(self) -> bool:
        """Return whether the process of the worker runs."""
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """End the worker and its executors."""
        if self._process is not None:
            self._process.kill()  # first: it would start executors again
        processes.kill_children()


def _build_variables(config: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return variables of the worker that its executors inherit.

    The options of executors come from the program, which does not know a folder of this machine.
    """
    temporary = shlex.quote(f"-Djava.io.tmpdir={configuration.temporary_folder(folder)}")
    former = os.environ.get("JAVA_TOOL_OPTIONS", "")
    return {_SECRET: config["secret"], "JAVA_TOOL_OPTIONS": f"{former} {temporary}".strip()}


def _check_connection(master: str) -> None:
    """Raise an error if this machine does not reach the master."""
    host, _, port = master.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise RuntimeError(
            f"this machine cannot connect to the master at {host}, port {port} ({error}); machines "
            "of a cluster must reach each other at any port"
        ) from error
