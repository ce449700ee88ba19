"""Cluster objects of the engines of Spark: of this process, and of another one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.local_nodes.cluster import AttachedNodeCluster, LocalNodeCluster
from hyperplane.clusters.local_nodes.program_process import NodeProgram
from hyperplane.clusters.spark import configuration, driver, processes
from hyperplane.clusters.spark.configuration import LOOPBACK
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SparkSettings
from hyperplane.spec.settings.spark import PropertyValue
from hyperplane.spec.spark_options import MIB, SparkOptions


class OwnedSparkCluster(LocalNodeCluster):
    """A Spark cluster whose master is on this machine, and which this process owns.

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
    properties : dict
        Properties of all processes and programs, in addition to those of the settings.
    python : str
        Path of Python on other machines with executors; by default that of this machine.
    request : dict, optional
        What the class of the processes gets in addition to the folder.
    """

    framework: ClassVar[str] = "Spark"
    head: ClassVar[str] = "master"
    starts_together: ClassVar[bool] = True
    #: Module and name of the class that starts the processes.
    node_group: ClassVar[str]

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        properties: dict[str, PropertyValue],
        python: str = "",
        request: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(plan, record)
        settings = plan.settings
        assert isinstance(settings, SparkSettings)  # noqa: S101 - of the engines of Spark
        self.home, self.conf = home, configuration.configuration_folder(folder)
        self.python, self._folder = python, folder
        self._properties = {**settings.properties, **properties}
        self._former = driver.find_former_configuration(home)
        configuration.create_folder(folder, self._former)
        configuration.write_properties(folder, self._former, self._properties)
        self.start_program(
            NodeProgram(
                record,
                folder,
                self.node_group,
                # The page of the master is at the loopback address, also if the master is not.
                {**processes.build_environment(home, folder), "SPARK_PUBLIC_DNS": LOOPBACK},
                functools.partial(driver.restore_variables, self.conf),
            ),
            folder=str(folder),
            java=processes.build_java_command(home, folder),
            page_port=plan.dashboard_port or 0,
            **(request or {}),
        )

    def describe_worker(self, name: str) -> dict[str, Any]:
        """Return the size of a new worker."""
        del name
        heap = SparkOptions.of(self.plan.options).heap
        return {"cores": self.plan.worker.nthreads, "memory": f"{heap // MIB}M"}

    def connect_programs(self) -> None:
        """Make new sessions use the cluster."""
        properties = {**self._properties, **configuration.build_addresses(self.address)}
        configuration.write_properties(self._folder, self._former, properties)
        driver.set_variables(self.conf, self.home, self.python)

    def disconnect_programs(self) -> None:
        """End the driver of this process, and restore the variables before the cluster."""
        driver.restore_variables(self.conf)

    def describe_connection(self) -> dict[str, Any]:
        """Return also the values of ``SPARK_CONF_DIR`` and ``SPARK_HOME``, and Python's path."""
        own = {"conf": str(self.conf), "home": str(self.home), "python": self.python}
        return {**super().describe_connection(), **own}

    @contextmanager
    def pause_idle_timeout(self) -> Iterator[None]:
        """Stop the clock of the idle timeout during the start of a session, and restart it."""
        self._program.send(ready=False)
        try:
            yield
        finally:
            self._program.send(ready=True)


class AttachedSparkCluster(AttachedNodeCluster):
    """A cluster with its master on this machine that another process owns."""

    def disconnect_programs(self) -> None:
        """End the driver of this process, and restore the variables before the cluster."""
        driver.restore_variables(Path(self.record.client["conf"]))


def build_worker_properties(
    settings: SparkSettings, home: Path, encrypted: bool
) -> dict[str, PropertyValue]:
    """Return the properties of workers on other machines, without the secret."""
    former = driver.find_former_configuration(home)
    given = {**configuration.read_properties(former), **settings.properties}
    return {
        **configuration.select_worker_properties(given),
        **configuration.build_security(encrypted),
    }
