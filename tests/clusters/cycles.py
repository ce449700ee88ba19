"""Start and end clusters repeatedly, and check what each cycle leaves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psutil
from contract import children
from services import is_empty

from hyperplane.clusters import records

#: Seconds for 20 cycles. They need 7 to 15 minutes of CPU time; beside many other programs on two
#: cores, a second of CPU time took four seconds.
CYCLES_TIMEOUT = 3600


def check_cycles(
    count: int, run: Callable[[], AbstractContextManager[list[psutil.Process]]]
) -> None:
    """Fail if cycles leave processes, ports, files, records, threads or pipes.

    ``run`` returns a context manager that starts a cluster, uses it, returns its processes, and
    ends it.
    """
    temporary = Path(os.environ["TMPDIR"])
    threads: list[int] = []
    pipes: list[int] = []
    for _ in range(count):
        with run() as processes:
            ports = _find_ports(
                each
                for process in processes
                if process.is_running()
                for each in process.net_connections("inet")
            )
            assert ports
            # Not all files there, because other programs of this machine have some, too.
            shared = set().union(*map(_find_shared_files, processes))
        assert not [found for each in processes if (found := _describe(each))]
        assert not children()
        assert not [found for each in psutil.process_iter() if (found := _describe_own(each))]
        # Other programs of this machine may have got the same ports meanwhile.
        assert not ports & _find_ports(psutil.Process().net_connections("inet"))
        assert not [file for file in shared if file.exists()]
        assert is_empty(temporary)
        assert records.read_all(starting=True) == []
        threads.append(threading.active_count())
        pipes.append(_count_pipes())
    # The first cycle imports libraries.
    assert threads[-1] <= threads[0]
    assert pipes[-1] <= pipes[0]


def find_descendants(*processes: int) -> list[psutil.Process]:
    """Return processes and all those below them."""
    found = []
    for pid in processes:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found


def _describe(process: psutil.Process) -> str:
    """Return the command of a process, or an empty text if it does not run."""
    with suppress(psutil.Error):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.pid} of {process.ppid()}: {process.status()} {process.cmdline()}"
    return ""


def _describe_own(process: psutil.Process) -> str:
    """Return the command of a process that belongs to a cluster of this process."""
    with suppress(psutil.Error, OSError):
        if os.environ["TMPDIR"] in process.environ().get("HYPERPLANE_LOCAL_CLUSTER", ""):
            return _describe(process)
    return ""


def _find_ports(connections: Iterable[Any]) -> set[int]:
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def _find_shared_files(process: psutil.Process) -> set[Path]:
    """Return the files of shared memory that a process has mapped."""
    with suppress(psutil.Error):
        return {
            Path(each.path.removesuffix(" (deleted)"))
            for each in process.memory_maps()
            if each.path.startswith("/dev/shm/")
        }
    return set()


def _count_pipes() -> int:
    """Count the pipes that this process has open; Ray's driver keeps some sockets."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            count += str(link.readlink()).startswith("pipe:")
    return count
