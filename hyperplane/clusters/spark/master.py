"""The master of a standalone Spark cluster: its process, its workers and its programs."""

from __future__ import annotations

import calendar
import contextlib
import re
import socket
import time
from contextlib import suppress

from hyperplane.clusters.spark.configuration import LOOPBACK
from hyperplane.clusters.spark.processes import find_addresses, read_json, read_page, start_java

_MASTER = "org.apache.spark.deploy.master.Master"
#: Ports that Spark tries after a port that is in use (spark.port.maxRetries).
_MORE_PORTS = 16


class SparkMaster:
    """The process of a master, which is a child of this process.

    Parameters
    ----------
    java : list of str
        The start of its command.
    host : str
        Address of this machine at which workers and programs reach it.
    page_port : int
        Port of its page, which is at the loopback address; 0 for any.
    """

    def __init__(self, java: list[str], host: str, page_port: int) -> None:
        self._first_port = page_port or _find_free_port()
        ports = "--port", "0", "--webui-port", str(self._first_port)
        self._process = start_java([*java, _MASTER], host, *ports)
        self.page = self.address = ""

    def is_running(self) -> bool:
        """Return whether its process runs."""
        return self._process.poll() is None

    def find_page(self) -> bool:
        """Look for its page, which names its address; return whether it was found now."""
        if self.page:
            return False
        for host, port in find_addresses(self._process.pid):
            if host == LOOPBACK and self._first_port <= port <= self._first_port + _MORE_PORTS:
                with suppress(OSError, ValueError, KeyError):
                    state = read_json(f"http://{LOOPBACK}:{port}/json/")
                    if state["status"] == "ALIVE":
                        self.page, self.address = f"http://{LOOPBACK}:{port}", state["url"]
                        return True
        return False

    def find_workers(self) -> set[tuple[str, int]]:
        """Return the addresses of the registered workers; none if it does not answer."""
        with suppress(OSError, ValueError, KeyError):
            workers = read_json(f"{self.page}/json/")["workers"]
            return {(each["host"], each["port"]) for each in workers if each["state"] == "ALIVE"}
        return set()

    def find_last_activity(self, now: float) -> float:
        """Return when the last job of any program ended: ``now`` if one may still run.

        Raises
        ------
        OSError, ValueError, KeyError
            If a page does not answer: the cluster is busy, or a program has just ended.
        """
        state = read_json(f"{self.page}/json/")
        workers = {each["webuiaddress"] for each in state["workers"]}
        ended = [each["starttime"] + each["duration"] for each in state["completedapps"]]
        last = max(ended, default=0) / 1000
        for program in state["activeapps"]:
            page = read_page(f"{self.page}/app/?appId={program['id']}")
            found = set(re.findall(rf'href="(http://{re.escape(LOOPBACK)}:\d+)"', page)) - workers
            if len(found) != 1:  # it has no page that lists its jobs
                return now
            jobs = read_json(f"{found.pop()}/api/v1/applications/{program['id']}/jobs")
            if any("completionTime" not in job for job in jobs):
                return now
            times = [_parse_time(job["completionTime"]) for job in jobs]
            last = max(last, program["starttime"] / 1000, *times)
        return float(last)

    def kill(self) -> None:
        """Kill its process."""
        self._process.kill()


def _find_free_port() -> int:
    with contextlib.closing(socket.socket()) as free:
        free.bind((LOOPBACK, 0))
        return int(free.getsockname()[1])


def _parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time such as ``2026-11-26T07:27:05.829GMT``."""
    whole, _, rest = text.partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return seconds + int(rest.removesuffix("GMT")) / 1000
