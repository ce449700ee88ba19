"""Java processes of Spark: their commands, environments, ports and pages."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from hyperplane.clusters.spark import configuration, installation
from hyperplane.clusters.spark.start_path import hyperplane_numpy_names

_WORKER = "org.apache.spark.deploy.worker.Worker"
#: The heap of the master and of each worker, which only start executors.
_DAEMON_MEMORY = "-Xmx256m"
#: Less memory and a shorter start, for processes that have little to do.
_DAEMON_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ANSWER_SECONDS = 10
_END_SECONDS = 5.0
#: Without a proxy that the user's environment may name.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
#: Loaded here, because a function that runs between fork and exec must not load it.
_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None


def build_java_command(home: Path, folder: Path) -> list[str]:
    """Return the start of the command of the master and of each worker.

    ``spark-class`` starts a second JVM to build the same command, and reads ``spark-env.sh``.
    """
    classes = f"{configuration.configuration_folder(folder)}/:{home}/jars/*"
    options = (*_DAEMON_OPTIONS, *configuration.build_java_options(folder))
    return [installation.find_java(), "-cp", classes, _DAEMON_MEMORY, *options]


def build_environment(home: Path, folder: Path) -> dict[str, str]:
    """Return the variables of the master or of workers, without those of Spark of this process."""
    temporary = str(configuration.temporary_folder(folder))
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith("SPARK_")},
        # Python processes of executors inherit it.
        "PYTHONPATH": hyperplane_numpy_names.extend_python_path(os.environ),
        "SPARK_CONF_DIR": str(configuration.configuration_folder(folder)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": temporary,
        # Of pages; the other ports are at the address of the option --host.
        "SPARK_LOCAL_IP": configuration.LOOPBACK,
        # Workers build the commands of executors with it.
        "SPARK_SCALA_VERSION": installation.find_scala_version(home),
        "TMPDIR": temporary,
    }


def start_java(
    command: list[str], host: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a JVM of Spark at an address of this machine; it ends with this process."""
    return subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
        [*command, "--host", host, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=_end_with_parent,
    )


def start_worker(
    java: list[str],
    host: str,
    request: Mapping[str, Any],
    folder: str,
    master: str,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a worker with the requested cores and memory, whose files are in a folder."""
    return start_java(
        [*java, _WORKER], host,
        "--port", "0", "--webui-port", "0",
        "--cores", str(request["cores"]), "--memory", request["memory"],
        "--work-dir", folder, master,
        environment=environment,
    )  # fmt: skip


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, also if that is killed."""
    if _libc is not None:
        pr_set_pdeathsig = 1
        _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


def find_addresses(pid: int) -> list[tuple[str, int]]:
    """Return the addresses at which a process listens."""
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("inet")
        return [
            (each.laddr.ip.removeprefix("::ffff:"), each.laddr.port)
            for each in connections
            if each.status == psutil.CONN_LISTEN
        ]
    return []


def kill_children() -> None:
    """Kill all processes that this process has started, and those that they start meanwhile."""
    deadline = time.monotonic() + _END_SECONDS
    while every := psutil.Process().children(recursive=True):
        for each in every:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(every, _END_SECONDS)
        if time.monotonic() > deadline:
            break


def read_page(url: str) -> str:
    """Return the text of a page of Spark.

    Raises
    ------
    OSError
        If it does not answer, or not completely.
    """
    try:
        with _open(url, timeout=_ANSWER_SECONDS) as answer:
            return str(answer.read().decode())
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error


def read_json(url: str) -> Any:
    """Return the content of a page of Spark in JSON."""
    return json.loads(read_page(url))
