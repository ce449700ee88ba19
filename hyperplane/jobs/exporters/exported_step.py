"""File names, variables, command line and faults of a step, as all exporters write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.cluster_arguments import cluster_variable, find_gang_cluster_faults
from hyperplane.jobs.execution.failure_kinds import INPUT, classify_failure
from hyperplane.jobs.execution.step_command import build_arguments, notebook_output_path
from hyperplane.jobs.execution.step_environment import (
    PARAMETERS,
    secret_variables,
    step_variables,
)
from hyperplane.jobs.exporters.scheduler_text import slug
from hyperplane.jobs.runners.step_resources import resource_request
from hyperplane.jobs.store.job_records import Job, WorkUnit
from hyperplane.jobs.submission.parameters import PARAMETER_PREFIX
from hyperplane.jobs.submission.step_clusters import find_engine_faults

#: Exit codes after which a retry makes no sense.
INPUT_CODES = tuple(code for code in range(1, 256) if classify_failure(code, "") == INPUT)

_COUNT_VARIABLE = "HYPERPLANE_SHARD_COUNT"
_INDEX_VARIABLES = ("HYPERPLANE_SHARD_INDEX", f"{PARAMETER_PREFIX}CHUNK_ID", "CHUNK_ID")
_ITEM_VARIABLES = (f"{PARAMETER_PREFIX}ITEM", "ITEM")


def file_stem(index: int, step: Step) -> str:
    """Return the stem of the names of a step's files."""
    return f"{index:03d}-{slug(step.name, 40)}".strip("-")


@dataclass(frozen=True)
class StepEnvironment:
    """Variables that a step has in addition to those of the system where it runs.

    ``fixed`` are the same for all chunks; if the step has chunks, the JSON parameters in them lack
    ``chunk_id`` and ``item``. ``index_variables`` and ``item_variables`` are the names of the
    variables with the chunk's index and with its item. ``secrets`` has the variables for each
    secret.
    """

    fixed: dict[str, str]
    index_variables: tuple[str, ...]
    item_variables: tuple[str, ...]
    secrets: dict[str, tuple[str, ...]]

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters that are the same for all chunks."""
        parameters: dict[str, str] = json.loads(self.fixed[PARAMETERS])
        return parameters


def build_environment(job: Job, step: Step) -> StepEnvironment:
    """Return the variables of a step, as the local runner sets them."""
    secrets = {name: tuple(secret_variables({name: ""})) for name in step.secrets}
    secret_names = {name for names in secrets.values() for name in names}
    taken = secret_names | set(step.env)
    index_variables = _exclude_names(taken, _INDEX_VARIABLES if step.chunk_count else ())
    item_variables = _exclude_names(taken, _ITEM_VARIABLES if step.foreach else ())
    dropped = ("chunk_id",) * bool(step.chunk_count) + ("item",) * bool(step.foreach)
    parameters = {name: text for name, text in job.parameters.items() if name not in dropped}
    fixed = step_variables(replace(job, parameters=parameters), step, WorkUnit(step.name), 1)
    if step.chunk_count:
        fixed.setdefault(_COUNT_VARIABLE, str(step.chunk_count))
    varying = {*index_variables, *item_variables, *secret_names}
    shared = {name: text for name, text in fixed.items() if name not in varying}
    return StepEnvironment(
        {**shared, **cluster_variable(step, 0)}, index_variables, item_variables, secrets
    )


def _exclude_names(taken: set[str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in taken)


class CommandLine(NamedTuple):
    """Program and arguments of a step.

    For a notebook in chunks, ``words`` lacks the last word, and ``output`` has the text of that
    word before and after the chunk's index.
    """

    words: tuple[str, ...]
    output: tuple[str, str] | None = None


def build_command_line(job: Job, step: Step, python: str) -> CommandLine:
    """Return program and arguments of a step; each chunk of a notebook has its own output."""
    unit = WorkUnit(step.name)
    words = build_arguments(job, step, unit, python)
    if step.kind != "notebook" or not step.chunk_count:
        return CommandLine(words)
    path = Path(notebook_output_path(job, step, unit))
    return CommandLine(words[:-1], (f"{path.parent / path.stem}-", path.suffix))


def find_common_faults(pipeline: Pipeline, runner: str) -> Iterator[Fault]:
    """Yield faults for fields of steps that no exporter supports, and for unknown pools."""
    for index, step in enumerate(pipeline.steps):
        for field in ("more_memory", "split"):
            value = getattr(step, field)
            if value is not None:
                allowed = f"no value on {runner}, which restarts steps unchanged"
                advice = "request the memory at once, or use the local runner"
                yield Fault(f"steps[{index}].{field}", f"{value:g}", allowed, advice)
        yield from find_gang_cluster_faults(step, f"steps[{index}]", runner)
        for fault in find_engine_faults(step):
            is_key = fault.where.startswith("hyperplane.")
            yield fault if is_key else replace(fault, where=f"steps[{index}].{fault.where}")
        try:
            resource_request(step)
        except UnknownPool as error:
            where = f"steps[{index}].resources.pool"
            yield from (replace(fault, where=where) for fault in error.faults)


def find_encoding_faults(job: Job) -> Iterator[Fault]:
    """Yield faults for parameters that cannot be encoded."""
    for name, text in job.parameters.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError:
            where = f"parameters[{format_value(name)}]"
            yield Fault(where, "bytes that are not text", "text that UTF-8 can encode")
