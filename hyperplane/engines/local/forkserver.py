"""Worker processes forked from a clean process that has the usual modules loaded.

Most of the first seconds of a cluster go into every worker process importing pandas and
dask.dataframe. Python's forkserver is a fresh process, started by exec, that imports a list of
modules once and is then forked: a worker is there in a tenth of a second with all of them loaded,
after a restart too. It holds nothing of the user's process, and it has one thread only, so the
fork is safe (pyarrow's background thread is switched off in it; it would be the only other).

It also makes scripts work that have no ``if __name__ == "__main__"``: a worker process forked from
it does not run the script again. Functions of the main module travel by value with cloudpickle,
as they do from a notebook.

One forkserver serves all clusters of this process; it is ended with the last of them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver, get_context, process, resource_tracker
from pathlib import Path
from typing import Any

import psutil

from hyperplane.engines import records

_PRELOAD = "hyperplane.engines.local.forkserver_preload"
#: Carries what the forkserver must know, for the moment of its start.
VARIABLE = "HYPERPLANE_ZYGOTE"
#: Bytes that the path of a socket may have on Linux, without the zero byte at its end.
_LONGEST_PATH = 107
#: What Python adds to the folder of a forkserver's socket; it draws the letters.
_SOCKET_NAME = "/listener-xxxxxxxx"

_lock = threading.Lock()
_users = 0
#: The folder of the socket, held open where it has a long path.
_folder: int | None = None
_started: tuple[int, dict[str, str]] | None = None
#: Forkservers that were found stopped, each of which is warned of once.
_stopped: set[int] = set()

logger = logging.getLogger(__name__)


def acquire(modules: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Have a forkserver running for one more cluster.

    Parameters
    ----------
    modules : sequence of str
        Modules to load in it.
    environment : mapping
        Variables that must be set before it starts (they matter to libraries as they load).

    Returns
    -------
    bool
        Whether worker processes can be forked from it. False on other systems than Linux, in a
        process that multiprocessing started, when the program runs a forkserver of its own,
        when a running forkserver was started with other variables, or when the temporary directory
        takes no socket: then workers start from nothing.
    """
    global _users, _started
    # In a process that was spawned itself, functions of the main module travel by name.
    was_spawned = sys.modules["__main__"].__name__ == "__mp_main__"
    if was_spawned or not sys.platform.startswith("linux"):
        return False
    with _lock:
        server = _python_forkserver()
        running = server._forkserver_pid
        if _started is not None and running == _started[0] and _is_alive(running):
            if dict(environment) != _started[1]:
                return False
        elif running is not None and _is_alive(running):
            return False
        else:
            get_context("forkserver").set_forkserver_preload([_PRELOAD])
            try:
                _ensure_running(modules, environment)
            except OSError:
                _close_folder()
                records.remove_process_folder()
                return False
            _started = server._forkserver_pid, dict(environment)
        _users += 1
        return True


def release() -> None:
    """One cluster needs the forkserver no longer; with the last one it is ended."""
    global _users, _started
    with _lock:
        _users -= 1
        if _users or _started is None:
            return
        server = _python_forkserver()
        if server._forkserver_pid == _started[0]:
            # By signal first: a process that the user forked may hold the pipe whose end
            # would tell the forkserver to leave.
            with suppress(ProcessLookupError):
                os.kill(_started[0], signal.SIGTERM)
                os.kill(_started[0], signal.SIGCONT)  # a stopped process ends as it is continued
            with suppress(FileNotFoundError):  # somebody has cleared the temporary directory
                server._stop()
        _close_folder()
        # Also when the forkserver is gone and Python has begun another forkserver, elsewhere: a
        # SIGTERM to the whole process group ends it before its owner asks.
        records.remove_process_folder()
        _started = None


def check_worker_ended(pid: int) -> bool:
    """Return whether a worker process has ended, though the forkserver has not reported it.

    A forkserver that was stopped, by a debugger or SIGSTOP, reports nothing until it is continued.

    Parameters
    ----------
    pid : int
        A process that was forked from the forkserver.
    """
    try:
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        ended = True
    if ended and _started is not None and _started[0] not in _stopped:
        _stopped.add(_started[0])
        logger.warning(
            "process %d, from which worker processes are forked, is stopped and reports no end of "
            "them; they were ended without its report. It ends with the last cluster of this "
            "program; continue it with 'kill -CONT %d' to start further workers",
            _started[0],
            _started[0],
        )
    return ended


def close_inherited_pipe() -> None:
    """Called in a worker process: give up its end of the pipe that keeps the forkserver alive."""
    server = _python_forkserver()
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the owner; called in the forkserver and in every worker process.

    A terminal, and a notebook that interrupts its kernel, send it to the whole process group, and
    a worker would end with all the data on it.
    """
    # A handler, because programs that a task starts would inherit SIG_IGN.
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets no other thread say so
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _python_forkserver() -> Any:
    """Python's one forkserver. Its state has no public door; the tests watch over this use."""
    return vars(forkserver)["_forkserver"]


def _is_alive(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    return False


def _ensure_running(modules: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start the forkserver with variables that only it shall see."""
    message = {
        "modules": list(modules),
        "python_path": os.environ.get("PYTHONPATH"),
    }
    ours = {
        **environment,
        VARIABLE: json.dumps(message),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    before = {name: os.environ.get(name) for name in ours}
    # Its socket goes where it is found again should this process be killed.
    settings = vars(process.current_process())["_config"]
    folder_before = settings.get("tempdir")
    settings["tempdir"] = _short_path(records.process_folder())
    os.environ.update(ours)
    # A process inherits the mask: Ctrl-C waits until the forkserver has a handler for it. Python's
    # resource tracker comes first, because starting it takes the mask away.
    resource_tracker.ensure_running()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        settings["tempdir"] = folder_before
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _short_path(folder: Path) -> str:
    """Return a path of a folder that the path of a socket in it can begin with.

    Python binds the socket to it and connects to it for every worker process, so a folder with a
    long path is held open until the forkserver ends.
    """
    global _folder
    if len(os.fsencode(folder)) + len(_SOCKET_NAME) <= _LONGEST_PATH:
        return str(folder)
    _folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{_folder}"


def _close_folder() -> None:
    global _folder
    if _folder is not None:
        os.close(_folder)
        _folder = None
