"""Process state (environment, umask, limits, ...) that is sent to forked worker processes.

A process that is started by exec inherits environment variables, the umask, resource limits and
more from its parent. A worker that is forked from the forkserver inherits what the forkserver had
when it was started. What the program has changed since then is sent with each start of a worker,
restarts included.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import context, reduction, spawn
from pathlib import Path
from typing import Any

from hyperplane.clusters.dask.worker_memory import apply_malloc_options

if sys.platform != "win32":
    import resource

#: A child of the worker's logger, so that `cluster.get_logs()` shows its messages.
logger = logging.getLogger("distributed.worker.hyperplane")

#: Signals that cannot be ignored, or whose handlers the forkserver and Python set themselves.
_NOT_INHERITED = ("SIGINT", "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGPIPE", "SIGXFSZ")


@dataclass(frozen=True)
class ProcessState:
    """State that a process started by exec inherits from its parent.

    Parameters
    ----------
    environment : dict
        Environment variables.
    umask : int or None
        None if the system does not report it.
    limits : dict
        Number of a resource limit -> soft and hard limit.
    ignored : frozenset of int
        Signals that are ignored.
    affinity : frozenset of int
        CPUs that may be used.
    niceness : int
        Scheduling priority.
    streams : tuple
        Descriptors of standard output and error.
    """

    environment: dict[str, str]
    umask: int | None
    limits: dict[int, tuple[int, int]]
    ignored: frozenset[int]
    affinity: frozenset[int]
    niceness: int
    streams: tuple[tuple[int, Any], ...]

    @classmethod
    def capture(cls) -> ProcessState:
        """Return the state of this process; valid only while a worker process is being started."""
        pid = os.getpid()  # 0 would mean the calling thread
        names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
        numbers = {getattr(resource, name) for name in names}
        return cls(
            environment=dict(os.environ),
            umask=_read_umask(),
            limits={number: resource.getrlimit(number) for number in numbers},
            ignored=frozenset(
                number
                for number in _inheritable_signals()
                if signal.getsignal(number) == signal.SIG_IGN
            ),
            affinity=frozenset(os.sched_getaffinity(pid)),
            niceness=os.getpriority(os.PRIO_PROCESS, pid),
            streams=tuple((number, reduction.DupFd(number)) for number in _open_streams()),
        )

    def restore(self) -> None:
        """Apply the state to this process, which was forked from the forkserver."""
        for name in os.environ.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        time.tzset()
        if self.umask is not None:
            os.umask(self.umask)
        for number, limits in self.limits.items():
            if resource.getrlimit(number) != limits:
                with suppress(OSError, ValueError):  # only root can raise a hard limit
                    resource.setrlimit(number, limits)
        for number in _inheritable_signals():
            ignored = signal.getsignal(number) == signal.SIG_IGN
            if ignored != (number in self.ignored):
                signal.signal(number, signal.SIG_DFL if ignored else signal.SIG_IGN)
        with suppress(OSError):  # CPUs that the container no longer has
            os.sched_setaffinity(0, self.affinity)
        with suppress(OSError):  # only root can raise a priority
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        for number, sent in self.streams:
            received = sent.detach()
            os.dup2(received, number)
            os.close(received)


class WorkerEnvironment(dict[str, str]):
    """Environment variables of a worker process that are pickled with the state of this process.

    Dask pickles the variables each time it starts a worker process, and unpickles them in that
    process before it runs anything else of the worker.

    Parameters
    ----------
    variables : mapping
        Variables of the worker in addition to those of this process.
    main : mapping
        From :func:`main_module.spawn_preparation`; empty if the main module is not run.
    """

    def __init__(self, variables: Mapping[str, str], main: Mapping[str, str]) -> None:
        super().__init__(variables)
        self.main = dict(main)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if context.get_spawning_popen() is None:  # pickled, but not to start a process
            return dict, (dict(self),)
        return _receive, (ProcessState.capture(), dict(self), self.main)


def _receive(
    state: ProcessState, variables: dict[str, str], main: dict[str, str]
) -> dict[str, str]:
    state.restore()
    os.environ.update(variables)
    # Before Dask starts threads, of which each would get a heap; the preload logs invalid values.
    apply_malloc_options()
    if main:
        before = sys.modules["__main__"]
        try:
            spawn.prepare(main)
        except (Exception, SystemExit):  # plain Dask fails to start such a worker
            sys.modules["__main__"] = before
            sys.modules.pop("__mp_main__", None)
            logger.warning("the main module's definitions are not in this worker", exc_info=True)
    return variables


def _read_umask() -> int | None:
    # os.umask() returns it only by changing it, which would affect other threads.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None


def _inheritable_signals() -> set[int]:
    excluded = {getattr(signal, name) for name in _NOT_INHERITED}
    return {int(number) for number in signal.valid_signals() - excluded}


def _open_streams() -> list[int]:
    descriptors = []
    for number in (1, 2):
        with suppress(OSError):
            os.fstat(number)
            descriptors.append(number)
    return descriptors
