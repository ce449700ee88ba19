"""Commands of steps: program, arguments, working folder, and paths of their files."""

from __future__ import annotations

import re
from pathlib import Path

from hyperplane.clusters.gang_plan import GangPlan, plan_program
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.store.job_records import Job, WorkUnit


def attempt_prefix(job: Job, unit: WorkUnit, number: int) -> Path:
    """Return the path of an attempt's files without their suffix."""
    names = [step.name for step in job.pipeline.steps]
    # The step that installs requirements has no index, so its folder is distinct.
    index = f"{names.index(unit.step):03d}-" if unit.step in names else ""
    folder = job.folder_path / "steps" / f"{index}{_slug(unit.step)}"
    if unit.chunks:
        folder /= f"chunk-{unit.chunk:05d}"
    return folder / f"attempt-{number}"


def build_arguments(job: Job, step: Step, unit: WorkUnit, python: str) -> tuple[str, ...]:
    """Return program and arguments of a step."""
    path = str(Path(job.pipeline.root, step.path))
    if step.kind == "notebook":
        output = str(notebook_output_path(job, step, unit))
        return (python, str(Path(__file__).parents[1] / "notebook.py"), path, output)
    if step.kind == "python":
        return (python, path)
    if step.kind == "javascript":
        return ("node", path)
    if step.kind == "train":
        return (python, "-m", str(step.module_name), *program_arguments(step))
    return ("bash", path) if step.kind == "bash" else step.argv


def program_arguments(step: Step) -> list[str]:
    """Return the arguments of a training program."""
    return [*step.args, *(("--job-dir", step.job_dir) if step.job_dir else ())]


def plan_gang(step: Step) -> GangPlan:
    """Return the processes of a step with a ``gang_size``.

    Examples
    --------
    >>> step = Step(name="fit", kind="train", module_name="trainer.task", worker_count=1)
    >>> plan_gang(step).name(1)
    'worker-0'
    """
    if step.kind != "train":
        return GangPlan(step.gang_size)
    return plan_program(
        str(step.module_name),
        program_arguments(step),
        workers=step.worker_count,
        parameter_servers=step.parameter_server_count,
        evaluators=step.evaluator_count,
    )


def notebook_output_path(job: Job, step: Step, unit: WorkUnit) -> Path:
    """Return the path of the executed notebook; each chunk has a separate one."""
    if step.output_path is None:
        return attempt_prefix(job, unit, 1).parent / Path(step.path).name
    path = Path(job.pipeline.root, step.output_path)
    return path.with_stem(f"{path.stem}-{unit.chunk:05d}") if unit.chunks else path


def working_folder(pipeline: Pipeline, step: Step) -> str:
    """Return the folder in which a step runs."""
    if step.package_path is not None:
        return str(Path(pipeline.root, step.package_path).parent)
    return str(Path(pipeline.root, step.working_dir or pipeline.working_dir or "."))


def list_units(step: Step) -> list[WorkUnit]:
    """Return the work of a step: one unit, or one for each chunk."""
    chunks = step.chunk_count
    if not chunks:
        return [WorkUnit(step.name)]
    return [WorkUnit(step.name, chunk, chunks) for chunk in range(chunks)]


def _slug(name: str) -> str:
    return re.sub("[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "step"
