"""Tasks of a machine: programs and Python functions, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from hyperplane.asl.errors import TIMEOUT, BranchStopped, StateError
from hyperplane.asl.execution_scope import ExecutionScope
from hyperplane.asl.strict_json import copy_json, parse_json
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call

#: Seconds between SIGTERM and SIGKILL.
GRACE = 2.0
#: Maximum length of the end of standard error that the cause of a failure quotes.
_TAIL = 2000


@check_call
@dataclass(frozen=True)
class Command:
    """A program as a task that reads JSON from stdin and writes JSON to stdout.

    Parameters
    ----------
    argv : sequence of str
        The program and its arguments, which are not interpreted by a shell.

    Raises
    ------
    RequestError
        If ``argv`` is not a list or tuple of strings, or names no program.

    Examples
    --------
    >>> Command(["python", "fetch.py"]).argv
    ('python', 'fetch.py')
    """

    argv: Sequence[str]

    def __post_init__(self) -> None:
        argv: object = self.argv
        parts = argv if isinstance(argv, (list, tuple)) else ()
        if not parts:
            advice = "a command line is not split: pass each argument as an item"
            asked = repr(argv)[:80]
            raise RequestError([Fault("argv", asked, "a list of strings, first a program", advice)])
        check(
            Fault(f"argv[{number}]", repr(part)[:80], "a string" if number else "a program's name")
            for number, part in enumerate(parts)
            if not isinstance(part, str) or not (part or number)
        )
        object.__setattr__(self, "argv", tuple(parts))


def run_command(command: Command, payload: Any, limit: float | None, scope: ExecutionScope) -> Any:
    """Run a program; on a timeout or an error, end its process group."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the caller names the program
            list(command.argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = f"{command.argv[0]} cannot be started: {error}"
        raise StateError("States.TaskFailed", why) from None
    with end_on_stop(process, scope):
        try:
            out, log = process.communicate(json.dumps(payload).encode(), limit)
        except subprocess.TimeoutExpired:
            raise _timeout_error(limit) from None
    scope.check()
    if process.returncode:
        tail = log.decode(errors="replace").strip()[-_TAIL:]
        cause = f"{command.argv[0]} ended with exit status {process.returncode}"
        raise StateError("States.TaskFailed", f"{cause}: {tail}" if tail else cause)
    try:
        return parse_json(out) if out.strip() else None
    except ValueError as error:
        why = f"{command.argv[0]} wrote invalid JSON to stdout: {error}"
        raise StateError("States.TaskFailed", why) from None


@contextlib.contextmanager
def end_on_stop(process: subprocess.Popen[bytes], scope: ExecutionScope) -> Iterator[None]:
    """End the process group when the scope is stopped, and after an error in the block."""
    try:
        with scope.on_stop(lambda: _terminate(process)):
            yield
    except BaseException:
        _terminate(process)
        process.communicate()
        raise


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process group, and SIGKILL later from a timer thread."""
    _signal(process, signal.SIGTERM)
    timer = threading.Timer(GRACE, _signal, [process, signal.SIGKILL])
    timer.daemon = True
    timer.start()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group id is not reused while a member of the group lives.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def run_function(
    function: Callable[[Any], Any],
    payload: Any,
    limit: float | None,
    scope: ExecutionScope,
    variables: Context,
) -> Any:
    """Call a function in a separate thread and wait for it until the time limit.

    A thread cannot be ended: after a timeout it continues, and its result is dropped.
    """
    done = threading.Event()
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["result"] = variables.run(function, payload)
        except BaseException as error:  # noqa: BLE001 - any exception is a failure of the task
            outcome["error"] = error
        finally:
            done.set()

    threading.Thread(target=work, name="task", daemon=True).start()
    with scope.on_stop(done.set):
        done.wait(limit)
    if "error" in outcome:
        error = outcome.pop("error")
        raise StateError(type(error).__name__, str(error)) from error
    if "result" in outcome:
        try:
            return copy_json(outcome.pop("result"))
        except ValueError as error:
            why = f"the task returned an invalid value: {error}"
            raise StateError("States.TaskFailed", why) from None
    if scope.stopped:
        raise BranchStopped
    raise _timeout_error(limit)


def _timeout_error(limit: float | None) -> StateError:
    return StateError(TIMEOUT, f"the task exceeded its time limit of {limit or 0:g} s")
