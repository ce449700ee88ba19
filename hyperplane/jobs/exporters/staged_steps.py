"""Documents of steps whose code is staged in a bucket: uploads, cost and requests of a service."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hyperplane.core.errors import Fault, RequestError
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.exporters.base import Document
from hyperplane.jobs.exporters.exported_step import file_stem
from hyperplane.jobs.runners.container_program import read_task_program
from hyperplane.jobs.runners.container_steps import find_process_faults
from hyperplane.jobs.runners.first_attempts import first_attempts, with_sizes
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


@dataclass(frozen=True)
class StagedExporter(ABC):
    """Base of exporters to services, whose fields are options of the runner with the same name.

    Subclasses plan the requests of a service.
    """

    name: ClassVar[str]
    runner_type: ClassVar[type[Any]]
    #: Whether training programs of several processes are exported.
    runs_programs: ClassVar[bool] = False
    #: Maximum number of attempts that one request starts.
    most: ClassVar[int] = sys.maxsize

    @abstractmethod
    def _plan(self, settings: Any, staged: StagedStep) -> dict[str, Any]:
        """Return the requests of the service for the first attempts at a step."""

    def _scripts(self) -> list[TaskFile]:
        """Return further programs that are uploaded for all steps."""
        return []

    def find_unsupported(self, pipeline: Pipeline) -> list[Fault]:
        """Return a fault for each part of a pipeline, and each option, that is not supported."""
        try:
            runner = self._create_runner()
        except RequestError as error:
            return list(error.faults)
        return [
            *runner.find_option_faults(),
            *runner.find_unsupported(pipeline),
            *find_process_faults(pipeline, self.name, runs_programs=self.runs_programs),
        ]

    def render(self, job: Job) -> list[Document]:
        """Render one document for each step: its requests, manifests, files and cost."""
        runner = self._create_runner()
        costs = runner.describe_cost(job)
        in_container = runner.with_runtime_paths(job)
        folder = parse_staging(str(runner.settings.staging))
        task_program = read_task_program()
        documents = []
        steps = zip(job.pipeline.steps, in_container.pipeline.steps, costs, strict=True)
        for index, (step, moved, cost) in enumerate(steps):
            count = min(step.max_parallel or runner.at_once, self.most)
            commands = list(first_attempts(job, in_container, step, moved))[:count]
            files = collect_files(commands[0], step, job.pipeline.root, runner.settings)
            staged = StagedStep(with_sizes(step), commands, task_program, files, folder)
            document = {
                "step": step.name,
                "depends_on": list(step.depends_on),
                "cost": cost,
                "uploads": {
                    file.path: folder.url(folder.content_key(file.content, file.suffix))
                    for file in (task_program, *self._scripts(), *files)
                },
                **self._plan(runner.settings, staged),
            }
            text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
            documents.append(Document(f"{file_stem(index, step)}.json", text, "step"))
        return documents

    def _create_runner(self) -> Any:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return self.runner_type({}, self.runner_type.resolve_options(given))
