"""Differences of two jobs: parameters, code, definition, outcome and durations of the steps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperplane.history.code_digest import SHOWN
from hyperplane.history.run_record import RunRecord
from hyperplane.jobs.job_progress import StepProgress, step_progress
from hyperplane.jobs.step_records import show_parameters
from hyperplane.jobs.store.job_records import Attempt, Job

#: Status of a step that a job does not have.
ABSENT = "no such step"
_PARAMETER = "parameter "
_NO_RECORDS: Mapping[str, RunRecord] = {}
#: Fields of jobs that are compared.
_FIELDS = (
    "pipeline_name", "status", "reason", "job_type", "schedule", "machine", "runner",
    "python", "timeout", "active_timeout", "max_retries", "output",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A field that differs; None for a value that a job does not have."""

    field: str
    first: str | None
    second: str | None


@dataclass(frozen=True)
class StepComparison:
    """A step in two jobs; the seconds are None where the job does not have the step."""

    step: str
    first_status: str
    second_status: str
    first_seconds: float | None
    second_seconds: float | None


def compare_jobs(
    first: Job,
    second: Job,
    first_records: Mapping[str, RunRecord] = _NO_RECORDS,
    second_records: Mapping[str, RunRecord] = _NO_RECORDS,
) -> list[Difference]:
    """Return what differs: parameters, code of steps, fields, and settings of the pipeline.

    The records are those of the steps, by their names. Secrets in parameters are masked after the
    comparison, so that it shows that they differ.
    """
    pairs = _compare_parameters(
        first, second, show_parameters(first, first_records),
        show_parameters(second, second_records),
    )  # fmt: skip
    pairs += _compare_records(first_records, second_records)
    pairs += [(name, getattr(first, name), getattr(second, name)) for name in _FIELDS]
    pairs += _compare_values("", _flatten_definition(first), _flatten_definition(second))
    return [
        Difference(field, *(None if value is None else str(value) for value in (one, two)))
        for field, one, two in pairs
        if one != two or field.startswith(_PARAMETER)
    ]


def _compare_parameters(
    first: Job, second: Job, first_shown: Mapping[str, str], second_shown: Mapping[str, str]
) -> list[tuple[str, Any, Any]]:
    """Return the parameters that differ, as they are shown."""
    names = {**first.parameters, **second.parameters}
    return [
        (f"{_PARAMETER}{name}", first_shown.get(name), second_shown.get(name))
        for name in names
        if first.parameters.get(name) != second.parameters.get(name)
    ]


def _compare_records(
    first: Mapping[str, RunRecord], second: Mapping[str, RunRecord]
) -> list[tuple[str, Any, Any]]:
    """Return the code and the versions of the steps that both jobs have run.

    What is unknown of one, such as of a job of an earlier version, is no difference.
    """
    pairs: list[tuple[str, Any, Any]] = []
    both = [(step, record, second[step]) for step, record in first.items() if step in second]
    for step, one, two in both:
        if one.code and two.code:
            pairs.append((f"step {step} code", one.code[:SHOWN], two.code[:SHOWN]))
    for step, one, two in both:
        pairs += [
            (f"step {step} version of {name}", version, two.versions[name])
            for name, version in one.versions.items()
            if name in two.versions
        ]
    return pairs


def compare_steps(
    first: Job,
    first_attempts: Sequence[Attempt],
    second: Job,
    second_attempts: Sequence[Attempt],
) -> list[StepComparison]:
    """Return statuses and durations of all steps, in the order of the pipelines."""
    now = time.time()
    firsts = {each.name: each for each in step_progress(first, first_attempts, now)}
    seconds = {each.name: each for each in step_progress(second, second_attempts, now)}
    return [
        StepComparison(
            name, _status(firsts.get(name)), _status(seconds.get(name)),
            _duration(firsts.get(name)), _duration(seconds.get(name)),
        )
        for name in {**firsts, **seconds}
    ]  # fmt: skip


def _status(progress: StepProgress | None) -> str:
    return ABSENT if progress is None else progress.status


def _duration(progress: StepProgress | None) -> float | None:
    return None if progress is None else round(progress.seconds, 3)


def _compare_values(
    prefix: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    return [(f"{prefix}{key}", first.get(key), second.get(key)) for key in {**first, **second}]


def _flatten_definition(job: Job) -> dict[str, Any]:
    """Return the settings of a pipeline and its steps by readable names; {} if it is damaged."""
    try:
        definition = json.loads(job.definition)
        steps = {f"step {step['name']}": step for step in definition.pop("steps")}
        del definition["name"]
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return dict([*_flatten("pipeline", definition), *_flatten("", steps)])


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix} {key}".strip()
        if isinstance(value, Mapping):
            yield from _flatten(name, value)
        elif value not in (None, [], "") and key != "warnings":
            yield name, value
