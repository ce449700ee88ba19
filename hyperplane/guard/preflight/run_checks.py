"""Run checks concurrently within a time limit, so that a silent service costs only that limit."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.report import PreflightFinding

#: Seconds that all checks together may take.
LIMIT_SECONDS = 5.0
#: Part of the limit that is left, after the checks' own deadline, for the end of connections to
#: silent hosts and for the results of the other hosts.
_MARGIN_SECONDS = 0.5
#: Minimum seconds for the checks, however long the preparation took.
_SHORTEST_SECONDS = 1.0
#: Seconds that interrupted checks may take to close their connections.
_STOP_SECONDS = 2.0


class Check(NamedTuple):
    """One check before a start.

    Parameters
    ----------
    subject : str
        What is checked.
    run : callable
        Returns the findings. It gets its deadline, should not wait longer for any service, and
        should run what waits with :meth:`CheckDeadline.run`, which Ctrl-C ends.
    """

    subject: str
    run: Callable[[CheckDeadline], Iterable[PreflightFinding]]


def run_checks(
    checks: Sequence[Check],
    limit: float = LIMIT_SECONDS,
    spent: float = 0.0,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[PreflightFinding]:
    """Run checks at the same time and return their findings, in the order of the checks.

    ``spent`` is the part of the limit that the preparation of the checks took, such as imports.

    A check that has no result in time is reported as ``unchecked``, and so is one that raises: a
    check must not prevent a start that would succeed. Checks are stopped when the time is over, and
    when Ctrl-C or another exception ends this function. Where Ctrl-C is deferred, ``waiting``
    returns a context manager that permits it.
    """
    end = time.monotonic() + max(_SHORTEST_SECONDS, limit - spent)
    results: queue.SimpleQueue[tuple[int, list[PreflightFinding]]] = queue.SimpleQueue()
    deadlines = [CheckDeadline(end - _MARGIN_SECONDS) for _ in checks]
    # Daemon threads: the program may end while a client library still waits for a server.
    threads = [
        threading.Thread(
            target=_run,
            args=(number, check, deadlines[number], results),
            name=f"hyperplane-preflight-{check.subject}",
            daemon=True,
        )
        for number, check in enumerate(checks)
    ]
    try:
        for thread in threads:
            thread.start()
        with waiting():
            findings = _collect(results, len(checks), end)
    except BaseException:
        _stop(deadlines)
        _wait_for(threads)
        raise
    _stop(deadlines)
    silent = "no answer within {:g} s; the start itself waits longer"
    return [
        finding
        for number, check in enumerate(checks)
        for finding in findings.get(
            number, [PreflightFinding(check.subject, "unchecked", silent.format(limit))]
        )
    ]


def _collect(
    results: queue.SimpleQueue[tuple[int, list[PreflightFinding]]], count: int, end: float
) -> dict[int, list[PreflightFinding]]:
    """Return the findings that arrive before the end, by the number of their check."""
    findings: dict[int, list[PreflightFinding]] = {}
    while len(findings) < count:
        try:
            number, found = results.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        findings[number] = found
    return findings


def _stop(deadlines: Iterable[CheckDeadline]) -> None:
    for deadline in deadlines:
        deadline.stop()


def _wait_for(threads: Iterable[threading.Thread]) -> None:
    """Wait for a short time until threads have ended, so that their connections are closed."""
    end = time.monotonic() + _STOP_SECONDS
    for thread in threads:
        if thread.is_alive():  # false, too, if it was not started
            thread.join(max(0.0, end - time.monotonic()))


def _run(
    number: int,
    check: Check,
    deadline: CheckDeadline,
    results: queue.SimpleQueue[tuple[int, list[PreflightFinding]]],
) -> None:
    try:
        found = list(check.run(deadline))
    except asyncio.CancelledError:  # stopped: nothing waits for the result
        return
    except Exception as error:  # noqa: BLE001 - errors of any library mean that nothing is known
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        found = [PreflightFinding(check.subject, "unchecked", text)]
    results.put((number, found))
