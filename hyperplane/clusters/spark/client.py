"""The client of a Spark cluster: starts a session of this process when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from hyperplane.clusters.spark import driver
from hyperplane.core.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkClient:
    """Connection of this process to a Spark cluster.

    ``SparkSession.builder.getOrCreate()`` without an address connects to the same cluster.

    Parameters
    ----------
    engine, address : str
        The engine of the cluster, and the address of its master.
    conf, home : Path
        The values of ``SPARK_CONF_DIR`` and ``SPARK_HOME`` for programs that use the cluster.
    pause_idle_timeout : callable
        Returns a context manager for the start of a session, in which the cluster is not idle.
    python : str
        Path of Python on other machines with executors.
    """

    def __init__(
        self,
        engine: str,
        address: str,
        conf: Path,
        home: Path,
        pause_idle_timeout: Callable[[], AbstractContextManager[None]] = nullcontext,
        python: str = "",
    ) -> None:
        self.engine, self.address, self.conf, self.home = engine, address, conf, home
        self._pause_idle_timeout, self._python = pause_idle_timeout, python

    @property
    def spark(self) -> SparkSession:
        """The session of this process, a ``pyspark.sql.SparkSession``."""
        return self.create_session(None)

    def create_session(self, app_name: str | None) -> SparkSession:
        """Return the session of this process; a new one has this name on the pages of Spark."""
        self._check_running()
        try:
            with self._pause_idle_timeout():
                session: SparkSession = driver.connect(
                    self.conf, self.home, self.address, app_name, self._python
                )
        except (RuntimeError, OSError) as error:
            self._check_running()
            raise EngineError(self.engine, str(error)) from error
        return session

    def _check_running(self) -> None:
        if not (self.conf / "spark-defaults.conf").is_file():
            raise EngineError(self.engine, f"the cluster at {self.address} has ended")

    def close(self) -> None:
        """End the session of this process; the cluster keeps running. Safe to call repeatedly."""
        driver.disconnect(self.conf)

    def __repr__(self) -> str:
        return f"<SparkClient {self.address}>"
