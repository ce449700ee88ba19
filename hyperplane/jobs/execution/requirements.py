"""Virtual environments of pipelines, one for each set of requirements and interpreter."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.store.jobs_home import jobs_folder

#: Name of the step that installs the requirements.
INSTALL_STEP = "(pip install)"


def name_faults(pipeline: Pipeline) -> list[Fault]:
    """Return a fault if a step has the name of the installation step."""
    if pipeline.requirements is None or all(step.name != INSTALL_STEP for step in pipeline.steps):
        return []
    return [
        Fault(
            "steps",
            repr(INSTALL_STEP),
            "another name: this one is reserved for the installation of requirements",
        )
    ]


def add_install_step(pipeline: Pipeline, python: str) -> tuple[Step, ...]:
    """Return the steps of a pipeline, preceded by the installation of its requirements."""
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
    """Return the Python interpreter that has the required packages."""
    if pipeline.requirements is None:
        return python
    return str(
        _environment_folder(Path(pipeline.root, pipeline.requirements), python) / "bin" / "python"
    )


def _environment_folder(file: Path, python: str) -> Path:
    requirements = file.read_bytes() if file.exists() else b""
    name = hashlib.sha256(requirements + python.encode() + platform.python_version().encode())
    return jobs_folder() / "environments" / name.hexdigest()[:16]
