"""Environments of workers, as :mod:`environment_program` prints them, and their comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hyperplane.guard.preflight import environment_program
from hyperplane.guard.preflight.report import PreflightFinding
from hyperplane.guard.preflight.versions import PACKAGES, join_places


@dataclass(frozen=True)
class EnvironmentRequest:
    """What the program is asked about.

    Parameters
    ----------
    modules : sequence of str
        Names of modules that the program imports.
    spill : str, optional
        Folder for spilled data; by default the temporary directory of the workers' machine.
    paths : sequence of str
        Local paths that tasks read or write.
    local : sequence of str
        Names of modules whose source files are compared.
    """

    modules: Sequence[str] = ()
    spill: str | None = None
    paths: Sequence[str] = ()
    local: Sequence[str] = ()

    def to_json(self) -> str:
        """Return the argument of the program."""
        return json.dumps({**vars(self), "packages": PACKAGES})


@dataclass(frozen=True)
class PreflightEnvironment:
    """What the environment of workers has.

    Parameters
    ----------
    versions : mapping
        Package -> version, or None.
    modules : mapping
        Module -> digest of its file, ``""`` if it has no file, or None if it is absent.
    disk : mapping
        Folder for spilled data, its free bytes, whether it can be written, and its file system.
    memory : int
        Bytes of the machine's memory.
    interfaces : list of str
        Names of network interfaces.
    paths : mapping
        Local path -> whether it exists.
    sources : mapping
        Module -> digests of its source files, by path.
    """

    versions: Mapping[str, str | None]
    modules: Mapping[str, str | None] = field(default_factory=dict)
    disk: Mapping[str, Any] = field(default_factory=dict)
    memory: int = 0
    interfaces: Sequence[str] = ()
    paths: Mapping[str, bool] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def program_command(python: str, request: EnvironmentRequest) -> list[str]:
    """Return the command that prints an environment."""
    return [python, "-c", _read_program(), request.to_json()]


@cache
def _read_program() -> str:
    return Path(environment_program.__file__).read_text(encoding="utf-8")


def describe_here(request: EnvironmentRequest) -> PreflightEnvironment:
    """Return the environment of this process."""
    return PreflightEnvironment(**environment_program.describe(json.loads(request.to_json())))


def parse_output(output: str) -> PreflightEnvironment | None:
    r"""Return the environment in the output of the program, or None; shells may print more.

    Examples
    --------
    >>> parse_output('welcome\n{"environment": {"versions": {"python": "3.11.2"}}}\n').versions
    {'python': '3.11.2'}
    """
    for line in reversed(output.splitlines()):
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict) and "environment" in content:
            return PreflightEnvironment(**content["environment"])
    return None


def check_paths(
    workers: Mapping[str, PreflightEnvironment], marker: str = ""
) -> Iterator[PreflightFinding]:
    """Yield a fault for each local path that is absent where workers run.

    ``marker`` is the path of a file that was created in the output folder of this machine.
    """
    missing: dict[str, list[str]] = {}
    for place, environment in workers.items():
        for path, exists in environment.paths.items():
            if not exists:
                missing.setdefault(path, []).append(place)
    advice = "use a folder that all machines share, or an object store"
    for path, places in missing.items():
        where = join_places(places)
        if path == marker:
            folder = str(Path(path).parent)
            text = f"{folder} of this machine is not shared with {where}, where tasks write"
            yield PreflightFinding("output", "fault", text, advice)
        else:
            text = f"{path} is absent on {where}, where tasks read"
            yield PreflightFinding("data", "fault", text, advice)
