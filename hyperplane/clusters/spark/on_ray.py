"""Spark on a Ray cluster of this machine, by RayDP: its configuration, its session and its end.

RayDP gives no options to the JVMs that it starts, but new versions of Java need some, and pages of
Spark would be open to other machines. Programs that call ``raydp.init_spark`` get them from a
configuration folder and from variables, which are set while the Ray cluster runs.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.spark import configuration, driver, installation
from hyperplane.clusters.spark.start_path import hyperplane_numpy_names
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
#: Where RayDP looks for the settings of a driver's log; without it, warnings go to standard output.
_LOGGING = "log4j2-default.properties"
#: Beginnings of properties that RayDP itself reads; Spark reads all others from the configuration.
_OF_RAYDP = ("spark.ray.", "spark.dynamicAllocation.", "spark.shuffle.service.", "raydp.")
#: Suffix of the name of RayDP's actor, its class, and that of the actor of an executor.
_MASTER, _MASTER_CLASS = "_SPARK_MASTER", "RayDPSparkMaster"
_EXECUTOR_CLASS = "org.apache.spark.executor.RayDPExecutor"
#: Resources of Ray that an executor has.
_SIZE = ("CPU", "memory")
#: Seconds in which executors of an earlier session end.
_FREE_SECONDS = 20.0
#: Seconds to wait for RayDP's lock and for the head of a cluster.
_LOCK_SECONDS, _CONNECT_SECONDS = 2.0, 5.0


def find_problem() -> str:
    """Return why RayDP cannot be used in this environment, and what to do; empty if it can."""
    return installation.find_problem() if is_installed("raydp") else INSTALL_RAYDP


def create_configuration(folder: Path) -> Path:
    """Create the configuration in the folder of a Ray cluster, and return its path."""
    configuration.create_folder(folder, _find_former())
    conf = configuration.configuration_folder(folder)
    options = "\n".join(f'"{each}"' for each in _build_java_options(folder))
    (conf / _OPTIONS_FILE).write_text(options, encoding="utf-8")
    if not (conf / _LOGGING).exists():
        (conf / _LOGGING).symlink_to(conf / configuration.LOGGING)
    _write_properties(conf, {})
    return conf


def _find_former() -> Path:
    return driver.find_former_configuration(installation.find_home())


def _build_java_options(folder: Path) -> tuple[str, ...]:
    return *_JAVA_OPTIONS, *configuration.build_java_options(folder)


def _write_properties(conf: Path, properties: Mapping[str, PropertyValue]) -> None:
    """Write the properties of a session; in a command all users of the machine would see them."""
    folder = conf.parent
    own: dict[str, PropertyValue] = {
        "spark.driver.defaultJavaOptions": shlex.join(_build_java_options(folder)),
        "spark.ui.killEnabled": False,
        "spark.ui.port": 0,
    }
    configuration.write_properties(folder, _find_former(), {**properties, **own})


def build_node_environment(conf: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the nodes of a Ray cluster, whose JVMs read options from a file.

    RayDP gives the properties of a program to the JVMs of executors only. Each JVM prints the
    variable: with all options in place of the file it would be a long line. RayDP and Ray start the
    first ``java`` of ``PATH``.
    """
    options = shlex.quote(f"@{conf / _OPTIONS_FILE}")
    found = driver.remove_variables(environment)
    found["JDK_JAVA_OPTIONS"] = f"{found.get('JDK_JAVA_OPTIONS', '')} {options}".strip()
    found["PYTHONPATH"] = hyperplane_numpy_names.extend_python_path(found)
    java = installation.find_java()
    if java != shutil.which("java"):
        found["PATH"] = os.pathsep.join([str(Path(java).parent), found.get("PATH", os.defpath)])
    return found


def set_variables(conf: Path) -> None:
    """Make sessions of this process and of its child processes use the configuration."""
    driver.set_variables(conf, installation.find_home())


def disconnect(conf: Path) -> None:
    """End the session of this process, and restore the variables before the Ray cluster."""
    try:
        if driver.is_configured_by(conf):
            end_session()
    finally:
        driver.restore_variables(conf)


def end_session() -> None:
    """End the session of RayDP in this process with its executors, and its JVM."""
    context: Any = sys.modules.get("raydp.context")
    if getattr(context, "_global_spark_context", None) is None:
        return
    # Another thread may be waiting for executors; and RayDP would wait for processes that have
    # ended. The end of the JVM ends both.
    answers = _has_head()
    locked = answers and context._spark_context_lock.acquire(timeout=_LOCK_SECONDS)
    try:
        if locked:
            with contextlib.suppress(Exception):  # its processes have ended
                context.stop_spark()
    finally:
        if locked:
            context._spark_context_lock.release()
        context._global_spark_context = None
        if driver.find_session_address().partition(":")[0] in {"", "ray"}:
            driver.end(wait=locked)


def _has_head() -> bool:
    """Return whether this process is connected to a Ray cluster whose head answers."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
            return True
    except OSError:
        return False


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
    if cluster.engine == _ENGINE:
        return []
    asked = f"{cluster.name} of the engine {cluster.engine}"
    allowed = f"a cluster of the engine {_ENGINE}: connections of RayDP have no password"
    return [Fault("ray_cluster", asked, allowed)]


def check_request(cluster: Any, request: SessionRequest) -> None:
    """Raise an error if a session cannot start after the end of an earlier one of this process.

    Raises
    ------
    EngineUnavailable
        If RayDP cannot be used in this environment.
    EngineError
        If the cluster has ended, or was started where RayDP cannot be used.
    RequestError
        If the nodes are too small or too few, or if others use them; RayDP itself would wait
        without an end.
    """
    if problem := find_problem():
        raise EngineUnavailable(_ENGINE, problem)
    ray = _connect(cluster)
    if not cluster.record.client.get("spark_conf"):
        reason = "it was started in an environment in which RayDP cannot be used"
        raise EngineError(_ENGINE, f"{cluster.name}: {reason}")
    nodes = [each["Resources"] for each in ray.nodes() if each["Alive"]]
    check(_find_size_faults(request, nodes, "nodes of Ray"))
    _wait_for_room(ray, request, _find_own_resources(ray))


def _connect(cluster: Any) -> Any:
    """Return the module ``ray``, connected to a cluster on this machine."""
    variables = driver_environment.build_variables(cluster.record.security["token"], loopback=True)
    address, find_end = cluster.address, cluster.find_end
    return RayClient(_ENGINE, address, variables, cluster.disconnect_programs, find_end).ray


def start_session(cluster: Any, request: SessionRequest) -> SparkSession:
    """Return a session whose executors RayDP has started on a Ray cluster.

    Raises
    ------
    EngineError
        If RayDP fails.
    RequestError
        If others now use the cluster, so that the nodes have no room for the executors.
    """
    ray = _connect(cluster)
    _wait_for_room(ray, request, None)
    conf = Path(cluster.record.client["spark_conf"])
    _write_properties(conf, request.properties)
    driver.select_configuration(conf, installation.find_home(), new_jvm=True)
    of_raydp = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in request.properties.items()
        if key.startswith(_OF_RAYDP)
    }
    import raydp

    try:
        session: SparkSession = raydp.init_spark(
            request.app_name,
            request.executors,
            request.cores,
            f"{request.heap // MIB}M",
            configs=of_raydp,
        )
    except BaseException as error:
        end_session()
        driver.end(wait=False)
        if not isinstance(error, Exception):
            raise
        message = f"RayDP has not started Spark: {type(error).__name__}: {error}"
        raise EngineError(_ENGINE, message) from error
    return session


def _wait_for_room(
    ray: Any, request: SessionRequest, own: Mapping[str, Mapping[str, float]] | None
) -> None:
    """Wait until executors and the actor of a session that ends have ended.

    Raises a RequestError if the nodes have no room for all executors after that. ``own`` has the
    resources of a session that ends before the new one starts, on each node.
    """
    from ray._private.state import available_resources_per_node

    deadline = time.monotonic() + _FREE_SECONDS
    while True:
        free = [
            {key: resources.get(key, 0) + (own or {}).get(node, {}).get(key, 0) for key in _SIZE}
            for node, resources in available_resources_per_node().items()
        ]
        faults = _find_size_faults(request, free, "free on the nodes of Ray")
        if own is None or _find_own_name() != request.app_name:
            with contextlib.suppress(ValueError):  # there is no such actor
                ray.get_actor(request.app_name + _MASTER)
                allowed = "a name that no running session on the Ray cluster has"
                faults.append(Fault("app_name", repr(request.app_name), allowed))
        if not faults or time.monotonic() > deadline:
            return check(faults)
        time.sleep(0.2)


def _find_own_name() -> str:
    """Return the name of the session of RayDP that this process has; "" if it has none."""
    context: Any = sys.modules.get("raydp.context")
    session = getattr(context, "_global_spark_context", None)
    return str(getattr(session, "_app_name", ""))


def _find_own_resources(ray: Any) -> dict[str, dict[str, float]] | None:
    """Return what the executors of this process have, by the ID of their node of Ray.

    None if this process has no session of RayDP.
    """
    context: Any = sys.modules.get("raydp.context")
    session = getattr(context, "_global_spark_context", None)
    if session is None:
        return None
    from ray._private.state import actors, jobs
    from raydp.utils import parse_memory_size

    job = ray.get_runtime_context().get_job_id()
    running = [each for each in actors().values() if each["State"] != "DEAD"]
    masters = [
        each["Pid"]
        for each in running
        if each["ActorClassName"] == _MASTER_CLASS and each["JobID"] == job
    ]
    # Executors belong to the job of a JVM that this process or its actor has started.
    processes = {os.getpid(), *masters}
    own = {each["JobID"] for each in jobs() if processes & _find_ancestors(each["DriverPid"])}
    nodes = Counter(
        each["Address"]["NodeID"]
        for each in running
        if each["ActorClassName"] == _EXECUTOR_CLASS and each["JobID"] in own
    )
    size = session._executor_cores, parse_memory_size(str(session._executor_memory))
    return {
        node: {key: count * each for key, each in zip(_SIZE, size, strict=True)}
        for node, count in nodes.items()
    }


def _find_ancestors(pid: int) -> set[int]:
    """Return the process IDs of the parents of a process."""
    with contextlib.suppress(psutil.Error):
        return {each.pid for each in psutil.Process(pid).parents()}
    return set()


def _find_size_faults(
    request: SessionRequest, resources: list[dict[str, float]], what: str
) -> list[Fault]:
    """Return a fault if nodes with these resources have no room for all executors."""
    memory = add_overhead(request.heap)  # RayDP itself counts only the heap
    nodes = [(int(each.get("CPU", 0)), int(each.get("memory", 0))) for each in resources]
    room = sum(min(cores // request.cores, ram // memory) for cores, ram in nodes)
    if room >= request.executors:
        return []
    described = ", ".join(
        f"{plural(cores, 'core')} and {format_bytes(ram)}" for cores, ram in nodes if cores or ram
    )
    size = f"{plural(request.cores, 'core')} and {format_bytes(memory)} for heap and overhead"
    allowed = f"at most {room}, each with {size}; {what}: {described or 'nothing'}"
    return [Fault("num_executors", str(request.executors), allowed)]
