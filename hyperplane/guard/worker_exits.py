"""Explain the end of tasks whose worker processes ended without a sign of a lack of memory.

Nannies report the exit of a process with the tasks that ran in it. Schedulers and nannies without
this package receive this module by value, so it imports only modules that are sent with it.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from hyperplane.guard.memory_advice import describe_operation
from hyperplane.guard.memory_record import shorten_key
from hyperplane.guard.usage_texts import describe_memory

#: Number of reports that are kept, and of names of workers.
_KEPT, _KEPT_NAMES = 200, 10_000
#: Signals of a process that has made a mistake itself.
_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})
_FIND_LINE = (
    "run the task alone in a program that is started with python -X faulthandler, which prints the "
    "line: dask.compute(..., scheduler='synchronous')"
)


def name_signal(exit_code: int) -> str:
    """Return the name of the signal of an exit code; empty for a code of the program.

    Examples
    --------
    >>> name_signal(-11), name_signal(-50), name_signal(3)
    ('SIGSEGV', 'signal 50', '')
    """
    if exit_code >= 0:
        return ""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def describe_end(exit_code: int) -> tuple[str, str]:
    """Return how a process ended, with the likely reason, and what to do."""
    name = name_signal(exit_code)
    if not name:
        return (
            f"with exit code {exit_code}: the task, or a library that it uses, ended the process, "
            "as os._exit does",
            "let the task raise an error instead, or find the call by running the task alone: "
            "dask.compute(..., scheduler='synchronous')",
        )
    number = f"by signal {-exit_code}" + (f" ({name})" if name.startswith("SIG") else "")
    if name in _FAULTS:
        return (
            f"{number}: a fault in compiled code, such as a library that the task uses",
            f"{_FIND_LINE}. Compare the versions of its libraries, and set nthreads=1 if one of "
            "them is not thread-safe",
        )
    if name == "SIGABRT":
        return (
            f"{number}: compiled code gave up, for a fault or a failed allocation, such as one of "
            "more memory than the machine has",
            "read what it printed in the log of the worker; smaller partitions help if it is an "
            f"allocation. Otherwise {_FIND_LINE}",
        )
    return (
        f"{number}, which another program or the kernel sent, such as a batch system, a limit of "
        "CPU time or a user",
        "look for that signal in the logs of the machine and of the batch system",
    )


def explain_exit(operation: str, key: str, attempts: int, report: Mapping[str, Any]) -> str:
    """Return the message of a task whose worker processes ended."""
    how, fix = describe_end(int(report["exit_code"]))
    memory = describe_memory(int(report.get("peak") or 0), int(report.get("limit") or 0))
    others = [each for each in report.get("running") or () if each != key]
    beside = f" Beside it {', '.join(others)} ran there." if others else ""
    times = f"{attempts} time{'s' if attempts > 1 else ''}"
    return (
        f"the worker process of {operation or 'a task'} ended {how}. In the last sample it used "
        f"{memory}. The task {key} was tried {times}.{beside} What to do: {fix}"
    )


class WorkerExits:
    """The latest exits of worker processes without a sign of a lack of memory."""

    def __init__(self) -> None:
        self.reports: deque[Mapping[str, Any]] = deque(maxlen=_KEPT)
        #: Keys of the tasks that ran in the process of each report, and have not ended since.
        self._open: deque[set[str]] = deque(maxlen=_KEPT)
        #: The latest address of workers by name.
        self._addresses: dict[str, str] = {}

    def add_worker(self, name: str, address: str) -> None:
        """Remember the address of a worker that was added to the scheduler."""
        self._addresses.pop(name, None)
        self._addresses[name] = address
        while len(self._addresses) > _KEPT_NAMES:
            del self._addresses[next(iter(self._addresses))]

    def complete(self, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a report with the address of its worker.

        A process may end in its first task before its nanny has received its address.
        """
        address = report["worker"] or self._addresses.get(report.get("name") or "", "")
        return {**report, "worker": address}

    def add(self, report: Mapping[str, Any], given: Iterable[str]) -> None:
        """Keep a report, and the tasks that ran in the process, or all that its worker was given.

        A process that ends as soon as it runs its first task has not recorded it yet.
        """
        self.reports.append(report)
        self._open.append(set(report.get("running") or given))

    def end_run(self, key: str) -> None:
        """Forget that a task ran in processes that have ended: its next run has other causes."""
        for keys in self._open:
            keys.discard(key)

    def create_state(self, key: Any, prefix: str, killed: Any) -> dict[str, Any] | None:
        """Return the state of the error of a task instead of a KilledWorker.

        None if no report is about it; that of the last attempt may arrive later.
        """
        text, last = shorten_key(key), killed.last_worker.address
        pairs = zip(self.reports, self._open, strict=True)
        about = [report for report, keys in pairs if text in keys]
        about = about or [each for each in self.reports if each["worker"] == last]
        if not about:
            return None
        report, operation = about[-1], describe_operation(prefix)
        attempts = killed.allowed_failures + 1
        return {
            "error": "WorkerCrash",
            "message": explain_exit(operation, text, attempts, report),
            "key": key,
            "last_worker": killed.last_worker,
            "operation": operation,
            "exit_code": int(report["exit_code"]),
            "attempts": attempts,
            "fix": describe_end(int(report["exit_code"]))[1],
        }
