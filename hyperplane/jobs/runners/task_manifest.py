"""Manifest of the tasks of containers: their files, variables and programs, without secrets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperplane.core.artifact_reports import SEND_VARIABLE as SEND_REPORTS
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.notebook import SEND_VARIABLE
from hyperplane.jobs.runners.notebook_program import PROGRAM_FILES
from hyperplane.jobs.runners.staged_code import PROGRAM_FOLDER, TaskFile

#: Kind of a step -> positions of the paths in its command: program, script or notebook, output.
_PATH_ARGUMENTS = {"python": (1,), "bash": (1,), "javascript": (1,), "notebook": (1, 2, 3)}


def with_notebook_program(command: AttemptCommand, step: Step) -> AttemptCommand:
    """Return the command of a notebook with the program that is sent, others unchanged."""
    if step.kind != "notebook":
        return command
    program = f"{PROGRAM_FOLDER}/{PROGRAM_FILES[0].name}"
    return replace(
        command,
        argv=(command.argv[0], program, *command.argv[2:]),
        step_variables={**command.step_variables, SEND_VARIABLE: "1"},
    )


def with_reports(command: AttemptCommand) -> AttemptCommand:
    """Return the command of an attempt that writes to its log what it saves."""
    return replace(command, step_variables={**command.step_variables, SEND_REPORTS: "1"})


def build_manifest(
    commands: Sequence[AttemptCommand],
    step: Step,
    files: Sequence[TaskFile],
    keys: Sequence[str],
) -> dict[str, Any]:
    """Return the manifest of attempts: their files, variables and programs, without secrets.

    The position of an attempt is its index in the array job. ``paths`` are the positions of the
    arguments that are paths below the folder of the files, which may not be the working folder.
    """
    all_variables = [_plain_variables(command) for command in commands]
    shared = {
        name: text
        for name, text in all_variables[0].items()
        if all(variables.get(name) == text for variables in all_variables)
    }
    return {
        "folder": commands[0].folder,
        "paths": list(_PATH_ARGUMENTS.get(step.kind, ())),
        "files": [
            {
                "key": key,
                "sha256": hashlib.sha256(file.content).hexdigest(),
                "path": file.path,
                "archive": file.archive,
                "importable": file.importable,
            }
            for key, file in zip(keys, files, strict=True)
        ],
        "variables": shared,
        "tasks": [
            {
                "variables": {name: text for name, text in variables.items() if name not in shared},
                "argv": list(command.argv),
            }
            for command, variables in zip(commands, all_variables, strict=True)
        ],
    }


def dump_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as JSON."""
    return json.dumps(manifest, ensure_ascii=False, indent=1).encode(errors="surrogateescape")


def _plain_variables(command: AttemptCommand) -> dict[str, str]:
    hidden = command.secret_variables
    return {name: text for name, text in command.step_variables.items() if name not in hidden}


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Return the names and values of texts such as ``"NAME=value"``."""
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs)}
