"""Spark on a Ray cluster of this machine, by RayDP: its configuration, its session and its end.

RayDP gives no options to the JVMs that it starts, but new versions of Java need some, and pages of
Spark would be open to other machines. Programs that call ``raydp.init_spark`` get them from a
configuration folder and from variables, which are set while the Ray cluster runs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.spark import configuration, driver, installation
from hyperplane.core.errors import EngineError, EngineUnavailable, Fault, check
from hyperplane.core.optional import is_installed
from hyperplane.core.units import format_bytes, plural
from hyperplane.spec.settings.spark import PropertyValue
from hyperplane.spec.spark_options import MIB, add_overhead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Advice if RayDP is missing.
INSTALL_RAYDP = 'RayDP is not installed: pip install "hyperplane[raydp]" in a separate environment'
_ENGINE = "ray:local"
#: Packages of Java that Spark opens with its own commands, which RayDP does not use, and three that
#: Ray needs to send objects of Java.
_OPENED = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.invoke",
    "java.base/java.lang.reflect", "java.base/java.math", "java.base/java.net",
    "java.base/java.nio", "java.base/java.text", "java.base/java.time",
    "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch", "java.base/sun.nio.cs", "java.base/sun.security.action",
    "java.base/sun.util.calendar", "java.security.jgss/sun.security.krb5",
)  # fmt: skip
_JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # Java 8 has no --add-opens, and then ignores it
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
)
_OPTIONS_FILE = "java-options"


def find_problem() -> str:
    """Return why RayDP cannot be used in this environment, and what to do; empty if it can."""
    return installation.find_problem() if is_installed("raydp") else INSTALL_RAYDP


def create_configuration(folder: Path) -> Path:
    """Create the configuration in the folder of a Ray cluster, and return its path."""
    former = driver.find_former_configuration(installation.find_home())
    configuration.create_folder(folder, former)
    options = (*_JAVA_OPTIONS, *configuration.build_java_options(folder))
    properties: dict[str, PropertyValue] = {
        "spark.driver.defaultJavaOptions": shlex.join(options),
        "spark.ui.killEnabled": False,
        "spark.ui.port": 0,
    }
    configuration.write_properties(folder, former, properties)
    conf = configuration.configuration_folder(folder)
    text = "\n".join(f'"{each}"' for each in options)
    (conf / _OPTIONS_FILE).write_text(text, encoding="utf-8")
    return conf


def build_node_variables(conf: Path) -> dict[str, str]:
    """Return the variables of the nodes of a Ray cluster, whose JVMs get the options from a file.

    RayDP gives the properties of a program to the JVMs of executors only. Each JVM prints the
    variable: with all options in place of the file it would be a long line.
    """
    options = f"@{conf / _OPTIONS_FILE}"
    return {"JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {options}".strip()}


def set_variables(conf: Path) -> None:
    """Make sessions of this process and of its child processes use the configuration."""
    driver.set_variables(conf, installation.find_home())


def disconnect(conf: Path, running: bool) -> None:
    """End the session of this process, and restore the variables before the Ray cluster."""
    if has_session() and driver.is_configured_by(conf):
        end_session(running)
    driver.restore_variables(conf)


def has_session() -> bool:
    """Return whether RayDP has a session in this process."""
    context = sys.modules.get("raydp.context")
    return getattr(context, "_global_spark_context", None) is not None


def end_session(running: bool = True) -> None:
    """End the session of RayDP in this process with its executors, and its JVM.

    Parameters
    ----------
    running : bool
        Whether the Ray cluster runs. Otherwise RayDP would wait for processes that have ended.
    """
    context: Any = sys.modules.get("raydp.context")
    if context is None:
        return
    if running:
        with contextlib.suppress(Exception):  # its processes have ended; the JVM ends below
            context.stop_spark()
    context._global_spark_context = None
    driver.end(wait=running)


@dataclass(frozen=True)
class SessionRequest:
    """A session whose executors RayDP starts.

    Parameters
    ----------
    app_name : str
        Name of the program on the pages of Spark.
    executors, cores : int
        Number of executors, and the cores of each.
    heap : int
        Java heap of each executor, in bytes.
    properties : mapping of str to str, int, float or bool
        Properties of Spark.
    """

    app_name: str
    executors: int
    cores: int
    heap: int
    properties: Mapping[str, PropertyValue]


def find_engine_faults(cluster: Any) -> list[Fault]:
    """Return a fault if RayDP does not start executors on a Ray cluster."""
    if cluster.record.engine == _ENGINE:
        return []
    asked = f"{cluster.name} of the engine {cluster.record.engine}"
    allowed = f"a cluster of the engine {_ENGINE}: connections of RayDP have no password"
    return [Fault("ray_cluster", asked, allowed)]


def check_usable(cluster: Any) -> None:
    """Raise an error if RayDP is not installed, or if a Ray cluster has ended."""
    if problem := find_problem():
        raise EngineUnavailable(_ENGINE, problem)
    if reason := cluster.find_end():
        raise EngineError(_ENGINE, f"the cluster has ended: {reason}")


def start_session(cluster: Any, request: SessionRequest) -> SparkSession:
    """Return a session whose executors RayDP has started on a Ray cluster.

    Raises
    ------
    EngineError
        If RayDP fails.
    RequestError
        If the nodes have no room for the executors; RayDP itself would wait without an end.
    """
    token = cluster.record.security["token"]
    variables = driver_environment.build_variables(token, loopback=True)
    driver_environment.connect(cluster.address, variables)
    check(_find_size_faults(request))
    configs = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in request.properties.items()
    }
    import raydp

    try:
        session: SparkSession = raydp.init_spark(
            request.app_name,
            request.executors,
            request.cores,
            f"{request.heap // MIB}M",
            configs=configs,
        )
    except BaseException as error:
        end_session(running=not cluster.find_end())
        if not isinstance(error, Exception):
            raise
        message = f"RayDP has not started Spark: {type(error).__name__}: {error}"
        raise EngineError(_ENGINE, message) from error
    return session


def _find_size_faults(request: SessionRequest) -> list[Fault]:
    """Return a fault if the worker nodes have no room for all executors now."""
    from ray._private.state import available_resources_per_node

    free = [
        (int(node.get("CPU", 0)), int(node.get("memory", 0)))
        for node in available_resources_per_node().values()
    ]
    memory = add_overhead(request.heap)  # RayDP itself counts only the heap
    room = sum(min(cores // request.cores, ram // memory) for cores, ram in free)
    if room >= request.executors:
        return []
    nodes = ", ".join(
        f"{plural(cores, 'core')} and {format_bytes(ram)}" for cores, ram in free if cores or ram
    )
    size = f"{plural(request.cores, 'core')} and, beside its heap, too, {format_bytes(memory)}"
    allowed = f"at most {room}, each with {size}; free on the nodes of Ray: {nodes or 'nothing'}"
    return [Fault("num_executors", str(request.executors), allowed)]
