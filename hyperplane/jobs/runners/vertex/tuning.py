"""Hyper-parameter tuning jobs of Vertex AI for training programs with ``tuning``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.step import Step
from hyperplane.spec.tuning_job import TuningParameter, TuningSpec

#: Scales that are not the one that Vertex AI uses without a scale.
_SCALES = ("UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
#: Algorithms besides the Bayesian one, which Vertex AI uses if none is named.
_ALGORITHMS = ("GRID_SEARCH", "RANDOM_SEARCH")

Object = dict[str, Any]


def read_tuning(step: Step) -> TuningSpec | None:
    """Return the valid tuning specification of a step; None if it has none."""
    return None if step.tuning is None else TuningSpec.model_validate(step.tuning)


def find_tuning_faults(step: Step) -> Iterator[Fault]:
    """Yield a fault for what a tuning job of Vertex AI does not have."""
    spec = read_tuning(step)
    if spec is not None and spec.resumePreviousJobId is not None:
        where = f"step {step.name!r}: tuning.resumePreviousJobId"
        allowed = "no value: a tuning job of Vertex AI has no such field"
        yield Fault(where, repr(spec.resumePreviousJobId), allowed, "omit it")


def count_trials(step: Step) -> tuple[int, int]:
    """Return the most trials of a step, and those at once; one and one without tuning.

    Examples
    --------
    >>> rate = {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.1, "maxValue": 1}
    >>> tuning = {"params": [rate], "maxTrials": 20, "maxParallelTrials": 4}
    >>> count_trials(Step(name="fit", kind="train", module_name="trainer.task", tuning=tuning))
    (20, 4)
    """
    spec = read_tuning(step)
    if spec is None:
        return 1, 1
    return spec.maxTrials, min(spec.maxParallelTrials, spec.maxTrials)


def build_tuning_job(spec: TuningSpec, job: Mapping[str, Any]) -> Object:
    """Return the tuning job whose trials are custom jobs.

    ``job`` is the custom job; its name and labels are those of the tuning job.
    """
    goal = "MINIMIZE" if spec.direction == "minimize" else "MAXIMIZE"
    study: Object = {
        "metrics": [{"metricId": spec.hyperparameterMetricTag, "goal": goal}],
        "parameters": [_build_parameter(each) for each in spec.params],
    }
    if spec.algorithm in _ALGORITHMS:
        study["algorithm"] = spec.algorithm
    if spec.enableTrialEarlyStopping:
        study["medianAutomatedStoppingSpec"] = {}
    request: Object = {
        "displayName": job["displayName"],
        "labels": job["labels"],
        "studySpec": study,
        "maxTrialCount": spec.maxTrials,
        "parallelTrialCount": min(spec.maxParallelTrials, spec.maxTrials),
        "trialJobSpec": job["jobSpec"],
    }
    if spec.maxFailedTrials:  # 0 leaves the decision to the service
        request["maxFailedTrialCount"] = spec.maxFailedTrials
    return request


def _build_parameter(parameter: TuningParameter) -> Object:
    built: Object = {"parameterId": parameter.parameterName}
    if parameter.type == "DOUBLE":
        built["doubleValueSpec"] = {"minValue": parameter.minValue, "maxValue": parameter.maxValue}
    elif parameter.type == "INTEGER":
        limits = {"minValue": parameter.minValue, "maxValue": parameter.maxValue}
        # Numbers of 64 bits are texts in JSON of Google.
        built["integerValueSpec"] = {name: str(int(each or 0)) for name, each in limits.items()}
    elif parameter.type == "CATEGORICAL":
        built["categoricalValueSpec"] = {"values": parameter.categoricalValues}
    else:
        # Vertex AI requires them in increasing order.
        values = sorted(set(parameter.discreteValues or ()))
        built["discreteValueSpec"] = {"values": values}
    if parameter.scaleType in _SCALES and parameter.type != "CATEGORICAL":
        built["scaleType"] = parameter.scaleType
    return built
