"""Cluster objects of the engine ``ray:local``: of this process, and of another one."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil

from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.ray import driver_environment
from hyperplane.core.errors import EngineError, Fault, StartFailed, StartTimeout, check
from hyperplane.core.units import bytes_to_gb, format_bytes, plural
from hyperplane.platforms.local.process_identity import is_id_reused, start_time
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions

_logger = logging.getLogger(__name__)
ENGINE = "ray:local"
HOST = "127.0.0.1"
_PROGRAM = str(Path(__file__).with_name("node_program.py"))
#: Seconds that closing waits for the program, which itself waits at most five.
CLOSE_SECONDS = 60.0
_LOG_LINES = 20
#: Variable with the name of the cluster in the environment of all its processes.
_CLUSTER_VARIABLE = "HYPERPLANE_RAY_CLUSTER"
#: Ray's own limits of 30 to 60 s end a start on a loaded machine. The limit is that of the request.
_LONG_TIMEOUTS = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "1200",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "1200",
    "RAY_agent_register_timeout_ms": "1200000",
}


class LocalRayCluster:
    """A head and worker nodes of Ray on this machine, which this process owns.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; each worker process of it is a worker node of Ray.
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of Ray's session; short, because paths of sockets contain it.
    """

    #: Running clusters of this process by name.
    running: ClassVar[dict[str, LocalRayCluster]] = {}

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        self.name, self.plan, self.record = plan.name, plan, record
        self.address = self.dashboard = ""
        self.workers: list[str] = []
        self.end_reason = ""
        #: Requested worker nodes that a running cluster could not add, and why.
        self._not_added: dict[str, str] = {}
        self._changed = threading.Condition(threading.RLock())
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        token = record.security["token"]
        variables = {**os.environ, **driver_environment.build_token_variables(token)}
        environment = {name: value for name, value in variables.items() if value is not None}
        environment = {**_LONG_TIMEOUTS, **environment, "RAY_USAGE_STATS_ENABLED": "0"}
        environment[_CLUSTER_VARIABLE] = self.name
        # The dashboard leaves temporary folders when it is killed.
        environment["TMPDIR"] = str(folder)
        self._program = subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            # -P: the folder of the program is not searched for modules.
            [sys.executable, "-P", _PROGRAM, str(os.getpid())],
            cwd=record.scratch,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal ends this process, which closes the cluster
        )
        # At exit, too, and without a reference to this object.
        self._release = weakref.finalize(
            self, _release, os.getpid(), self._program, record.name, record.scratch, folder
        )
        self.running[self.name] = self
        reference = weakref.ref(self)
        for read in (_read_events, _read_log):
            threading.Thread(target=read, args=(reference, self._program), daemon=True).start()
        port = plan.dashboard_port
        self._send(
            folder=str(folder),
            scratch=record.scratch,
            idle_timeout=plan.idle_timeout,
            object_store=MIN_OBJECT_STORE,
            dashboard=plan.settings.dashboard,  # type: ignore[attr-defined]
            dashboard_port=port or None,
        )

    @property
    def status(self) -> str:
        """``running`` while the program with the nodes runs, then ``closed``."""
        return RUNNING if self._program.poll() is None and self._release.alive else CLOSED

    def find_end(self) -> str:
        """Return why the cluster has ended; an empty text while it runs."""
        if self.status == RUNNING and not self.end_reason:
            return ""
        return self.end_reason or "it was closed"

    @property
    def program_pid(self) -> int:
        """Process ID of the program whose children are the nodes."""
        return self._program.pid

    def start_head(self, deadline: float) -> None:
        """Wait until the head node has started."""
        self._wait_until(lambda: bool(self.address), deadline, "its head node has not started")

    def start_workers(
        self, count: int, deadline: float, announce: Callable[[str], None] | None = None
    ) -> None:
        """Start worker nodes one after the other, and call a function with the name of each."""
        options = RayOptions.of(self.plan.options)
        for started in range(count):
            name = f"ray-worker-{uuid.uuid4()}"
            self._send(
                worker=name,
                cpus=self.plan.worker.nthreads,
                memory=options.memory,
                object_store=options.object_store,
            )
            if announce is not None:
                announce(name)
            message = f"{started} of {plural(count, 'worker node')} have started"
            self._wait_until(
                lambda name=name: name in self.workers or name in self._not_added,  # type: ignore[misc]
                deadline,
                message,
            )
            if reason := self._not_added.pop(name, ""):
                raise StartFailed(ENGINE, f"{message}: {reason}", "\n".join(self._log))

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Start more worker nodes; raise a RequestError if this machine is too small for them."""
        machine = read_capacity(self.plan.settings.reserve_fraction)  # type: ignore[attr-defined]
        cores = (len(self.workers) + count) * self.plan.worker.nthreads
        ram = count * self.plan.worker.ram_per_proc
        if cores > machine.cores or ram > machine.ram:
            size = f"{plural(cores, 'core')} in all and {format_bytes(ram)} more memory"
            allowed = (
                f"worker nodes for which this machine has room: it has "
                f"{plural(machine.cores, 'core')} and {format_bytes(max(0, machine.ram))} of memory"
            )
            check([Fault("extra_workers", f"{count} ({size})", allowed)])
        with allow_interrupts():
            self.start_workers(count, time.monotonic() + self.plan.request.timeout, announce)
        self.write_record()

    def complete_start(self) -> None:
        """Write the record with the addresses, and start the clock of the idle timeout."""
        self.write_record()
        driver_environment.set_variables(self.address, self.record.security["token"])
        self._send(ready=True)

    def write_record(self) -> None:
        """Write the record with the running worker nodes."""
        with self._changed:
            if not self._release.alive:
                return
            count, worker = len(self.workers), self.plan.worker
            client = {
                "program": self.program_pid,
                "program_started": start_time(self.program_pid),
                "workers": list(self.workers),
            }
            self.record = replace(
                self.record,
                scheduler=self.address,
                dashboard=self.dashboard,
                workers=count,
                threads=count * worker.nthreads,
                ram_gb=bytes_to_gb(count * worker.ram_per_proc),
                client=client,
            )
            records.write(self.record)

    def close(self) -> None:
        """End all nodes and remove the record; safe to call repeatedly and from any thread."""
        with self._changed:
            self.running.pop(self.name, None)
            if self.address and self._release.alive:
                driver_environment.restore_variables(self.address)
            self._release()
            self.workers = []
            self._changed.notify_all()

    def _send(self, **request: Any) -> None:
        assert self._program.stdin is not None  # noqa: S101 - for mypy
        with suppress(OSError, ValueError):  # it has ended, which the next wait reports
            self._program.stdin.write((json.dumps(request) + "\n").encode())
            self._program.stdin.flush()

    def _wait_until(self, reached: Callable[[], bool], deadline: float, message: str) -> None:
        with self._changed:
            while not reached():
                remaining = deadline - time.monotonic()
                if self.status == CLOSED or self.end_reason:
                    log = "\n".join(self._log)
                    raise StartFailed(ENGINE, self.end_reason or "Ray has ended", log)
                if remaining <= 0:
                    raise StartTimeout(ENGINE, f"{message} in time", "\n".join(self._log))
                self._changed.wait(min(remaining, 0.2))

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        kind = event["event"]
        with self._changed:
            if kind == "head":
                self.address, self.dashboard = event["address"], event["dashboard"]
            elif kind == "worker":
                self.workers.append(event["name"])
            elif kind == "lost":
                self.workers = [each for each in self.workers if each != event["name"]]
            elif kind == "not_added":
                self._not_added[event["name"]] = event["message"]
            elif kind in {"abandoned", "warning"}:
                _logger.warning("cluster %s: %s", self.name, event["message"])
            else:
                self.end_reason = event.get("message") or "the idle timeout has passed"
                if kind == "failed" and self.record.scheduler:
                    _logger.error("cluster %s has ended: %s", self.name, self.end_reason)
            if kind in {"worker", "lost"} and self.record.scheduler:
                with suppress(OSError):  # a full disk; the record has the former workers
                    self.write_record()
            self._changed.notify_all()

    def add_log(self, line: str) -> None:
        """Remember a line of the program's log for messages."""
        self._log.append(line)

    def __repr__(self) -> str:
        return f"<LocalRayCluster {self.name} {self.address} {len(self.workers)} workers>"


class AttachedRayCluster:
    """A cluster on this machine that another process owns."""

    def __init__(self, record: records.ClusterRecord) -> None:
        self.name, self.record = record.name, record
        self.address, self.dashboard = record.scheduler, record.dashboard

    @property
    def status(self) -> str:
        """``running`` while the cluster is in the list of running clusters, then ``closed``."""
        return CLOSED if self._find() is None else RUNNING

    def find_end(self) -> str:
        """Return why the cluster has ended; an empty text while it runs."""
        return "" if self.status == RUNNING else f"process {self.record.pid} has closed it"

    @property
    def workers(self) -> list[str]:
        """Names of the running worker nodes."""
        record = self._find()
        return list(record.client["workers"]) if record is not None else []

    def _find(self) -> records.ClusterRecord | None:
        key = (self.record.name, self.record.pid, self.record.started)
        for record in records.read_all():
            if (record.name, record.pid, record.started) == key:
                return record
        return None

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Raise an EngineError: only the owner of a cluster can add worker nodes."""
        del announce
        raise EngineError(
            ENGINE,
            f"extra_workers={count}: only the process that started {self.name} can add worker "
            f"nodes, which is process {self.record.pid}",
        )

    def close(self) -> None:
        """End the nodes of the cluster, and wait until its owner has removed its record."""
        driver_environment.restore_variables(self.address)
        record = self._find()
        if record is None:
            return
        program = int(record.client["program"])
        if not is_id_reused(program, record.client["program_started"]):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(program).terminate()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self.status == RUNNING:
            if time.monotonic() > deadline:
                raise EngineError(ENGINE, f"process {record.pid} did not close {self.name}")
            time.sleep(0.05)

    def __repr__(self) -> str:
        return f"<AttachedRayCluster {self.name} {self.address}>"


def _read_events(reference: weakref.ref[LocalRayCluster], program: subprocess.Popen[bytes]) -> None:
    """Pass the events of the program on, and close the cluster when the program has ended."""
    assert program.stdout is not None  # noqa: S101 - for mypy
    with program.stdout as lines:
        for line in lines:
            if (event := _parse(line)) and (cluster := reference()) is not None:
                cluster.handle(event)
                del cluster
    if (cluster := reference()) is not None:
        cluster.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return an event; None for a line that a library has printed."""
    with suppress(ValueError):
        content = json.loads(line)
        if isinstance(content, dict) and "event" in content:
            return content
    return None


def _read_log(reference: weakref.ref[LocalRayCluster], program: subprocess.Popen[bytes]) -> None:
    assert program.stderr is not None  # noqa: S101 - for mypy
    with program.stderr as lines:
        for line in lines:
            if (cluster := reference()) is not None:
                cluster.add_log(line.decode(errors="replace").rstrip())
            del cluster


def _release(
    owner: int, program: subprocess.Popen[bytes], name: str, scratch: str, folder: Path
) -> None:
    """End the program and its nodes, and remove the record and the folders."""
    if os.getpid() != owner:  # in a fork
        return
    with suppress(OSError):
        program.stdin.close()  # type: ignore[union-attr]
    program.terminate()  # it does not read while it starts a node
    try:
        program.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    if program.returncode != 0:  # it was killed before it has ended all processes
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
