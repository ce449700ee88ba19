"""Start and end the forkserver from which local worker processes are forked.

Most of the start of a cluster is spent in worker processes that import pandas and dask.dataframe.
Python's forkserver is a fresh process, started by exec, that imports a list of modules once and is
then forked for each worker: a worker starts, or restarts, in a tenth of a second with all of them
loaded. The fork is safe: the forkserver has no state of the user's process and only one thread
(pyarrow's background thread, which would be the only other one, is disabled in it).

Scripts without ``if __name__ == "__main__"`` work, too, because a forked worker process does not
run the script again. Functions of the main module are pickled by value with cloudpickle, as those
of a notebook are.

One forkserver serves all clusters of this process and ends with the last of them.
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
from typing import TYPE_CHECKING, Any

import dask.config
import psutil

from hyperplane.clusters import records
from hyperplane.core.worker_imports import list_loaded_modules
from hyperplane.platforms.local.processes import is_running_child

if TYPE_CHECKING:
    from hyperplane.spec.settings import LocalSettings

_PRELOAD = "hyperplane.clusters.dask.local.forkserver_preload"
#: Environment variable that passes parameters to a starting forkserver.
VARIABLE = "HYPERPLANE_FORKSERVER"
#: Maximum length in bytes of the path of a socket on Linux, without the terminating NUL.
_LONGEST_PATH = 107
#: What Python appends to the folder of a forkserver's socket; the letters are random.
_SOCKET_NAME = "/listener-xxxxxxxx"

_lock = threading.Lock()
_users = 0
#: Descriptor of the socket's folder, kept open if its path is too long for a socket.
_folder: int | None = None
#: Process ID, environment variables and modules of the forkserver that this module has started.
_started: tuple[int, dict[str, str], list[str]] | None = None
#: Process IDs of stopped forkservers for which a warning was logged.
_stopped: set[int] = set()

logger = logging.getLogger(__name__)


def acquire_for(settings: LocalSettings) -> bool:
    """Acquire the forkserver with the modules and variables of a cluster: see :func:`acquire`."""
    if settings.start_method != "preload":
        return False
    # Workers that have loaded what this process uses begin their first task at once.
    modules = [*settings.preload, *list_loaded_modules()]
    return acquire(modules, _pre_spawn_variables())


def acquire(modules: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Start the forkserver if needed and register one more cluster that uses it.

    Parameters
    ----------
    modules : sequence of str
        Modules to import in the forkserver when it starts.
    environment : mapping
        Variables to set before it starts, because libraries read them when they are loaded.

    Returns
    -------
    bool
        Whether worker processes can be forked from it. False on systems other than Linux, in a
        process that multiprocessing has spawned, if the program already runs a forkserver, if our
        running forkserver was started with other variables, or if the temporary directory does not
        support sockets. Worker processes are then spawned.
    """
    global _users, _started
    # In a spawned process, functions of the main module are pickled by reference.
    was_spawned = sys.modules["__main__"].__name__ == "__mp_main__"
    if was_spawned or not sys.platform.startswith("linux"):
        return False
    with _lock:
        server = _python_forkserver()
        running = server._forkserver_pid
        if _started is not None and running == _started[0] and is_running_child(running):
            if dict(environment) != _started[1]:
                return False
        elif running is not None and is_running_child(running):
            return False
        else:
            get_context("forkserver").set_forkserver_preload([_PRELOAD])
            try:
                _ensure_running(modules, environment)
            except OSError:
                _close_folder()
                records.remove_process_folder()
                return False
            _started = server._forkserver_pid, dict(environment), list(modules)
        _users += 1
        return True


def restart_if_ended() -> None:
    """Start the forkserver again if it was killed, such as by the kernel for memory.

    Its worker processes have ended with it. Otherwise Python would start a forkserver without
    these modules and variables, which would stay until the end of the program.
    """
    global _started
    with _lock:
        server = _python_forkserver()
        if _started is None or server._forkserver_pid != _started[0]:
            return  # a program may use Python's forkserver itself, after ours has ended
        pid, environment, modules = _started
        if not is_running_child(pid):
            logger.warning("process %d, from which worker processes are forked, was killed", pid)
            _ensure_running(modules, environment)
            _started = server._forkserver_pid, environment, modules


def release() -> None:
    """Unregister one cluster, and end the forkserver with the last one."""
    global _users, _started
    with _lock:
        _users -= 1
        if _users or _started is None:
            return
        server = _python_forkserver()
        if server._forkserver_pid == _started[0]:
            # By signal: closing the pipe is not enough if a process that the user has forked also
            # holds it.
            with suppress(ProcessLookupError):
                os.kill(_started[0], signal.SIGTERM)
                os.kill(_started[0], signal.SIGCONT)  # so that a stopped process handles SIGTERM
            with suppress(FileNotFoundError):  # the temporary directory has been cleared
                server._stop()
        _close_folder()
        # Also if our forkserver has ended and Python has started another one: a SIGTERM to the
        # whole process group can end it before this call.
        records.remove_process_folder()
        _started = None


def check_worker_ended(pid: int) -> bool:
    """Return whether a forked worker process has ended, and warn if the forkserver is stopped.

    A forkserver that was stopped by a debugger or SIGSTOP does not report ended processes until it
    is continued.
    """
    try:
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        ended = True
    if ended and _started is not None and _started[0] not in _stopped:
        _stopped.add(_started[0])
        logger.warning(
            "process %d, from which worker processes are forked, is stopped and did not report "
            "that they ended; they were closed without its report. It ends with the last cluster "
            "of this program; continue it with 'kill -CONT %d' to start more workers",
            _started[0],
            _started[0],
        )
    return ended


def close_inherited_pipe() -> None:
    """Close a worker process's copy of the pipe that keeps the forkserver alive."""
    server = _python_forkserver()
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def ignore_interrupts() -> None:
    """Ignore SIGINT in the forkserver and in worker processes.

    Ctrl-C in a terminal, and interrupting a notebook's kernel, send SIGINT to the whole process
    group; a worker would end with all its data.
    """
    # A handler instead of SIG_IGN, which programs started by a task would inherit.
    if threading.current_thread() is not threading.main_thread():
        return  # Python permits it only in the main thread
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _pre_spawn_variables() -> dict[str, str]:
    """Return Dask's ``pre-spawn-environ``, in which the user's own variables have priority."""
    configured = dask.config.get("distributed.nanny.pre-spawn-environ")
    variables = {
        name: os.environ.get(name, str(value))
        for name, value in configured.items()
        if value is not None
    }
    # The value that Dask uses, so that hashes of text agree between worker processes.
    if variables.get("PYTHONHASHSEED") in (None, "0"):
        variables["PYTHONHASHSEED"] = "6640"
    return variables


def _python_forkserver() -> Any:
    """Return Python's forkserver object, which has no public API; tests cover its use."""
    return vars(forkserver)["_forkserver"]


def _ensure_running(modules: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start the forkserver with environment variables that this process does not keep."""
    message = {
        "modules": list(modules),
        "python_path": os.environ.get("PYTHONPATH"),
        "owner": os.getpid(),
    }
    variables = {
        **environment,
        VARIABLE: json.dumps(message),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }
    before = {name: os.environ.get(name) for name in variables}
    # The socket is in the process folder, so that it is removed if this process is killed.
    settings = vars(process.current_process())["_config"]
    folder_before = settings.get("tempdir")
    settings["tempdir"] = _short_path(records.process_folder())
    os.environ.update(variables)
    # The forkserver inherits the signal mask, so SIGINT is pending until it has its handler. The
    # resource tracker is started first, because starting it resets the mask.
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
    """Return a path of a folder that is short enough for a socket in it.

    For a long path that is the path of an open descriptor, which stays open until the forkserver
    ends because Python connects to the socket for every worker process.
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
