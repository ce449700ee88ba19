"""The processes of one local Spark cluster, for ``local_nodes/node_program.py``.

Besides the cluster, workers and ``{"ready": true}`` there is
the request ``{"ready": false}``, which stops the clock of the idle timeout. Its events are
``head``, ``worker``, ``lost``, ``idle`` and ``failed``.
"""

from __future__ import annotations

import calendar
import contextlib
import ctypes
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

HOST = "127.0.0.1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
#: Maximum starts of a worker; after that it is not replaced.
_MAX_STARTS = 10
#: Ports that Spark tries after a port that is in use (spark.port.maxRetries).
_MORE_PORTS = 16
_ANSWER_SECONDS = 10
_END_SECONDS = 5.0
#: Without a proxy that the user's environment may name.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class SparkNodeGroup:
    """The master and workers of a cluster, which are child processes of this process.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._settings: dict[str, Any] = {}
        self._master: subprocess.Popen[bytes] | None = None
        self._page = self._address = ""
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        self._starts: dict[str, int] = {}
        self._starting: set[str] = set()
        self._ready_at: float | None = None
        self._checked_at = 0.0

    def handle(self, request: dict[str, Any]) -> None:
        """Start the master or a worker, or start or stop the clock of the idle timeout."""
        if "folder" in request:
            self._settings = request
            self._settings["page_port"] = request["page_port"] or _find_free_port()
            ports = "--port", "0", "--webui-port", str(request["page_port"])
            self._master = self._start(_MASTER, *ports)
        elif "worker" in request:
            self._requests[request["worker"]] = request
            self._start_worker(request)
        else:
            self._ready_at = time.time() if request["ready"] else None

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [*self._settings["java"], name, "--host", HOST, *arguments]
        return subprocess.Popen(  # noqa: S603 - a list of arguments, and no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=_end_with_parent,
        )

    def _start_worker(self, request: dict[str, Any]) -> None:
        name = request["worker"]
        self._starts[name] = self._starts.get(name, 0) + 1
        self._starting.add(name)
        self._workers[name] = self._start(
            _WORKER,
            "--port", "0", "--webui-port", "0",
            "--cores", str(request["cores"]), "--memory", request["memory"],
            "--work-dir", f"{self._settings['folder']}/{name}", self._address,
        )  # fmt: skip

    def check(self) -> bool:
        """Replace ended workers; return False if the master has ended or the timeout passed."""
        if self._master is None:
            return True
        if self._master.poll() is not None:
            self._report(event="failed", message="the master of the cluster has ended")
            return False
        if not self._address:
            self._find_master()
            return True
        for name, worker in list(self._workers.items()):
            if worker.poll() is not None:
                self._replace(name)
        if self._starting:
            self._find_registered()
        return not self._is_idle()

    def _find_master(self) -> None:
        """Find the page of the master, which names its address."""
        assert self._master is not None  # noqa: S101 - for mypy
        first = self._settings["page_port"]
        for port in _listening_ports(self._master.pid):
            if first <= port <= first + _MORE_PORTS:
                with suppress(OSError, ValueError, KeyError):
                    state = _read_json(f"http://{HOST}:{port}/json/")
                    if state["status"] == "ALIVE":
                        self._page, self._address = f"http://{HOST}:{port}", state["url"]
                        self._report(event="head", address=self._address, dashboard=self._page)
                        return

    def _find_registered(self) -> None:
        """Report workers that the master has registered."""
        with suppress(OSError, ValueError, KeyError):
            state = _read_json(f"{self._page}/json/")
            alive = {each["port"] for each in state["workers"] if each["state"] == "ALIVE"}
            for name in sorted(self._starting):
                pid = self._workers[name].pid
                if alive.intersection(_listening_ports(pid)):
                    self._starting.discard(name)
                    self._report(event="worker", name=name, pid=pid)

    def _replace(self, name: str) -> None:
        del self._workers[name]
        if name in self._starting:
            self._starting.discard(name)
        else:
            self._report(event="lost", name=name)
        if self._starts[name] < _MAX_STARTS:
            self._start_worker(self._requests[name])
        elif not self._workers:
            raise RuntimeError("no worker of the cluster keeps running")

    def _is_idle(self) -> bool:
        """Return whether no program ran a job during the idle timeout."""
        timeout, now = self._settings["idle_timeout"], time.time()
        if timeout is None or self._ready_at is None or now - self._ready_at < timeout:
            return False
        if now - self._checked_at < min(1.0, timeout / 4):
            return False
        self._checked_at = now
        try:
            last = max(self._ready_at, self._find_last_activity(now))
        except (OSError, ValueError, KeyError):  # the cluster is busy, or a program has just ended
            return False
        if now - last < timeout:
            return False
        self._report(event="idle", seconds=now - last)
        return True

    def _find_last_activity(self, now: float) -> float:
        """Return when the last job of any program ended: now if one may still run."""
        state = _read_json(f"{self._page}/json/")
        workers = {each["webuiaddress"] for each in state["workers"]}
        ended = [each["starttime"] + each["duration"] for each in state["completedapps"]]
        last = max(ended, default=0) / 1000
        for program in state["activeapps"]:
            page = _read(f"{self._page}/app/?appId={program['id']}")
            found = set(re.findall(rf'href="(http://{re.escape(HOST)}:\d+)"', page)) - workers
            if len(found) != 1:  # it has no page that lists its jobs
                return now
            jobs = _read_json(f"{found.pop()}/api/v1/applications/{program['id']}/jobs")
            if any("completionTime" not in job for job in jobs):
                return now
            times = [_parse_time(job["completionTime"]) for job in jobs]
            last = max(last, program["starttime"] / 1000, *times)
        return float(last)

    def end(self) -> None:
        """End all processes of the cluster."""
        # First the processes that would start others.
        for process in (*self._workers.values(), self._master):
            if process is not None:
                process.kill()
        deadline = time.monotonic() + _END_SECONDS
        while every := psutil.Process().children(recursive=True):
            for each in every:
                with suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(every, _END_SECONDS)
            if time.monotonic() > deadline:
                break


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, also if that is killed."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _listening_ports(pid: int) -> list[int]:
    """Return the ports on which a process listens."""
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("inet")
        return [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
    return []


def _find_free_port() -> int:
    with contextlib.closing(socket.socket()) as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def _read(url: str) -> str:
    with _open(url, timeout=_ANSWER_SECONDS) as answer:
        return str(answer.read().decode())


def _read_json(url: str) -> Any:
    return json.loads(_read(url))


def _parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time such as ``2026-11-26T07:27:05.829GMT``."""
    whole, _, rest = text.partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds + int(rest.removesuffix("GMT")) / 1000
