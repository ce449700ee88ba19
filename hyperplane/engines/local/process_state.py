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

if sys.platform != "win32":
    import resource

#: Below the worker's own, so that `cluster.get_logs()` shows it.
logger = logging.getLogger("distributed.worker.hyperplane")

#: Signals that the forkserver and Python itself set.
_NOT_INHERITED = ("SIGINT", "SIGKILL", "SIGSTOP", "SIGCHLD", "SIGPIPE", "SIGXFSZ")


@dataclass(frozen=True)
class ProcessState:
    """What a process inherits from the one that starts it by exec.

    Parameters
    ----------
    environment : dict
        Variables.
    umask : int or None
        None where the system does not tell it.
    limits : dict
        Numbers of resource limits -> soft and hard limit.
    ignored : frozenset of int
        Signals that are ignored.
    affinity : frozenset of int
        Processors that may be used.
    niceness : int
        Priority.
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
        """The state of this process; called while a worker process is being started."""
        pid = os.getpid()  # and not 0, which is the thread that asks
        names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
        numbers = {getattr(resource, name) for name in names}
        return cls(
            environment=dict(os.environ),
            umask=_umask(),
            limits={number: resource.getrlimit(number) for number in numbers},
            ignored=frozenset(
                number for number in _signals() if signal.getsignal(number) == signal.SIG_IGN
            ),
            affinity=frozenset(os.sched_getaffinity(pid)),
            niceness=os.getpriority(os.PRIO_PROCESS, pid),
            streams=tuple((number, reduction.DupFd(number)) for number in _open_streams()),
        )

    def restore(self) -> None:
        """Put it in force in this process, which has been forked from the forkserver."""
        for name in os.environ.keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        time.tzset()
        if self.umask is not None:
            os.umask(self.umask)
        for number, limits in self.limits.items():
            if resource.getrlimit(number) != limits:
                with suppress(OSError, ValueError):  # a hard limit rises for root only
                    resource.setrlimit(number, limits)
        for number in _signals():
            ignored = signal.getsignal(number) == signal.SIG_IGN
            if ignored != (number in self.ignored):
                signal.signal(number, signal.SIG_DFL if ignored else signal.SIG_IGN)
        with suppress(OSError):  # processors that a container has taken away
            os.sched_setaffinity(0, self.affinity)
        with suppress(OSError):  # a priority rises for root only
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        for number, sent in self.streams:
            received = sent.detach()
            os.dup2(received, number)
            os.close(received)


class WorkerEnvironment(dict[str, str]):
    """Variables of a worker process, which bring the state of this one with them.

    Dask pickles them anew as it starts a worker process, and unpickles them in that process before
    anything of the worker runs.

    Parameters
    ----------
    variables : mapping
        What the worker has beside the variables of this process.
    main : mapping
        How the main module's definitions are run, see :func:`main_module.preparation`.
    """

    def __init__(self, variables: Mapping[str, str], main: Mapping[str, str]) -> None:
        super().__init__(variables)
        self.main = dict(main)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if context.get_spawning_popen() is None:  # a copy for somewhere else
            return dict, (dict(self),)
        return _receive, (ProcessState.capture(), dict(self), self.main)


def _receive(
    state: ProcessState, variables: dict[str, str], main: dict[str, str]
) -> dict[str, str]:
    state.restore()
    os.environ.update(variables)
    if main:
        before = sys.modules["__main__"]
        try:
            spawn.prepare(main)
        except (Exception, SystemExit):  # plain Dask fails to start such a worker
            sys.modules["__main__"] = before
            sys.modules.pop("__mp_main__", None)
            logger.warning("the main module's definitions are not in this worker", exc_info=True)
    return variables


def _umask() -> int | None:
    # os.umask() tells it only by changing it, under the hands of other threads.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None


def _signals() -> set[int]:
    left_out = {getattr(signal, name) for name in _NOT_INHERITED}
    return {int(number) for number in signal.valid_signals() - left_out}


def _open_streams() -> list[int]:
    found = []
    for number in (1, 2):
        with suppress(OSError):
            os.fstat(number)
            found.append(number)
    return found
