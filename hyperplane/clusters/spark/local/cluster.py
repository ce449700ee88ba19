"""Cluster objects of the engine ``spark:local``: of this process, and of another one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil

from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.clusters.spark import configuration, driver, installation
from hyperplane.clusters.spark.local.program import CLOSE_SECONDS, SparkProgram
from hyperplane.core.errors import EngineError, StartFailed, StartTimeout
from hyperplane.core.units import bytes_to_gb, plural
from hyperplane.platforms.local.process_identity import is_id_reused, start_time
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings.spark import PropertyValue, SparkLocalSettings
from hyperplane.spec.spark_options import MIB, SparkOptions

ENGINE = "spark:local"
#: The heap of the master and of each worker, which only start executors.
_DAEMON_MEMORY = "-Xmx256m"
#: Less memory and a shorter start, for processes that have little to do.
_DAEMON_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class LocalSparkCluster:
    """A master and workers of Spark on this machine, which this process owns.

    Parameters
    ----------
    plan : ClusterPlan
        The plan; each worker process of it is a worker of Spark with one executor.
    record : ClusterRecord
        The reserved record of the cluster.
    folder : Path
        Folder of the cluster, which is removed with it.
    home : Path
        Folder of Spark (``SPARK_HOME``).
    secret : str
        Secret of all processes of the cluster and of programs that use it.
    """

    #: Running clusters of this process by name.
    running: ClassVar[dict[str, LocalSparkCluster]] = {}

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> None:
        self.name, self.plan, self.record = plan.name, plan, record
        self.address = self.dashboard = ""
        self.workers: list[str] = []
        self.end_reason = ""
        self.home, self.conf = home, configuration.configuration_folder(folder)
        self._folder, self._changed = folder, threading.Condition(threading.RLock())
        self._pids: dict[str, int] = {}
        options = SparkOptions.of(plan.options)
        settings = plan.settings
        assert isinstance(settings, SparkLocalSettings)  # noqa: S101 - of this engine
        self._properties: dict[str, PropertyValue] = {
            **settings.properties,
            **configuration.build_properties(
                options, plan.worker.nthreads, folder, secret, settings.dashboard
            ),
        }
        self._former = driver.find_former_configuration(home)
        configuration.create_folder(folder, self._former)
        configuration.write_properties(folder, self._former, self._properties)
        self._program = SparkProgram(
            record,
            folder,
            {
                "SPARK_CONF_DIR": str(self.conf),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_DIRS": str(configuration.temporary_folder(folder)),
                "SPARK_LOCAL_IP": configuration.HOST,
                # Workers build the commands of executors with it.
                "SPARK_SCALA_VERSION": installation.find_scala_version(home),
                "TMPDIR": str(configuration.temporary_folder(folder)),
            },
        )
        self.running[self.name] = self
        self._program.watch(self)
        self._program.send(
            folder=str(folder),
            scratch=record.scratch,
            java=self._build_java_command(),
            idle_timeout=plan.idle_timeout,
            page_port=plan.dashboard_port or 0,
        )

    def _build_java_command(self) -> list[str]:
        """Return the start of the command of the master and of each worker.

        ``spark-class`` starts a second JVM to build the same command, and reads ``spark-env.sh``.
        """
        classes = f"{self.conf}/:{self.home}/jars/*"
        options = (*_DAEMON_OPTIONS, *configuration.build_java_options(self._folder))
        return [installation.find_java(), "-cp", classes, _DAEMON_MEMORY, *options]

    @property
    def status(self) -> str:
        """``running`` while the program with the cluster's processes runs, then ``closed``."""
        return RUNNING if self._program.is_running() else CLOSED

    @property
    def program_pid(self) -> int:
        """Process ID of the program whose children are the master and the workers."""
        return self._program.pid

    @property
    def worker_pids(self) -> dict[str, int]:
        """Process IDs of the workers by their names."""
        return dict(self._pids)

    def start_master(self, deadline: float) -> None:
        """Wait until the master accepts workers."""
        self._wait_until(lambda: bool(self.address), deadline, "its master has not started")

    def start_workers(self, count: int, deadline: float, announce: Callable[[str], None]) -> None:
        """Start all workers, and call a function with the name of each."""
        options = SparkOptions.of(self.plan.options)
        for _ in range(count):
            name = f"spark-worker-{uuid.uuid4()}"
            self._program.send(
                worker=name,
                cores=self.plan.worker.nthreads,
                memory=f"{options.heap // MIB}M",
            )
            announce(name)
        while len(self.workers) < count:
            ready = len(self.workers)
            self._wait_until(
                lambda ready=ready: len(self.workers) > ready,  # type: ignore[misc]
                deadline,
                f"{ready} of {plural(count, 'worker')} have started",
            )

    def complete_start(self) -> None:
        """Make programs use the cluster, and start the clock of the idle timeout."""
        properties = {**self._properties, "spark.master": self.address}
        configuration.write_properties(self._folder, self._former, properties)
        self.write_record()
        driver.set_variables(self.conf, self.home)
        self._program.send(ready=True)

    @contextmanager
    def pause_idle_timeout(self) -> Iterator[None]:
        """Stop the clock of the idle timeout during the start of a session, and restart it."""
        self._program.send(ready=False)
        try:
            yield
        finally:
            self._program.send(ready=True)

    def write_record(self) -> None:
        """Write the record with the running workers."""
        with self._changed:
            if not self._program.release.alive:
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
                    "conf": str(self.conf),
                    "home": str(self.home),
                },
            )
            records.write(self.record)

    def close(self) -> None:
        """End all processes and remove the record; safe to call repeatedly and from any thread."""
        with self._changed:
            self.running.pop(self.name, None)
            driver.restore_variables(self.conf)
            self._program.release()
            self.workers = []
            self._changed.notify_all()

    def _wait_until(self, reached: Callable[[], bool], deadline: float, message: str) -> None:
        with self._changed:
            while not reached():
                remaining = deadline - time.monotonic()
                if self.status == CLOSED or self.end_reason:
                    raise StartFailed(
                        ENGINE, self.end_reason or "Spark has ended", self._program.log
                    )
                if remaining <= 0:
                    raise StartTimeout(ENGINE, f"{message} in time", self._program.log)
                self._changed.wait(min(remaining, 0.2))

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        kind = event["event"]
        with self._changed:
            if kind == "head":
                self.address, self.dashboard = event["address"], event["dashboard"]
            elif kind == "worker":
                self.workers.append(event["name"])
                self._pids[event["name"]] = event["pid"]
            elif kind == "lost":
                self.workers = [each for each in self.workers if each != event["name"]]
                self._pids.pop(event["name"], None)
            else:
                self.end_reason = event.get("message") or "the idle timeout has passed"
            if kind in {"worker", "lost"} and self.record.scheduler:
                with suppress(OSError):  # a full disk; the record has the former workers
                    self.write_record()
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<LocalSparkCluster {self.name} {self.address} {len(self.workers)} workers>"


class AttachedSparkCluster:
    """A cluster on this machine that another process owns."""

    def __init__(self, record: records.ClusterRecord) -> None:
        self.name, self.record = record.name, record
        self.address, self.dashboard = record.scheduler, record.dashboard

    @property
    def status(self) -> str:
        """``running`` while the cluster is in the list of running clusters, then ``closed``."""
        return CLOSED if self._find() is None else RUNNING

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

    def close(self) -> None:
        """End the processes of the cluster, and wait until its owner has removed its record."""
        driver.restore_variables(Path(self.record.client["conf"]))
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
        return f"<AttachedSparkCluster {self.name} {self.address}>"
