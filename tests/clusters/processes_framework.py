"""A second framework for the contract of engines: a cluster is a set of plain Python processes.

It is what a package outside of hyperplane would write, uses only what all frameworks share, and
imports nothing of Dask.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import AuthenticationError, connection
from pathlib import Path
from typing import Any, ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.framework import CLOSED, RUNNING, ClusterAddresses, OptionsDraft
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.reserved_memory import open_clusters, unreserved_memory
from hyperplane.clusters.running_clusters import describe_running, read_running
from hyperplane.core.errors import EngineError, Fault, StartFailed, StartTimeout
from hyperplane.core.units import format_bytes, plural
from hyperplane.platforms.local import machine
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.framework_options import FrameworkOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, MachineSettings

ENGINE = "processes:local"
#: Entry points with which a package registers the framework and its engine.
ENTRY_POINTS = f"""\
[hyperplane.frameworks]
processes = {__name__}:ProcessesFramework
[hyperplane.engines]
{ENGINE} = {__name__}:LocalProcessesEngine
"""
_HOST = "127.0.0.1"
_CLOSE = "close"
#: Seconds that closing waits for the owner.
PATIENCE = 30.0


@dataclass(frozen=True)
class ProcessOptions(FrameworkOptions):
    """The section of a plan: the limit of the address space of each process, in bytes."""

    address_space: int

    def rows(self) -> list[tuple[str, str]]:
        """Return the row of the printed plan."""
        return [("address space", format_bytes(self.address_space))]

    def to_dict(self) -> dict[str, Any]:
        """Return the key of the plan as JSON."""
        return {"address_space": self.address_space}


class ProcessesFramework:
    """Clusters whose workers are plain processes."""

    name: ClassVar[str] = "processes"

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return a section with the memory of a process as the limit of its address space."""
        del request
        return OptionsDraft(lambda worker, nodes: ProcessOptions(worker.ram_per_proc))

    def check_process(self) -> None:
        """Accept every process."""

    def prepare(self, started: StartedCluster[Any, Any], attached: bool) -> None:
        """Leave the objects as the engine returned them."""

    def status(self, cluster: ProcessCluster | AttachedProcesses) -> str:
        """Return the status of a cluster object."""
        return cluster.status

    def addresses(self, started: StartedCluster[Any, Any]) -> ClusterAddresses:
        """Return the address of the owner; there is no dashboard."""
        return ClusterAddresses(started.cluster.address, "")

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return nothing: the engine has a start line."""
        del plan
        return []

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return one line without a dashboard."""
        assert dashboard == ""
        return [f"{plural(plan.dask_workers, 'process')} of {plan.name} are ready"]


class ProcessSettings(MachineSettings):
    """Settings of the engine."""

    program: str = str(Path(__file__).with_name("processes_worker.py"))


class LocalProcessesEngine:
    """Starts processes on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset({"memory", "tuning", "dashboard_port"})
    settings: ClassVar[type[EngineSettings]] = ProcessSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return that it is always usable."""
        return Availability(True, "needs nothing but Python")

    def capacity(self, settings: EngineSettings) -> MachineCapacity:
        """Return the cores, and the free memory without a reserve and open clusters."""
        fraction = 1 - cast(ProcessSettings, settings).reserve_fraction
        free = unreserved_memory(machine.free_ram(), fraction, open_clusters())
        return MachineCapacity(machine.cores(), free)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return nothing: a request is reduced to what this machine has."""
        del request, settings
        return []

    def start_line(self, plan: ClusterPlan) -> str:
        """Return one line that says what is started."""
        return f"starting {plural(plan.dask_workers, 'process')} on this machine"

    def start(self, plan: ClusterPlan) -> StartedCluster[ProcessClient, ProcessCluster]:
        """Start the processes; return when all have connected."""
        key = secrets.token_hex(32)
        record = records.ClusterRecord.from_plan(plan, security={"key": key})
        try:
            record = records.reserve(record, None)
        except OSError as error:
            raise StartFailed(ENGINE, str(error)) from error
        cluster = ProcessCluster(plan, record)
        try:
            with allow_interrupts():
                cluster.wait_for_workers()
            records.write(replace(record, scheduler=cluster.address))
            return StartedCluster(ProcessClient(cluster.address, key), cluster)
        except BaseException:
            cluster.close()
            raise

    def connect(
        self, name: str, settings: EngineSettings
    ) -> StartedCluster[ProcessClient, AttachedProcesses]:
        """Attach to a cluster of another process."""
        del settings
        running = read_running(ENGINE)
        for record in running:
            if (record.name, record.engine) == (name, ENGINE):
                client = ProcessClient(record.scheduler, record.security["key"])
                return StartedCluster(client, AttachedProcesses(record))
        raise EngineError(
            ENGINE, f"this machine runs no cluster {name!r}; {describe_running(running)}"
        )


class ProcessClient:
    """Calls functions in the processes of a cluster."""

    def __init__(self, address: str, key: str) -> None:
        self._owner = _connect(address, key)
        self._owner.send("client")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call in the next process."""
        self._owner.send((function, arguments))
        succeeded, result = self._owner.recv()
        if not succeeded:
            raise result
        return result

    def close(self) -> None:
        """Close the connection but not the cluster."""
        self._owner.close()


class AttachedProcesses:
    """A cluster that another process owns."""

    def __init__(self, record: records.ClusterRecord) -> None:
        self.name, self.address = record.name, record.scheduler
        self._key = record.security["key"]

    @property
    def status(self) -> str:
        """Whether the cluster is in the list of running clusters."""
        return RUNNING if any(one.name == self.name for one in records.read_all()) else CLOSED

    def close(self) -> None:
        """Ask the owner to close the cluster, and wait until it has."""
        if self.status == CLOSED:
            return
        with contextlib.suppress(OSError, EOFError), _connect(self.address, self._key) as owner:
            owner.send(_CLOSE)
        deadline = time.monotonic() + PATIENCE
        while self.status == RUNNING and time.monotonic() < deadline:
            time.sleep(0.02)


class ProcessCluster:
    """The processes of a cluster, which this process owns."""

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord) -> None:
        self.name, self.status = plan.name, "starting"
        self._plan, self._key = plan, bytes.fromhex(record.security["key"])
        self._closing = threading.RLock()
        self._ready = threading.Condition()
        self._connected: list[tuple[connection.Connection, threading.Lock]] = []
        self._calls, self._busy, self._used_at = 0, 0, time.monotonic()
        self._listener = connection.Listener((_HOST, 0), authkey=self._key, backlog=64)
        port = self._listener.address[1]
        self.address = f"{_HOST}:{port}"
        self._processes: list[subprocess.Popen[str]] = []
        # At exit, too, and without a reference to this object.
        self._release = weakref.finalize(
            self, _release, self._processes, record.name, record.scratch
        )
        threading.Thread(target=self._accept, daemon=True).start()
        options = cast(ProcessOptions, plan.options)
        connection_details = {
            "host": _HOST,
            "port": port,
            "key": record.security["key"],
            "address_space": options.address_space,
        }
        program = cast(ProcessSettings, plan.settings).program
        for _ in range(plan.dask_workers):
            process = subprocess.Popen(
                [sys.executable, program], stdin=subprocess.PIPE, text=True, cwd=record.scratch
            )
            self._processes.append(process)
            assert process.stdin is not None
            # Not in the arguments, which all users of the machine can read.
            process.stdin.write(json.dumps(connection_details) + "\n")
            process.stdin.flush()

    def wait_for_workers(self) -> None:
        """Wait until all processes have connected; raise a StartTimeout if they do not."""
        count = self._plan.dask_workers
        with self._ready:
            ready = self._ready.wait_for(
                lambda: len(self._connected) == count, self._plan.request.timeout
            )
        if not ready:
            raise StartTimeout(ENGINE, f"{len(self._connected)} of {count} processes connected")
        self.status, self._used_at = RUNNING, time.monotonic()
        if self._plan.idle_timeout is not None:
            threading.Thread(
                target=_close_when_idle,
                args=(weakref.ref(self), self._plan.idle_timeout),
                daemon=True,
            ).start()

    def _accept(self) -> None:
        while self.status != CLOSED:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                peer = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: connection.Connection) -> None:
        with contextlib.suppress(OSError, EOFError):
            role = peer.recv()
            if role == "worker":
                with self._ready:
                    self._connected.append((peer, threading.Lock()))
                    self._ready.notify_all()
                return
            while role == "client":
                peer.send(self._call(peer.recv()))
            if role == _CLOSE:
                self.close()

    def _call(self, request: Any) -> tuple[bool, Any]:
        worker, lock = self._connected[self._calls % len(self._connected)]
        self._calls += 1
        with self._count_busy(), lock:
            worker.send(request)
            answer: tuple[bool, Any] = worker.recv()
            return answer

    @contextlib.contextmanager
    def _count_busy(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy, self._used_at = self._busy - 1, time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Return whether no function was called for some time."""
        return not self._busy and time.monotonic() - self._used_at > seconds

    def close(self) -> None:
        """End the processes and remove the record."""
        with self._closing:
            self._release()
            if self.status != CLOSED:
                self.status = CLOSED
                with contextlib.suppress(OSError):
                    # Wakes the thread that accepts connections. No authentication: that thread may
                    # have seen the status already, and would never answer.
                    socket.create_connection(self._listener.address).close()
                self._listener.close()
            for worker, _ in self._connected:
                worker.close()


def _connect(address: str, key: str) -> connection.Connection:
    host, _, port = address.rpartition(":")
    return connection.Client((host, int(port)), authkey=bytes.fromhex(key))


def _close_when_idle(reference: weakref.ref[ProcessCluster], seconds: float) -> None:
    while (cluster := reference()) is not None and cluster.status == RUNNING:
        if cluster.is_idle(seconds):
            cluster.close()
        del cluster
        time.sleep(min(0.1, seconds / 4))


def _release(processes: list[subprocess.Popen[str]], name: str, scratch: str) -> None:
    for process in processes:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
    for process in processes:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    records.remove(name, scratch)
