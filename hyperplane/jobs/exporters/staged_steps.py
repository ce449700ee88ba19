"""Documents of steps whose code is staged in a bucket: uploads, cost and requests of a service."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import file_stem
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
from hyperplane.jobs.runners.service_submitter import read_task_program
from hyperplane.jobs.runners.staged_code import TaskFile, collect_files
from hyperplane.jobs.store.job_records import Job
from hyperplane.platforms.object_staging import StagingFolder, parse_staging


@dataclass(frozen=True)
class StagedStep:
    """A step with what its first attempts need.

    Parameters
    ----------
    step : Step
        The step with the sizes of its pool.
    commands : list of AttemptCommand
        Its first attempts that run at once.
    program : TaskFile
        The program that a task runs first.
    files : list of TaskFile
        Code and other files of the step.
    folder : StagingFolder
        Where these are uploaded.
    """

    step: Step
    commands: list[AttemptCommand]
    program: TaskFile
    files: list[TaskFile]
    folder: StagingFolder


def render_steps(
    runner: Any,
    job: Job,
    plan: Callable[[StagedStep], dict[str, Any]],
    most: int | None = None,
) -> list[Document]:
    """Render one document for each step of a job; ``plan`` returns the requests of the service.

    ``most`` is the maximum number of attempts that one request starts.
    """
    costs = runner.describe_cost(job)
    in_container = runner.with_runtime_paths(job)
    folder = parse_staging(str(runner.settings.staging))
    task_program = read_task_program()
    documents = []
    steps = zip(job.pipeline.steps, in_container.pipeline.steps, costs, strict=True)
    for index, (step, moved, cost) in enumerate(steps):
        count = min(step.max_parallel or runner.at_once, most or sys.maxsize)
        commands = list(first_attempts(job, in_container, step, moved))[:count]
        files = collect_files(commands[0], step, job.pipeline.root, runner.settings)
        staged = StagedStep(with_sizes(step), commands, task_program, files, folder)
        document = {
            "step": step.name,
            "depends_on": list(step.depends_on),
            "cost": cost,
            "uploads": {
                file.path: folder.url(folder.content_key(file.content, file.suffix))
                for file in (task_program, *files)
            },
            **plan(staged),
        }
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        documents.append(Document(f"{file_stem(index, step)}.json", text, "step"))
    return documents
