"""Packages that a pipeline asks for: installed beside those that are there, once for each list."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from hyperplane.errors import Fault
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.home import jobs_folder

#: The step that installs.
INSTALL_STEP = "(pip install)"


def name_faults(pipeline: Pipeline) -> list[Fault]:
    """A step of the user that is called as the one that installs."""
    if pipeline.requirements is None or all(step.name != INSTALL_STEP for step in pipeline.steps):
        return []
    return [Fault("steps", repr(INSTALL_STEP), "another name: the step that installs has this one")]


def add_install_step(pipeline: Pipeline, python: str) -> tuple[Step, ...]:
    """The steps of a pipeline, and before all of them the one that installs."""
    if pipeline.requirements is None:
        return pipeline.steps
    file = Path(pipeline.root, pipeline.requirements)
    argv = (
        python,
        "-m",
        "hyperplane.jobs.install",
        str(file),
        str(_environment_folder(file, python)),
    )
    first = Step(name=INSTALL_STEP, kind="command", argv=argv, retries=2)
    return (
        first,
        *(
            step if step.depends_on else step.model_copy(update={"depends_on": (INSTALL_STEP,)})
            for step in pipeline.steps
        ),
    )


def select_interpreter(pipeline: Pipeline, python: str) -> str:
    """The interpreter that finds the packages."""
    if pipeline.requirements is None:
        return python
    return str(
        _environment_folder(Path(pipeline.root, pipeline.requirements), python) / "bin" / "python"
    )


def _environment_folder(file: Path, python: str) -> Path:
    asked = file.read_bytes() if file.exists() else b""
    name = hashlib.sha256(asked + python.encode() + platform.python_version().encode())
    return jobs_folder() / "environments" / name.hexdigest()[:16]
