"""Cluster objects of the engine ``spark:local``: of this process, and of another one."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.local_nodes.cluster import AttachedNodeCluster, LocalNodeCluster
from hyperplane.clusters.local_nodes.program_process import NodeProgram
from hyperplane.clusters.spark import configuration, driver, installation
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings.spark import PropertyValue, SparkLocalSettings
from hyperplane.spec.spark_options import MIB, SparkOptions

ENGINE = "spark:local"
_NODE_GROUP = "hyperplane.clusters.spark.local.node_group:SparkNodeGroup"
#: The heap of the master and of each worker, which only start executors.
_DAEMON_MEMORY = "-Xmx256m"
#: Less memory and a shorter start, for processes that have little to do.
_DAEMON_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class LocalSparkCluster(LocalNodeCluster):
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

    engine: ClassVar[str] = ENGINE
    framework: ClassVar[str] = "Spark"
    head: ClassVar[str] = "master"

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> None:
        super().__init__(plan, record)
        self.home, self.conf = home, configuration.configuration_folder(folder)
        self._folder = folder
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
        self.start_program(
            NodeProgram(
                record,
                folder,
                _NODE_GROUP,
                self._build_environment(),
                functools.partial(driver.restore_variables, self.conf),
            ),
            folder=str(folder),
            java=self._build_java_command(),
            page_port=plan.dashboard_port or 0,
        )

    def _build_environment(self) -> dict[str, str]:
        """Return the variables of all processes, without those of Spark of this process."""
        temporary = str(configuration.temporary_folder(self._folder))
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith("SPARK_")},
            "SPARK_CONF_DIR": str(self.conf),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_DIRS": temporary,
            "SPARK_LOCAL_IP": configuration.HOST,
            # Workers build the commands of executors with it.
            "SPARK_SCALA_VERSION": installation.find_scala_version(self.home),
            "TMPDIR": temporary,
        }

    def _build_java_command(self) -> list[str]:
        """Return the start of the command of the master and of each worker.

        ``spark-class`` starts a second JVM to build the same command, and reads ``spark-env.sh``.
        """
        classes = f"{self.conf}/:{self.home}/jars/*"
        options = (*_DAEMON_OPTIONS, *configuration.build_java_options(self._folder))
        return [installation.find_java(), "-cp", classes, _DAEMON_MEMORY, *options]

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
                lambda ready=ready: f"{ready} of {plural(count, 'worker')} have started",  # type: ignore[misc]
            )

    def connect_programs(self) -> None:
        """Make new sessions use the cluster."""
        properties = {**self._properties, "spark.master": self.address}
        configuration.write_properties(self._folder, self._former, properties)
        driver.set_variables(self.conf, self.home)

    def disconnect_programs(self) -> None:
        """End the driver of this process, and restore the variables before the cluster."""
        driver.restore_variables(self.conf)

    def describe_connection(self) -> dict[str, str]:
        """Return the values of ``SPARK_CONF_DIR`` and ``SPARK_HOME``."""
        return {"conf": str(self.conf), "home": str(self.home)}

    @contextmanager
    def pause_idle_timeout(self) -> Iterator[None]:
        """Stop the clock of the idle timeout during the start of a session, and restart it."""
        self._program.send(ready=False)
        try:
            yield
        finally:
            self._program.send(ready=True)


class AttachedSparkCluster(AttachedNodeCluster):
    """A cluster on this machine that another process owns."""

    def disconnect_programs(self) -> None:
        """End the driver of this process, and restore the variables before the cluster."""
        driver.restore_variables(Path(self.record.client["conf"]))
