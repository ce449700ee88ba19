"""Tasks that are programs, and functions of Python, with a limit of time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from hyperplane.asl.errors import BranchStopped, StateError
from hyperplane.asl.execution_scope import ExecutionScope
from hyperplane.asl.json_values import copy_json, parse_json
from hyperplane.errors import Fault, RequestError
from hyperplane.public_calls import check_call

#: Seconds for a program to end by itself when it is asked to.
GRACE = 2.0
#: Characters of what a program said that go into the cause of its failure.
_TAIL = 2000


@check_call
@dataclass(frozen=True)
class Command:
    """A program as a task: its input as JSON on stdin, its output as JSON on stdout.

    Parameters
    ----------
    argv : sequence of str
        The program and its arguments. No shell reads them.

    Raises
    ------
    RequestError
        It is no list of texts, or has no program.

    Examples
    --------
    >>> Command(["python", "fetch.py"]).argv
    ('python', 'fetch.py')
    """

    argv: Sequence[str]

    def __post_init__(self) -> None:
        given: object = self.argv
        parts = given if isinstance(given, (list, tuple)) else ()
        if not (parts and parts[0] and all(isinstance(part, str) for part in parts)):
            advice = "a whole command line is not read: give each argument by itself"
            asked = "something else" if parts else repr(given)[:80]
            raise RequestError([Fault("argv", asked, "a list of texts, a program first", advice)])
        object.__setattr__(self, "argv", tuple(parts))


def run_command(command: Command, payload: Any, limit: float | None, scope: ExecutionScope) -> Any:
    """Run a program to its end, or end its whole process group."""
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
    try:
        with scope.on_stop(lambda: _terminate(process)):
            out, said = process.communicate(json.dumps(payload).encode(), limit)
    except subprocess.TimeoutExpired:
        _terminate(process)
        process.communicate()
        raise _too_long(limit) from None
    except BaseException:
        _terminate(process)
        process.communicate()
        raise
    scope.check()
    if process.returncode:
        tail = said.decode(errors="replace").strip()[-_TAIL:]
        cause = f"{command.argv[0]} ended with status {process.returncode}"
        raise StateError("States.TaskFailed", f"{cause}: {tail}" if tail else cause)
    try:
        return parse_json(out) if out.strip() else None
    except ValueError as error:
        why = f"what {command.argv[0]} wrote to stdout is no JSON: {error}"
        raise StateError("States.TaskFailed", why) from None


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, and see to it a little later; nobody waits here."""
    _signal(process, signal.SIGTERM)
    timer = threading.Timer(GRACE, _signal, [process, signal.SIGKILL])
    timer.daemon = True
    timer.start()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group lives as long as any of its members, and keeps its number for so long.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def run_function(
    function: Callable[[Any], Any],
    payload: Any,
    limit: float | None,
    scope: ExecutionScope,
    variables: Context,
) -> Any:
    """Call a function in a thread of its own, and wait for it no longer than one may.

    A thread cannot be ended: one that takes too long goes on, and its result is dropped.
    """
    done = threading.Event()
    box: dict[str, Any] = {}

    def work() -> None:
        try:
            box["result"] = variables.run(function, payload)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its failure
            box["error"] = error
        finally:
            done.set()

    threading.Thread(target=work, name="task", daemon=True).start()
    with scope.on_stop(done.set):
        done.wait(limit)
    if "error" in box:
        error = box.pop("error")
        raise StateError(type(error).__name__, str(error)) from error
    if "result" in box:
        try:
            return copy_json(box.pop("result"))
        except ValueError as error:
            why = f"what the task returned, {error}"
            raise StateError("States.TaskFailed", why) from None
    if scope.stopped:
        raise BranchStopped
    raise _too_long(limit)


def _too_long(limit: float | None) -> StateError:
    return StateError("States.Timeout", f"the task took longer than {limit or 0:g} s")
