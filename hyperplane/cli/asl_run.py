"""Run a state machine in the foreground: ``hyperplane asl run``, and ``job run`` with one."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hyperplane.cli.job_options import EXIT_CODES
from hyperplane.cli.output import write_json
from hyperplane.cli.stop_signals import StopSignals
from hyperplane.cli.yaml_file import read_yaml_mapping
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.jobs.definition.message_formatting import suggest_names
from hyperplane.jobs.definition.yaml_tree import to_python
from hyperplane.jobs.job_progress import to_plain_line
from hyperplane.jobs.store.job_records import CANCELLED, DONE, FAILED, TIMED_OUT

if TYPE_CHECKING:
    from hyperplane.asl.events import Event
    from hyperplane.asl.reading import Machine

SUFFIX = ".asl.json"
#: What a task may be, for messages.
_TARGETS = "module:function, or 'program arguments'"
#: Maximum names in a message.
_MAX_NAMES = 20
_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def is_machine(file: Path) -> bool:
    """Return whether the name of a file is that of a state machine."""
    return file.name.lower().endswith(SUFFIX)


def load_machine(file: Path, faults: list[Fault], *, lenient: bool) -> Machine | None:
    """Read a machine and print its doubts as warnings; return None and add its faults if any."""
    from hyperplane.asl.reading import read_machine

    try:
        machine = read_machine(file, lenient=lenient)
    except RequestError as error:
        faults += error.faults
        return None
    for doubt in machine.doubts:
        typer.echo(f"warning: {to_plain_line(str(doubt))}", err=True)
    return machine


def run_machine_file(
    file: Path,
    input_text: str | None,
    tasks: Sequence[str],
    *,
    as_json: bool,
    lenient: bool = False,
    task_file: Path | None = None,
    batch: Mapping[str, str] | None = None,
) -> None:
    """Run a state machine; print its events to standard error, its output to standard output.

    ``input_text`` is JSON or the name of a file. Each task is ``"NAME=module:function"`` or
    ``"NAME=program argument ..."``; ``task_file`` has more of them. ``batch`` are the arguments of
    ``BatchJobs``, to run the jobs of AWS Batch here. With ``as_json`` one document with status and
    output is printed, and no events.
    """
    from hyperplane.asl.batch_jobs import BATCH_RESOURCES, BatchJobs
    from hyperplane.asl.errors import MachineFailed
    from hyperplane.asl.running import run_machine
    from hyperplane.asl.task_registry import list_task_names

    faults: list[Fault] = []
    machine = load_machine(file, faults, lenient=lenient)
    value = parse_input(input_text, faults)
    tasks_by_name = _parse_tasks(_read_task_file(task_file, faults), "--task-file", faults)
    given = _parse_tasks(_split_tasks(tasks, faults), "--task", faults)
    tasks_by_name |= given  # the command line is the more specific place
    if machine is not None:
        # A file with tasks may be that of several machines.
        names = list_task_names(machine.document, {"Execution": {"Input": value}})
        faults += _find_unused(given, names)
    if batch is not None:
        try:
            jobs = BatchJobs(**batch)
            tasks_by_name = {**dict.fromkeys(BATCH_RESOURCES, jobs), **tasks_by_name}
        except RequestError as error:
            faults += [replace(each, where=f"--batch-{each.where}") for each in error.faults]
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
                machine, value, tasks_by_name, on_event=on_event, cancel=signals.stop_requested
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


def parse_input(text: str | None, faults: list[Fault]) -> Any:
    """Return the input from JSON or a file; an empty object if there is none."""
    if text is None:
        return {}
    try:
        is_file = not text.lstrip().startswith(("{", "[", '"')) and Path(text).is_file()
        return json.loads(Path(text).read_bytes() if is_file else text)
    except (OSError, ValueError, RecursionError) as error:
        advice = f"{type(error).__name__}: {error}"[:200]
        faults.append(
            Fault("--input", repr(text[:80]), "JSON, or the path of a file with JSON", advice)
        )
        return {}


def _split_tasks(texts: Sequence[str], faults: list[Fault]) -> dict[str, Any]:
    """Return the targets of ``NAME=TARGET`` by name; the name is a resource or one in it."""
    targets: dict[str, Any] = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not equals or not name or name in targets:
            faults.append(Fault("--task", repr(text[:80]), f"NAME={_TARGETS}, each name once"))
        else:
            targets[name] = target
    return targets


def _find_unused(given: Iterable[str], known: Sequence[str] | None) -> Iterator[Fault]:
    """Yield a fault for each name that the machine does not use, as far as its names are known."""
    for name in given:
        if known is not None and name not in known:
            shown = ", ".join(known[:_MAX_NAMES]) or "it has no tasks"
            more = ", ..." * (len(known) > _MAX_NAMES)
            allowed = f"a name that the machine uses: {shown}{more}"
            yield Fault("--task", repr(name[:80]), allowed, suggest_names(name, known))


def _read_task_file(path: Path | None, faults: list[Fault]) -> dict[str, Any]:
    """Return the targets by name of a YAML or JSON file with one mapping."""
    if path is None:
        return {}
    allowed = f"a YAML or JSON file with a mapping of names to {_TARGETS}"
    tree = read_yaml_mapping(path, "--task-file", allowed, faults)
    targets: dict[str, Any] = to_python(tree, text=False)
    return targets


def _parse_tasks(targets: Mapping[str, Any], where: str, faults: list[Fault]) -> dict[str, Any]:
    """Return the tasks by name: functions of modules, or programs."""
    from hyperplane.asl.commands import Command

    tasks: dict[str, Any] = {}
    if str(Path.cwd()) not in sys.path:  # as python -m does
        sys.path.insert(0, str(Path.cwd()))
    for name, target in targets.items():
        shown = repr(f"{name}={target}"[:80])
        words = target
        if isinstance(target, str):
            if match := _FUNCTION.fullmatch(target):
                tasks[name] = None
                try:
                    tasks[name] = getattr(importlib.import_module(match[1]), match[2])
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the module's own code
                    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                    allowed = f"a function of a module that can be imported ({reason})"
                    advice = f"find the cause with: python -c 'import {match[1]}'"
                    faults.append(Fault(where, shown, allowed, advice))
                continue
            try:
                words = shlex.split(target)
            except ValueError as error:
                faults.append(Fault(where, shown, _TARGETS, str(error)))
                continue
        try:
            tasks[name] = Command(words)
        except RequestError:
            faults.append(Fault(where, shown, _TARGETS))
            continue
        if shutil.which(words[0]) is None:  # found now, and not after the tasks before it
            advice = f"check the name {words[0][:80]!r}, or give the path of the program"
            faults.append(Fault(where, shown, "a program that this machine has", advice))
    return tasks
