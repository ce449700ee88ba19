"""What is run for a step: program and arguments, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.states import Job, WorkUnit


@dataclass(frozen=True)
class SubmissionEnvironment:
    """What whoever submits a job hands over, and which stands in no file.

    Parameters
    ----------
    environment : mapping of str to str
        What steps run in.
    """

    environment: Mapping[str, str] = field(repr=False)


def attempt_prefix(job: Job, unit: WorkUnit, number: int) -> Path:
    """Where the files of an attempt begin."""
    names = [step.name for step in job.pipeline.steps]
    # The step that installs is none of them; without a number its folder is nobody else's.
    place = f"{names.index(unit.step):03d}-" if unit.step in names else ""
    folder = job.place / "steps" / f"{place}{_slug(unit.step)}"
    if unit.chunks:
        folder /= f"chunk-{unit.chunk:05d}"
    return folder / f"attempt-{number}"


def build_arguments(job: Job, step: Step, unit: WorkUnit, python: str) -> tuple[str, ...]:
    """Program and arguments of a step."""
    path = str(Path(job.pipeline.root, step.path))
    if step.kind == "notebook":
        output = str(notebook_output_path(job, step, unit))
        return (python, str(Path(__file__).with_name("notebook.py")), path, output)
    if step.kind == "python":
        return (python, path)
    if step.kind == "javascript":
        return ("node", path)
    return ("bash", path) if step.kind == "bash" else step.argv


def notebook_output_path(job: Job, step: Step, unit: WorkUnit) -> Path:
    """Where an executed notebook is written; each chunk has its own."""
    if step.output_path is None:
        return attempt_prefix(job, unit, 1).parent / Path(step.path).name
    path = Path(job.pipeline.root, step.output_path)
    return path.with_stem(f"{path.stem}-{unit.chunk:05d}") if unit.chunks else path


def working_folder(pipeline: Pipeline, step: Step) -> str:
    """Where a step runs."""
    return str(Path(pipeline.root, step.working_dir or pipeline.working_dir or "."))


def _slug(name: str) -> str:
    return re.sub("[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "step"
