"""Faults of pipelines whose steps cannot run in a container each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hyperplane.core.errors import Fault
from hyperplane.jobs import calls
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.execution.cluster_arguments import find_framework_faults
from hyperplane.jobs.runners.staged_code import MAX_FOLDER_BYTES, StagedCodeSettings, list_folder


def find_code_faults(
    pipeline: Pipeline,
    settings: StagedCodeSettings,
    runner: str,
    advice: str = "install them in the image, and omit the key",
) -> Iterator[Fault]:
    """Yield a fault for each part of a pipeline whose code cannot be sent to a container.

    ``advice`` says where requirements are installed.
    """
    if pipeline.requirements is not None:
        asked = format_value(pipeline.requirements)
        yield Fault("requirements", asked, f"no requirements on {runner}", advice)
    for step in pipeline.steps:
        if step.argv[1:] == ("-m", calls.PROGRAM):
            allowed = "a script or notebook, or a program in the image"
            yield Fault(f"step {step.name!r}: argv", "a Python function", allowed)
    if settings.root is None and settings.stage == "folder":
        size = sum(file.stat().st_size for _, file in list_folder(Path(pipeline.root)))
        if size > MAX_FOLDER_BYTES:
            allowed = f"a folder of at most {MAX_FOLDER_BYTES} bytes"
            advice = "add the files to the image, and set the option root=FOLDER"
            yield Fault("root", f"{size} bytes in {pipeline.root}", allowed, advice)


def find_process_faults(
    pipeline: Pipeline, runner: str, *, runs_programs: bool = False
) -> Iterator[Fault]:
    """Yield a fault for each step with several processes, or a cluster that starts before it.

    ``runs_programs`` is whether training programs are accepted.
    """
    for index, step in enumerate(pipeline.steps):
        where = f"steps[{index}]"
        is_training = step.kind == "train"
        if step.gang_size and not (is_training and runs_programs):
            field = "kind" if is_training else "gang"
            shown = "train" if is_training else str(step.gang)
            yield Fault(f"{where}.{field}", shown, f"a step of one process on {runner}")
        yield from find_framework_faults(step, where, runner)
