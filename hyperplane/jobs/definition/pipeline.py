"""Pipelines: steps with their dependencies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.jobs.definition import field_types
from hyperplane.jobs.definition.dependencies import dependency_faults, resolve_dependencies
from hyperplane.jobs.definition.message_formatting import format_path
from hyperplane.jobs.definition.referenced_files import PipelineFiles, find_files, is_path
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.definition.step_rules import memory_growth_faults
from hyperplane.jobs.definition.validated_record import ValidatedRecord, validate_record


class Pipeline(ValidatedRecord):
    """Steps with their dependencies, created by :meth:`from_steps` or from a file.

    Parameters
    ----------
    name : str
        Name of the pipeline, one line of at most 128 characters.
    steps : tuple of Step
        The steps, each with all its dependencies in ``depends_on``.
    requirements : str, optional
        A requirements file for pip, relative to the root.
    working_dir : str, optional
        Working folder of the steps, relative to the root; by default the root.
    job_type : str, optional
        Label of the job; older files name the type of machine here.
    root : str
        Absolute folder that all paths are relative to.
    warnings : tuple of str
        Deviations of the file that were accepted, and how to correct each.
    """

    name: field_types.Name
    steps: tuple[Step, ...]
    requirements: field_types.PathText | None = None
    working_dir: field_types.PathText | None = None
    job_type: field_types.Name | None = None
    root: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def _build_nested(cls, values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
        inner = values.get("steps")
        if not isinstance(inner, list) or not all(isinstance(step, dict) for step in inner):
            return values, []
        results = [
            validate_record(Step, step, f"steps[{index}]") for index, step in enumerate(inner)
        ]
        faults = [fault for _, step_faults in results for fault in step_faults]
        rest = {name: value for name, value in values.items() if name != "steps"}
        return (rest if faults else {**rest, "steps": tuple(step for step, _ in results)}), faults

    @classmethod
    def _check_fields(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        if "steps" not in values:
            return []
        steps = values["steps"]
        if not steps:
            return [Fault("steps", "nothing", "at least one step")]
        faults = dependency_faults(
            [step.name for step in steps], [step.depends_on for step in steps]
        )
        return [replace(fault, where=format_path(fault.where, "steps")) for fault in faults]

    @classmethod
    @check_call
    def from_steps(
        cls,
        name: str,
        steps: Iterable[Step],
        *,
        root: str | os.PathLike[str] | None = None,
        requirements: str | None = None,
        working_dir: str | None = None,
        job_type: str | None = None,
    ) -> Pipeline:
        """Create a pipeline from steps, with the same checks as for files.

        Parameters
        ----------
        name : str
            Name of the pipeline.
        steps : iterable of Step
            The steps. A step created without ``depends_on`` waits for the previous one.
        root : path, optional
            Folder that paths are relative to; by default the git repository of the current folder,
            or the current folder if that contains more of the files.
        requirements, working_dir, job_type : str, optional
            As for :class:`Pipeline`.

        Returns
        -------
        Pipeline
            With all dependencies resolved, and its paths relative to its root.

        Raises
        ------
        RequestError
            With every fault of names, dependencies and files.

        Examples
        --------
        >>> first = Step(name="first", kind="command", argv=("date",))
        >>> second = Step(name="second", kind="command", argv=("date", "-u"))
        >>> Pipeline.from_steps("dates", [first, second]).steps[1].depends_on
        ('first',)
        """
        try:
            step_list = list(steps)
        except TypeError:
            check([Fault("steps", repr(steps)[:80], "a list of Step")])
        if root is not None and not is_path(root):
            check([Fault("root", repr(root)[:80], "the path of a folder, as text")])
        check(
            Fault(f"steps[{index}]", type(step).__name__, "a Step")
            for index, step in enumerate(step_list)
            if not isinstance(step, Step)
        )
        dependencies = [
            s.depends_on if "depends_on" in s.model_fields_set else None for s in step_list
        ]
        resolved = resolve_dependencies([step.name for step in step_list], dependencies)
        values: dict[str, Any] = {
            "name": name,
            "steps": [
                step.model_copy(update={"depends_on": names})
                for step, names in zip(step_list, resolved, strict=True)
            ],
            "requirements": requirements,
            "working_dir": working_dir,
            "job_type": job_type,
        }
        _, faults = validate_record(cls, {**values, "root": ""})
        faulty = {fault.where for fault in faults}
        shared = {name: value for name, value in values.items() if name not in faulty}
        files = find_files([dict(step) for step in step_list], shared, root, Path.cwd())
        faults += [
            replace(fault, where=format_path(fault.where, "steps"))
            for fault in [*memory_growth_faults([dict(step) for step in step_list]), *files.faults]
        ]
        check(faults)
        return with_relative_paths(
            cls(**values, root=str(files.root), warnings=files.warnings), files
        )

    @check_call
    def to_asl(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Convert the pipeline to an Amazon States Language machine for AWS Batch.

        Parameters
        ----------
        parameters : mapping, optional
            Names and values, for the environment of each step.

        Returns
        -------
        dict
            The state machine, for ``json.dumps``. Steps are grouped into sequential waves. They are
            retried as often and after the same delays, in whole seconds, as those of a job, but
            also after failures that a job does not retry.

        Raises
        ------
        RequestError
            With a fault for each feature that AWS Batch does not support.
        """
        from hyperplane.jobs.exporters.asl import to_asl  # rarely used

        return to_asl(self.name, self.steps, self.requirements, parameters, self.working_dir)


def with_relative_paths(pipeline: Pipeline, files: PipelineFiles) -> Pipeline:
    """Return a pipeline with its paths relative to its root."""
    steps = [
        step.model_copy(update=paths)
        for step, paths in zip(pipeline.steps, files.steps, strict=True)
    ]
    return pipeline.model_copy(update={**files.shared, "steps": tuple(steps)})
