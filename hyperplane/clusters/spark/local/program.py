"""The process with the master and workers of a local Spark cluster, and its messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from hyperplane.clusters import records
from hyperplane.clusters.spark import driver
from hyperplane.clusters.spark.configuration import configuration_folder

_PROGRAM = str(Path(__file__).with_name("node_program.py"))
#: Seconds that closing waits for the program, which itself waits at most five.
CLOSE_SECONDS = 60.0
_LOG_LINES = 40
#: Variable with the name of the cluster in the environment of all its processes.
_CLUSTER_VARIABLE = "HYPERPLANE_SPARK_CLUSTER"


class EventHandler(Protocol):
    """Owner of the program."""

    def handle(self, event: dict[str, Any]) -> None:
        """Update the owner after an event that the program reports."""

    def close(self) -> None:
        """Close the owner after the program has ended."""


class SparkProgram:
    """The process that runs ``node_program.py``; its children are the master and the workers.

    Parameters
    ----------
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of the cluster, with its configuration.
    variables : dict of str to str
        Variables of the cluster's processes, in addition to those of this process that are not
        variables of Spark.
    """

    def __init__(
        self, record: records.ClusterRecord, folder: Path, variables: dict[str, str]
    ) -> None:
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SPARK_")
        }
        self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            # -P: the folder of the program is not searched for modules.
            [sys.executable, "-P", _PROGRAM, str(os.getpid())],
            cwd=record.scratch,
            env={**environment, **variables, _CLUSTER_VARIABLE: record.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal ends this process, which closes the cluster
        )
        # At exit, too, and without a reference to this object.
        self.release = weakref.finalize(
            self, _release, os.getpid(), self._process, record.name, record.scratch, folder
        )

    @property
    def pid(self) -> int:
        """Process ID of the program."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The last lines that the program and its children wrote."""
        return "\n".join(self._log)

    def is_running(self) -> bool:
        """Return whether the program runs and was not released."""
        return self._process.poll() is None and bool(self.release.alive)

    def watch(self, owner: EventHandler) -> None:
        """Pass the events of the program to its owner, and close the owner when it has ended."""
        for read, target in ((_read_events, weakref.ref(owner)), (_read_log, self._log)):
            arguments = (target, self._process)
            threading.Thread(target=read, args=arguments, daemon=True).start()

    def send(self, **request: Any) -> None:
        """Send a request to the program."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy
        with suppress(OSError, ValueError):  # it has ended, which the next wait reports
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()


def _read_events(reference: weakref.ref[EventHandler], process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None  # noqa: S101 - for mypy
    with process.stdout as lines:
        for line in lines:
            if (event := _parse(line)) and (owner := reference()) is not None:
                owner.handle(event)
                del owner
    if (owner := reference()) is not None:
        owner.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return an event; None for a line that a library has printed."""
    with suppress(ValueError):
        content = json.loads(line)
        if isinstance(content, dict) and "event" in content:
            return content
    return None


def _read_log(log: deque[str], process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None  # noqa: S101 - for mypy
    with process.stderr as lines:
        for line in lines:
            log.append(line.decode(errors="replace").rstrip())


def _release(
    owner: int, process: subprocess.Popen[bytes], name: str, scratch: str, folder: Path
) -> None:
    """End the driver and the program, and remove the record and the folders."""
    if os.getpid() != owner:  # in a fork
        return
    # The driver first: it would report that it has lost its cluster.
    driver.disconnect(configuration_folder(folder))
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]
    process.terminate()  # it may not read
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode != 0:  # it was killed before it has ended all processes
        _kill_processes(name)
    records.remove(name, scratch)
    records.remove_cluster_folder(folder)


def _kill_processes(name: str) -> None:
    """Kill the processes of a cluster, which have its name in their environment."""
    killed = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_CLUSTER_VARIABLE) == name:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, CLOSE_SECONDS)
