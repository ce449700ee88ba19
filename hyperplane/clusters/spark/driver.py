"""The driver of this process: a JVM that pyspark starts, and the variables that configure it.

Child processes get the variables, too. After the cluster has closed, they have their former values.
This is the only module that uses private names of pyspark: a driver reads the configuration once,
when its JVM starts, and pyspark has no public function that ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from hyperplane.clusters.local_nodes.cluster_variables import ClusterVariables
from hyperplane.clusters.spark.configuration import LOOPBACK, temporary_folder
from hyperplane.clusters.spark.start_path import hyperplane_numpy_names

#: Variables of Spark that select a cluster, its properties and its addresses.
VARIABLES = (
    "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "SPARK_CONF_DIR", "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_PUBLIC_DNS", "SPARK_REMOTE",
)  # fmt: skip
#: Option of the JVM that builds the command of each driver: no folder /tmp/hsperfdata_USER.
_LAUNCHER_OPTION = "-XX:-UsePerfData"
#: Variable with the file in which a JVM that pyspark starts writes its port.
_CONNECTION_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
#: Seconds until a driver that does not end is killed.
_END_SECONDS = 10

_clusters = ClusterVariables(VARIABLES, "SPARK_CONF_DIR")
#: The handler of Ctrl-C before a session; pyspark replaces it and does not restore it.
_interrupt_handler: list[Any] = []


def find_former_configuration(home: Path) -> Path:
    """Return the folder that configures Spark where no cluster of hyperplane runs."""
    return Path(_clusters.read_former("SPARK_CONF_DIR") or home / "conf")


def set_variables(conf: Path, home: Path, python: str = "") -> None:
    """Make new sessions use a cluster, in this process and in its child processes.

    ``python`` is that of executors on other machines. Without it the driver has that of executors.
    """
    own = sys.executable if python else None
    # The rest of it is the program's, which may change it meanwhile.
    os.environ["PYTHONPATH"] = hyperplane_numpy_names.extend_python_path(os.environ)
    _clusters.set(
        {
            "PYSPARK_DRIVER_PYTHON": _clusters.read_former("PYSPARK_DRIVER_PYTHON") or own,
            # Python of the executors: pyspark's default is the first python3 of PATH.
            "PYSPARK_PYTHON": python or _clusters.read_former("PYSPARK_PYTHON") or sys.executable,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": str(home),
            # Those of the user follow, and are in effect.
            "SPARK_LAUNCHER_OPTS": " ".join(
                filter(None, (_LAUNCHER_OPTION, _clusters.read_former("SPARK_LAUNCHER_OPTS")))
            ),
            "SPARK_LOCAL_DIRS": str(temporary_folder(conf.parent)),
            "SPARK_LOCAL_IP": LOOPBACK,
            # In addresses of pages, which otherwise have the address of the driver.
            "SPARK_PUBLIC_DNS": LOOPBACK,
            "SPARK_REMOTE": None,
        }
    )


def restore_variables(conf: Path) -> None:
    """End the driver of a cluster that closes, and restore the variables before it."""
    with _clusters.lock:
        disconnect(conf)
        _clusters.restore(str(conf))
        if not _clusters.in_use:
            hyperplane_numpy_names.restore_python_path(os.environ)


def find_session_address() -> str:
    """Return the master of the session of this process; empty if there is none."""
    context = _find_context()
    return str(context.master) if context is not None else ""


def is_current(session: Any) -> bool:
    """Return whether a session is that of this process, and has not ended."""
    context = _find_context()
    return context is not None and session.sparkContext is context


def connect(
    conf: Path, home: Path, address: str, app_name: str | None = None, python: str = ""
) -> Any:
    """Return the session of this process with a cluster; start the driver if there is none."""
    with _clusters.lock, contextlib.ExitStack() as failure:
        if (other := find_session_address()) not in {"", address}:
            raise RuntimeError(
                f"this process has a Spark session with the master {other}; call "
                f"SparkSession.stop() before you use the one at {address}"
            )
        if str(conf) not in _clusters:
            failure.callback(restore_variables, conf)
        failure.callback(_kill_interrupted_starts, conf)
        select_configuration(conf, home, new_jvm=False, python=python)
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        session = (builder.appName(app_name) if app_name else builder).getOrCreate()
        if session.sparkContext.master != address:
            wrong = session.sparkContext.master
            session.stop()
            raise RuntimeError(
                f"the session has the master {wrong} in place of {address}; remove --master from "
                "PYSPARK_SUBMIT_ARGS"
            )
        failure.pop_all()  # connected: the variables remain
        return session


def select_configuration(conf: Path, home: Path, new_jvm: bool, python: str = "") -> None:
    """Make the next session of this process read a configuration.

    If there is no session, a JVM that has read another configuration is ended; with ``new_jvm`` any
    JVM. The handler of Ctrl-C is kept, because a session replaces it.
    """
    with _clusters.lock:
        if not _clusters.in_effect(str(conf)):
            set_variables(conf, home, python)
        if not find_session_address() and (
            new_jvm or _find_driver_configuration() not in {None, str(conf)}
        ):
            end()
        if not _interrupt_handler and threading.current_thread() is threading.main_thread():
            _interrupt_handler.append(signal.getsignal(signal.SIGINT))


def remove_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the variables of Spark as they are without any cluster."""
    former = {name: _clusters.read_former(name) for name in VARIABLES}
    others = {name: value for name, value in environment.items() if name not in former}
    return {**others, **{name: value for name, value in former.items() if value is not None}}


def disconnect(conf: Path) -> None:
    """End the session and the driver of this process if they use a cluster."""
    with _clusters.lock:
        if is_configured_by(conf):
            end()
        _kill_interrupted_starts(conf)


def _kill_interrupted_starts(conf: Path) -> None:
    """Kill JVMs of sessions of a cluster whose start was interrupted.

    pyspark forgets such a JVM and removes the folder for its answer. The JVM then never ends: the
    thread that waits for the end of its input stops with an error.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    current = getattr(getattr(context, "_gateway", None), "proc", None)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, OSError):
            variables = child.environ()
            if (
                _CONNECTION_VARIABLE in variables
                and variables.get("SPARK_CONF_DIR") == str(conf)
                and (current is None or current.pid != child.pid)
            ):
                # Its shell script may run the program that builds its command.
                for each in [child, *child.children(recursive=True)]:
                    each.kill()
                child.wait(_END_SECONDS)


def is_configured_by(conf: Path) -> bool:
    """Return whether the driver of this process has read this configuration."""
    return _find_driver_configuration() == str(conf)


def _find_context() -> Any:
    """Return the context of this process; None if there is none."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = context._active_spark_context if context is not None else None
    return active if active is not None and active._jsc is not None else None


def _find_driver_configuration() -> str | None:
    """Return the configuration folder that the driver has read; None if no driver runs."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(context._gateway, "proc", None) if context is not None else None
    if process is None or process.poll() is not None:
        return None
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).environ().get("SPARK_CONF_DIR", "")
    return None


def end(wait: bool = True) -> None:
    """End the session and its JVM, which otherwise runs until this process ends.

    Without ``wait`` the JVM is killed: an orderly end would wait for other processes.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = context._gateway if context is not None else None
    # Without a process: of spark-submit, which is the parent of this process.
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    from pyspark import SparkContext

    if not wait:
        gateway.proc.kill()
    if (context := _find_context()) is not None:
        from pyspark.sql import SparkSession

        session = SparkSession._instantiatedSession
        with contextlib.suppress(Exception):  # the JVM has lost its cluster, or has ended
            (session if session is not None and session._sc is context else context).stop()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()  # the JVM ends at the end of its input
    try:
        process.wait(_END_SECONDS)
    except Exception:  # noqa: BLE001 - it does not end
        process.kill()
        process.wait()
    if _interrupt_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt_handler.pop())
