"""The process of ``node_program.py``, and the requests and events between it and its owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from hyperplane.clusters import records
from hyperplane.platforms.local import temporary_folders

_PROGRAM = str(Path(__file__).with_name("node_program.py"))
#: Folder of this package, from which the program imports modules.
_PACKAGE = str(Path(__file__).parents[2])
#: Seconds that closing waits for the program, which itself waits at most half a minute.
CLOSE_SECONDS = 60.0
_LOG_LINES = 40
#: Variable with the name and the folder of the cluster in the environment of all its processes.
_CLUSTER_VARIABLE = "HYPERPLANE_LOCAL_CLUSTER"


class EventHandler(Protocol):
    """Owner of the program."""

    def handle(self, event: dict[str, Any]) -> None:
        """Update the owner after an event that the program reports."""

    def close(self) -> None:
        """Close the owner after the program has ended."""


class NodeProgram:
    """The process that runs ``node_program.py``; its children are the processes of all nodes.

    Parameters
    ----------
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of the cluster, which is removed with it.
    group : str
        Module and name of the class that starts the nodes, such as ``package.module:Class``.
    environment : mapping of str to str
        Variables of all processes of the cluster; that with its name is added.
    disconnect : callable, optional
        Disconnects this process before the nodes end. It must not refer to the cluster's object,
        which would then never be collected.
    """

    def __init__(
        self,
        record: records.ClusterRecord,
        folder: Path,
        group: str,
        environment: Mapping[str, str],
        disconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            # -P: the folder of the program is not searched for modules.
            [sys.executable, "-P", _PROGRAM, str(os.getpid()), _PACKAGE, group],
            cwd=record.scratch,
            env={**environment, _CLUSTER_VARIABLE: f"{record.name} {folder}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal ends this process, which closes the cluster
        )
        # At exit, too, and without a reference to this object.
        arguments = os.getpid(), self._process, record.name, record.scratch, folder, disconnect
        self._release = weakref.finalize(self, _release, *arguments)

    @property
    def pid(self) -> int:
        """Process ID of the program."""
        return self._process.pid

    @property
    def log(self) -> str:
        """The last lines that the program and its children wrote."""
        return "\n".join(self._log)

    @property
    def is_released(self) -> bool:
        """Whether :meth:`release` was called."""
        return not self._release.alive

    def is_running(self) -> bool:
        """Return whether the program runs and was not released."""
        return self._process.poll() is None and not self.is_released

    def release(self) -> None:
        """End the program with all nodes, and remove the record and the folders; only once."""
        self._release()

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
    owner: int,
    process: subprocess.Popen[bytes],
    name: str,
    scratch: str,
    folder: Path,
    disconnect: Callable[[], None],
) -> None:
    """Disconnect this process, end the program, and remove the record and the folders."""
    if os.getpid() != owner:  # in a fork
        return
    # First: the driver of a program would report that it has lost its cluster.
    with suppress(Exception):  # the nodes have to end in any case
        disconnect()
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]
    process.terminate()  # it does not read while it starts a node
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode != 0:  # it was killed before it has ended all processes
        _kill_processes(f"{name} {folder}")
    records.remove(name, scratch)
    temporary_folders.remove_temporary_folder(folder)


def _kill_processes(cluster: str) -> None:
    """Kill the processes that have this cluster in their environment."""
    killed = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_CLUSTER_VARIABLE) == cluster:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, CLOSE_SECONDS)
