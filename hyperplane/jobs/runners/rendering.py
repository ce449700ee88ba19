"""What all runners need to know of a step: what it takes, how often it is tried, what it sees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from hyperplane import config
from hyperplane.errors import Fault, UnknownPool
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.definition.wording import format_value
from hyperplane.jobs.environment import (
    PARAMETER_PREFIX,
    PARAMETERS,
    cluster_variable,
    secret_variables,
    step_variables,
)
from hyperplane.jobs.faults import INPUT, classify_failure
from hyperplane.jobs.states import Job, WorkUnit
from hyperplane.jobs.step_command import build_arguments, notebook_output_path
from hyperplane.units import gb_to_bytes, parse_seconds

#: Exit codes after which another attempt makes no sense.
INPUT_CODES = tuple(code for code in range(1, 256) if classify_failure(code, "") == INPUT)

_COUNT = "HYPERPLANE_SHARD_COUNT"
_OF_INDEX = ("HYPERPLANE_SHARD_INDEX", f"{PARAMETER_PREFIX}CHUNK_ID", "CHUNK_ID")
_OF_ITEM = (f"{PARAMETER_PREFIX}ITEM", "ITEM")


class ResourceRequest(NamedTuple):
    """What one process of a step takes of a machine; None where it does not say.

    Parameters
    ----------
    cores : float or None
        Cores.
    memory : int or None
        Bytes.
    gpus : int
        GPUs.
    """

    cores: float | None
    memory: int | None
    gpus: int


def resource_request(step: Step) -> ResourceRequest:
    """What a step takes; a pool stands for what worker processes can have of it.

    Examples
    --------
    >>> from hyperplane.jobs import Resources
    >>> needs(Step(name="a", kind="command", argv=("a",), resources=Resources(ram_gb=1.5)))
    Needs(cores=None, memory=1500000000, gpus=0)
    """
    asked = step.resources
    if asked.pool is not None:
        pool = config.get_pool(asked.pool)
        room = gb_to_bytes(pool.allocatable_ram_gb)
        return ResourceRequest(pool.allocatable_cores, room, asked.gpus or pool.gpus)
    memory = None if asked.ram_gb is None else gb_to_bytes(asked.ram_gb)
    return ResourceRequest(asked.cores, memory, asked.gpus)


def count_retries(job: Job, step: Step) -> int:
    """How often a step is tried again: what it says, or what the job says."""
    return job.max_retries if step.retries is None else step.retries


def retry_pauses(times: int) -> list[float]:
    """Seconds before each of so many retries."""
    settings = config.jobs()
    first = float(parse_seconds(settings.retry_wait))
    most = float(parse_seconds(settings.retry_wait_most))
    return [min(most, first * 2.0**time) for time in range(times)]


def grace_seconds() -> float:
    """Seconds that a process may take to end before it is killed."""
    return float(parse_seconds(config.jobs().grace))


def slug(name: str, most: int) -> str:
    """A name in letters, digits and dashes, which every scheduler takes; may be empty.

    Examples
    --------
    >>> slug("Übung 1: x; rm -rf /", 63)
    'bung-1-x-rm-rf'
    """
    return re.sub("[^A-Za-z0-9]+", "-", name).strip("-")[:most].strip("-")


def file_stem(place: int, step: Step) -> str:
    """The beginning of the names of a step's files."""
    return f"{place:03d}-{slug(step.name, 40)}".strip("-")


@dataclass(frozen=True)
class StepEnvironment:
    """The variables that a step sees beyond those of the place where it runs.

    Parameters
    ----------
    fixed : dict of str to str
        The same for all chunks. Of a step in chunks, the parameters as JSON lack ``chunk_id`` and
        ``item``.
    index_variables, item_variables : tuple of str
        Names of those that hold the number of the chunk, and its item.
    secrets : dict of str to tuple of str
        For each secret the variables that hold it.
    """

    fixed: dict[str, str]
    index_variables: tuple[str, ...]
    item_variables: tuple[str, ...]
    secrets: dict[str, tuple[str, ...]]

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters that are the same for all chunks."""
        found: dict[str, str] = json.loads(self.fixed[PARAMETERS])
        return found


def build_environment(job: Job, step: Step) -> StepEnvironment:
    """What a step sees, as the local runner would have it."""
    secrets = {name: tuple(secret_variables({name: ""})) for name in step.secrets}
    closed = {name for names in secrets.values() for name in names}
    taken = closed | set(step.env)
    index_variables = _without_taken(taken, _OF_INDEX if step.chunk_count else ())
    item_variables = _without_taken(taken, _OF_ITEM if step.foreach else ())
    dropped = ("chunk_id",) * bool(step.chunk_count) + ("item",) * bool(step.foreach)
    parameters = {name: text for name, text in job.parameters.items() if name not in dropped}
    fixed = step_variables(replace(job, parameters=parameters), step, WorkUnit(step.name), 1)
    if step.chunk_count:
        fixed.setdefault(_COUNT, str(step.chunk_count))
    varying = {*index_variables, *item_variables, *closed}
    shared = {name: text for name, text in fixed.items() if name not in varying}
    return StepEnvironment(
        {**shared, **cluster_variable(step, 0)}, index_variables, item_variables, secrets
    )


def _without_taken(taken: set[str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in taken)


class CommandLine(NamedTuple):
    """Program and arguments of a step.

    Parameters
    ----------
    words : tuple of str
        The words; of a notebook in chunks all but the last.
    output : tuple of (str, str), or None
        Of a notebook in chunks, what stands before and after the chunk's number in the last word.
    """

    words: tuple[str, ...]
    output: tuple[str, str] | None = None


def build_command_line(job: Job, step: Step, python: str) -> CommandLine:
    """Program and arguments of a step; each chunk of a notebook writes a file of its own."""
    whole = WorkUnit(step.name)
    words = build_arguments(job, step, whole, python)
    if step.kind != "notebook" or not step.chunk_count:
        return CommandLine(words)
    path = Path(notebook_output_path(job, step, whole))
    return CommandLine(words[:-1], (f"{path.parent / path.stem}-", path.suffix))


def common_faults(pipeline: Pipeline, runner: str) -> Iterator[Fault]:
    """What no scheduler does: looking at why a chunk failed, and sizing it anew."""
    for index, step in enumerate(pipeline.steps):
        for field in ("more_memory", "split"):
            value = getattr(step, field)
            if value is not None:
                allowed = f"nothing on {runner}, which starts a step again as it was"
                advice = "ask for the memory at once, or run it with the local runner"
                yield Fault(f"steps[{index}].{field}", f"{value:g}", allowed, advice)
        try:
            resource_request(step)
        except UnknownPool as error:
            where = f"steps[{index}].resources.pool"
            yield from (replace(fault, where=where) for fault in error.faults)


def encoding_faults(job: Job) -> Iterator[Fault]:
    """Parameters that no text can hold."""
    for name, text in job.parameters.items():
        try:
            f"{name}{text}".encode()
        except UnicodeEncodeError:
            where = f"parameters[{format_value(name)}]"
            yield Fault(where, "bytes that are no text", "text that UTF-8 can hold")
