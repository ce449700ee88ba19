"""Cluster objects of engines with a node program: clusters of this process, and of others."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

import psutil

from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.clusters.local_nodes.program_process import CLOSE_SECONDS, NodeProgram
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.core.units import bytes_to_gb, plural
from hyperplane.platforms.local.process_identity import is_id_reused, start_time
from hyperplane.spec.plan import ClusterPlan

_logger = logging.getLogger(__name__)


class LocalNodeCluster(ABC):
    """A cluster whose head is on this machine, and which this process owns.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; each worker process of it is a worker of the cluster.
    record : ClusterRecord
        The reserved record of the cluster.
    """

    #: Name of the engine, and names of the framework, of its head and of its workers for messages.
    engine: ClassVar[str]
    framework: ClassVar[str]
    head: ClassVar[str]
    noun: ClassVar[str] = "worker"
    #: Whether workers start at the same time, or one after the other.
    starts_together: ClassVar[bool]
    #: Running clusters of this process by name, one mapping for each framework.
    running: ClassVar[dict[str, Any]]

    _program: NodeProgram

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord) -> None:
        self.name, self.plan, self.record = plan.name, plan, record
        self.address = self.dashboard = ""
        self.workers: list[str] = []
        self.end_reason = ""
        self._pids: dict[str, int] = {}
        #: Addresses of the machines of the workers.
        self._hosts: dict[str, str] = {}
        #: Requested workers that a running cluster could not add, and why.
        self._not_added: dict[str, str] = {}
        #: Why workers are missing, as far as the program knows.
        self._start_status = ""
        self._changed = threading.Condition(threading.RLock())

    def __init_subclass__(cls) -> None:
        if "framework" in vars(cls):
            cls.running = {}

    @classmethod
    def find_own(cls, record: records.ClusterRecord) -> Self | None:
        """Return the cluster of a record if this process owns it."""
        return cls.running.get(record.name) if record.pid == os.getpid() else None

    def start_program(self, program: NodeProgram, **request: Any) -> None:
        """Send the first request to the program, and follow its events."""
        self._program = program
        self.running[self.name] = self
        try:
            program.watch(self)
        except BaseException:  # no thread can be started
            self.running.pop(self.name, None)
            program.release()
            raise
        program.send(scratch=self.record.scratch, idle_timeout=self.plan.idle_timeout, **request)

    @property
    def status(self) -> str:
        """``running`` while the program with the nodes runs, then ``closed``."""
        return RUNNING if self._program.is_running() else CLOSED

    @property
    def program_pid(self) -> int:
        """Process ID of the program whose children are the nodes."""
        return self._program.pid

    @property
    def worker_pids(self) -> dict[str, int]:
        """Process IDs of the workers by their names."""
        return dict(self._pids)

    def find_end(self) -> str:
        """Return why the cluster has ended; an empty text while it runs."""
        if self.status == RUNNING and not self.end_reason:
            return ""
        return self.end_reason or "it was closed"

    def wait_for_head(self, deadline: float) -> None:
        """Wait until the head accepts workers."""
        self._wait_until(
            lambda: bool(self.address), deadline, lambda: f"its {self.head} has not started"
        )

    @abstractmethod
    def describe_worker(self, name: str) -> dict[str, Any]:
        """Return the size and the place of a new worker, for the program that starts it."""

    def start_workers(
        self, count: int, deadline: float, announce: Callable[[str], None] = lambda name: None
    ) -> None:
        """Start workers, call a function with the name of each, and wait for all of them."""
        self._start_status = ""
        prefix = self.framework.lower()
        names = [f"{prefix}-worker-{uuid.uuid4()}" for _ in range(count)]
        try:
            self._start_and_wait(names, deadline, announce)
        except BaseException:
            self._program.send(withdraw=names)
            raise

    def _start_and_wait(
        self, names: list[str], deadline: float, announce: Callable[[str], None]
    ) -> None:
        for name in names:
            self._program.send(worker=name, **self.describe_worker(name))
            announce(name)
            if not self.starts_together:
                self._wait_for_workers(names, [name], deadline)
        if self.starts_together:
            self._wait_for_workers(names, names, deadline)

    def _wait_for_workers(self, every: list[str], names: list[str], deadline: float) -> None:
        """Wait until workers have started; ``every`` are those of the same call."""

        def describe() -> str:
            started = len({*every} & {*self.workers})
            text = f"{started} of {plural(len(every), self.noun)} have started"
            return f"{self._start_status}; {text}" if self._start_status else text

        def is_complete() -> bool:
            return bool({*names} & {*self._not_added}) or {*names} <= {*self.workers}

        self._wait_until(is_complete, deadline, describe)
        reasons = [self._not_added.pop(name, "") for name in names]
        if any(reasons):
            raise StartFailed(
                self.engine,
                f"{describe()}: {'; '.join(dict.fromkeys(filter(None, reasons)))}",
                self._program.log,
            )

    @abstractmethod
    def connect_programs(self) -> None:
        """Set the variables with which programs of this process find the cluster."""

    @abstractmethod
    def disconnect_programs(self) -> None:
        """Restore the variables, and disconnect this process."""

    def describe_connection(self) -> dict[str, Any]:
        """Return what other processes need to connect, in addition to the record's fields."""
        return {"hosts": dict(self._hosts)}

    def complete_start(self) -> None:
        """Write the record with the addresses, and start the clock of the idle timeout."""
        self.connect_programs()
        self.write_record()  # last: other processes connect as soon as they find it
        self._program.send(ready=True)

    def write_record(self) -> None:
        """Write the record with the running workers."""
        with self._changed:
            if self._program.is_released:
                return
            count, worker = len(self.workers), self.plan.worker
            self.record = replace(
                self.record,
                scheduler=self.address,
                dashboard=self.dashboard,
                workers=count,
                threads=count * worker.nthreads,
                ram_gb=bytes_to_gb(count * worker.ram_per_proc),
                client={
                    "program": self.program_pid,
                    "program_started": start_time(self.program_pid),
                    "workers": list(self.workers),
                    **self.describe_connection(),
                },
            )
            records.write(self.record)

    def close(self) -> None:
        """End all nodes and remove the record; safe to call repeatedly and from any thread."""
        with self._changed:
            self.running.pop(self.name, None)
            try:
                if not self._program.is_released:
                    self.disconnect_programs()
            finally:
                self._program.release()
                self.workers = []
                self._changed.notify_all()

    def _wait_until(
        self, reached: Callable[[], bool], deadline: float, describe: Callable[[], str]
    ) -> None:
        """Wait; ``describe`` returns what has not been reached at the deadline."""
        with self._changed:
            while not reached():
                remaining = deadline - time.monotonic()
                if self.status == CLOSED or self.end_reason:
                    reason = self.end_reason or f"{self.framework} has ended"
                    raise StartFailed(self.engine, reason, self._program.log)
                if remaining <= 0:
                    raise StartTimeout(self.engine, f"{describe()} in time", self._program.log)
                report_start(self.name, len(self.workers), describe())
                self._changed.wait(min(remaining, 0.2))

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        kind = event["event"]
        with self._changed:
            if kind == "status":
                self._start_status = event["text"]
                return
            if kind in {"not_added", "abandoned"}:
                self._not_added[event["name"]] = event["message"]
            if kind == "head":
                self.address, self.dashboard = event["address"], event["dashboard"]
            elif kind == "worker":
                self.workers.append(event["name"])
                self._pids[event["name"]] = event["pid"]
                self._hosts[event["name"]] = event["host"]
            elif kind == "lost":
                self.workers = [each for each in self.workers if each != event["name"]]
                self._pids.pop(event["name"], None)
            elif kind in {"not_added", "withdrawn"}:
                pass
            elif kind in {"warning", "abandoned"}:
                _logger.warning("cluster %s: %s", self.name, event["message"])
            else:
                self.end_reason = event.get("message") or "the idle timeout has passed"
                if kind == "failed" and self.record.scheduler:
                    _logger.error("cluster %s has ended: %s", self.name, self.end_reason)
            if kind in {"worker", "lost"} and self.record.scheduler:
                with suppress(OSError):  # a full disk; the record has the former workers
                    self.write_record()
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.address} {len(self.workers)} workers>"


class AttachedNodeCluster(ABC):
    """A cluster on this machine that another process owns.

    Parameters
    ----------
    record : ClusterRecord
        Its record.
    """

    def __init__(self, record: records.ClusterRecord) -> None:
        self.name, self.record = record.name, record
        self.address, self.dashboard = record.scheduler, record.dashboard

    @property
    def engine(self) -> str:
        """Name of the engine."""
        return self.record.engine

    @property
    def status(self) -> str:
        """``running`` while the cluster is in the list of running clusters, then ``closed``."""
        return CLOSED if self._find() is None else RUNNING

    def find_end(self) -> str:
        """Return why the cluster has ended; an empty text while it runs."""
        return "" if self.status == RUNNING else f"process {self.record.pid} has closed it"

    @property
    def workers(self) -> list[str]:
        """Names of the running workers."""
        record = self._find()
        return list(record.client["workers"]) if record is not None else []

    def _find(self) -> records.ClusterRecord | None:
        key = (self.record.name, self.record.pid, self.record.started)
        for record in records.read_all():
            if (record.name, record.pid, record.started) == key:
                return record
        return None

    @abstractmethod
    def disconnect_programs(self) -> None:
        """Restore the variables of this process, and disconnect it."""

    def close(self) -> None:
        """End the nodes of the cluster, and wait until its owner has removed its record."""
        self.disconnect_programs()
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
                raise EngineError(record.engine, f"process {record.pid} did not close {self.name}")
            time.sleep(0.05)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.address}>"
