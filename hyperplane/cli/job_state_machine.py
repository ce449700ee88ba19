"""``hyperplane job run machine.asl.json``: run a state machine in the foreground."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hyperplane.cli.job_options import EXIT_CODES
from hyperplane.cli.output import write_json
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, TIMED_OUT

if TYPE_CHECKING:
    from hyperplane.asl.events import Event

SUFFIX = ".asl.json"
_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def is_machine(file: Path) -> bool:
    """Return whether the name of a file is that of a state machine."""
    return file.name.lower().endswith(SUFFIX)


def run_machine_file(
    file: Path, input_text: str | None, tasks: Sequence[str], *, as_json: bool
) -> None:
    """Run a state machine; print its events to standard error, its output to standard output.

    ``input_text`` is JSON or the name of a file. Each task is ``"RESOURCE=module:function"`` or
    ``"RESOURCE=program argument ..."``. With ``as_json`` one document with status and output is
    printed, and no events.
    """
    from hyperplane.asl.errors import MachineFailed
    from hyperplane.asl.reading import read_machine
    from hyperplane.asl.running import run_machine

    faults: list[Fault] = []
    machine = None
    try:
        machine = read_machine(file)
    except RequestError as error:
        faults += error.faults
    value = _parse_input(input_text, faults)
    tasks_by_resource = _parse_tasks(tasks, faults)
    check(faults)
    assert machine is not None  # noqa: S101 - otherwise check has raised
    on_event = None if as_json else _print_event
    document: dict[str, Any] = {"name": machine.name, "status": DONE}
    with StopSignals() as signals:
        # A closed terminal cancels the machine, which ends the programs of its tasks: they run in
        # separate sessions, so the terminal does not end them.
        signal.signal(signal.SIGHUP, lambda *_: signals.stop_requested.set())
        try:
            document["output"] = run_machine(
                machine, value, tasks_by_resource, on_event=on_event, cancel=signals.stop_requested
            )
        except MachineFailed as error:
            # A signal may end a program before the machine is cancelled.
            ended = CANCELLED if signals.stop_requested.is_set() else FAILED
            document["status"] = TIMED_OUT if error.error == "States.Timeout" else ended
            document.update(error=error.error, cause=error.cause, state=error.state)
            typer.echo(str(error), err=True)
    if as_json:
        write_json(document)
    elif "output" in document:
        write_json(document["output"])
    if code := EXIT_CODES[document["status"]]:
        raise typer.Exit(code)


def _print_event(event: Event) -> None:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in event.path)
    parts = [
        event.at.astimezone().strftime("%H:%M:%S"),
        f"{to_plain_line(path[1:])}: {event.kind}",
    ]
    if event.kind == "retried":
        parts.append(f"(attempt {event.attempt} in {event.wait:g} s)")
    if event.error:
        parts.append(to_plain_line(f"{event.error}: {event.cause}"[:300]))
    typer.echo(" ".join(parts), err=True)


def _parse_input(text: str | None, faults: list[Fault]) -> Any:
    """Return the input from JSON or a file; an empty object if there is none."""
    if text is None:
        return {}
    try:
        is_file = not text.lstrip().startswith(("{", "[", '"')) and Path(text).is_file()
        return json.loads(Path(text).read_text() if is_file else text)
    except (OSError, ValueError, RecursionError) as error:
        advice = f"{type(error).__name__}: {error}"[:200]
        faults.append(
            Fault("--input", repr(text[:80]), "JSON, or the path of a file with JSON", advice)
        )
        return {}


def _parse_tasks(texts: Sequence[str], faults: list[Fault]) -> dict[str, Any]:
    """Return the tasks by resource: functions of modules, or programs."""
    from hyperplane.asl.commands import Command

    tasks: dict[str, Any] = {}
    if str(Path.cwd()) not in sys.path:  # as python -m does
        sys.path.insert(0, str(Path.cwd()))
    allowed = "RESOURCE=module:function, or RESOURCE='program arguments'"
    for text in texts:
        resource, equals, target = text.partition("=")
        task_text = repr(text[:80])
        if not equals or not resource or resource in tasks:
            faults.append(Fault("--task", task_text, f"{allowed}, each resource once"))
        elif match := _FUNCTION.fullmatch(target):
            tasks[resource] = None
            try:
                tasks[resource] = getattr(importlib.import_module(match[1]), match[2])
            except (ImportError, AttributeError) as error:
                advice = f"{type(error).__name__}: {error}"[:200]
                faults.append(Fault("--task", task_text, "a function that can be imported", advice))
        else:
            try:
                words = shlex.split(target)
            except ValueError as error:
                faults.append(Fault("--task", task_text, allowed, str(error)))
                continue
            if words:
                tasks[resource] = Command(words)
            else:
                faults.append(Fault("--task", task_text, allowed))
    return tasks
