"""Read state machines from files, with limits and the line of each fault."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperplane.asl.checking import find_problems
from hyperplane.asl.problems import Problem
from hyperplane.asl.strict_json import (
    MAX_DEPTH,
    JsonDocument,
    JsonLocation,
    JsonSyntaxError,
    copy_json_to_depth,
    parse_with_lines,
)
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call

#: Maximum size of a file in bytes.
MAX_FILE_BYTES = 2**20


@dataclass(frozen=True)
class Machine:
    """A checked state machine.

    Parameters
    ----------
    name : str
        Name of the file without suffixes; ``"machine"`` for a mapping.
    document : dict
        The machine as parsed JSON.
    doubts : tuple of Fault
        Unreachable states and duplicate names, which ``lenient=True`` accepts.
    """

    name: str
    document: dict[str, Any]
    doubts: tuple[Fault, ...] = ()


@check_call
def read_machine(
    source: str | os.PathLike[str] | Mapping[str, Any], *, lenient: bool = False
) -> Machine:
    """Read and check a state machine.

    Parameters
    ----------
    source : path or mapping
        A JSON file in UTF-8, of at most 1 MiB and 32 levels of nesting; or the machine as a
        mapping.
    lenient : bool
        Accept unreachable states and duplicate names, and list them in ``Machine.doubts``.

    Returns
    -------
    Machine

    Raises
    ------
    RequestError
        If the file cannot be read or the machine has faults. The error lists all faults, each with
        its location in the machine and its line in the file.

    Examples
    --------
    >>> machine = read_machine({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    >>> machine.name, machine.document["StartAt"]
    ('machine', 'A')
    """
    if isinstance(source, Mapping):
        name, parsed, file = "machine", _parse_mapping(source), ""
    elif isinstance(source, (str, os.PathLike)):
        path = Path(os.fspath(source))
        name, parsed, file = path.name.partition(".")[0], _parse_file(path), os.fspath(source)
    else:
        raise RequestError([Fault("machine", type(source).__name__, "a path or a mapping")])
    problems = [
        *(Problem(location, "a duplicate field", "each field once") for location, _ in
          parsed.duplicates),
        *find_problems(parsed.value),
    ]  # fmt: skip
    lines = {**parsed.lines, **dict(parsed.duplicates)}
    problems.sort(key=lambda problem: _line(problem.location, lines))
    faults = [
        (problem, problem.to_fault(_source(file, problem.location, lines))) for problem in problems
    ]
    flag_faults = find_flag_faults(lenient=lenient)
    accepts = lenient is True
    check([*flag_faults, *(f for problem, f in faults if not (accepts and problem.doubt))])
    doubts = tuple(fault for _, fault in faults)
    return Machine(name or "machine", parsed.value, doubts)


def _source(file: str, location: JsonLocation, lines: Mapping[JsonLocation, int]) -> str:
    """Return file and line of a location, or of its nearest parent that exists."""
    return f"{file}:{_line(location, lines)}" if file else ""


def _line(location: JsonLocation, lines: Mapping[JsonLocation, int]) -> int:
    while location and location not in lines:
        location = location[:-1]
    return lines.get(location, 1)


def _parse_mapping(source: Mapping[str, Any]) -> JsonDocument:
    try:
        return JsonDocument(copy_json_to_depth(dict(source), MAX_DEPTH))
    except ValueError as error:
        raise RequestError([Fault("machine", "a mapping", "JSON", str(error))]) from None


def _parse_file(path: Path) -> JsonDocument:
    file_name = os.fspath(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RequestError([Fault("machine", file_name, "a file that can be read", why)]) from error
    if len(data) > MAX_FILE_BYTES:
        raise RequestError([Fault("machine", f"{file_name} of more than 1 MiB", "at most 1 MiB")])
    try:
        return parse_with_lines(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        asked, advice = "bytes that are not UTF-8", "save the file as UTF-8"
        fault = Fault("machine", asked, "UTF-8", advice, source=f"{file_name}:{line}")
        raise RequestError([fault]) from None
    except JsonSyntaxError as error:
        source = f"{file_name}:{error.line}"
        allowed = f"JSON of at most {MAX_DEPTH} levels"
        fault = Fault("machine", "the text of the file", allowed, str(error), source=source)
        raise RequestError([fault]) from None
