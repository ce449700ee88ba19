"""Models of a tuning job of Cloud ML: its parameters and the limits of its trials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_snake

from hyperplane.core.errors import Fault
from hyperplane.core.pydantic_faults import faults_from_validation

#: Keys may be written as in JSON, ``maxTrials``, or as the fields of the API, ``max_trials``.
_STRICT = ConfigDict(
    extra="forbid",
    frozen=True,
    protected_namespaces=(),
    alias_generator=to_snake,
    populate_by_name=True,
    loc_by_alias=False,
    allow_inf_nan=False,
)
NUMERIC = ("DOUBLE", "INTEGER")
#: Names that ``--NAME=VALUE`` can contain.
_NAME = re.compile(r"[^\s=\0-][^\s=\0]*")


class TuningParameter(BaseModel):
    """One entry of ``params``, with the keys of Cloud ML."""

    model_config = _STRICT

    parameterName: str = Field(min_length=1)  # noqa: N815
    type: Literal["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"]
    minValue: float | None = None  # noqa: N815
    maxValue: float | None = None  # noqa: N815
    categoricalValues: list[str] | None = None  # noqa: N815
    discreteValues: list[float] | None = None  # noqa: N815
    scaleType: Literal[  # noqa: N815
        "NONE",
        "SCALE_TYPE_UNSPECIFIED",
        "UNIT_LINEAR_SCALE",
        "UNIT_LOG_SCALE",
        "UNIT_REVERSE_LOG_SCALE",
    ] = "NONE"


class TuningSpec(BaseModel):
    """A tuning specification, with the keys and defaults of Cloud ML."""

    model_config = _STRICT

    goal: Literal["GOAL_TYPE_UNSPECIFIED", "MAXIMIZE", "MINIMIZE"] = "MAXIMIZE"
    params: list[TuningParameter] = Field(min_length=1)
    maxTrials: int = Field(default=1, ge=1)  # noqa: N815
    maxParallelTrials: int = Field(default=1, ge=1)  # noqa: N815
    maxFailedTrials: int = Field(default=0, ge=0)  # noqa: N815
    hyperparameterMetricTag: str = "training/hptuning/metric"  # noqa: N815
    resumePreviousJobId: str | None = None  # noqa: N815
    enableTrialEarlyStopping: bool = False  # noqa: N815
    algorithm: Literal["ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH"] = (
        "ALGORITHM_UNSPECIFIED"
    )

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Whether large or small values of the metric are good."""
        return "minimize" if self.goal == "MINIMIZE" else "maximize"

    @property
    def method(self) -> Literal["grid", "random", "halving", "bayesian"]:
        """The method of search; Bayesian unless another one is set."""
        if self.algorithm == "GRID_SEARCH":
            return "grid"
        return "random" if self.algorithm == "RANDOM_SEARCH" else "bayesian"


def find_tuning_faults(content: Mapping[str, Any], prefix: str) -> list[Fault]:
    """Return the faults of a specification; ``prefix`` is the path of its keys.

    Examples
    --------
    >>> rate = {"parameterName": "rate", "type": "DOUBLE", "minValue": 2, "maxValue": 1}
    >>> [fault.where for fault in find_tuning_faults({"params": [rate]}, "tuning")]
    ['tuning.params.0.maxValue']
    """
    try:
        spec = TuningSpec.model_validate(content)
    except ValidationError as error:
        return faults_from_validation(error, prefix)
    faults: list[Fault] = []
    for number, parameter in enumerate(spec.params):
        where = f"{prefix}.params.{number}"
        faults += find_parameter_faults(parameter, where) or _find_limit_faults(parameter, where)
        if spec.algorithm == "GRID_SEARCH" and parameter.type == "DOUBLE":
            allowed = "INTEGER, CATEGORICAL or DISCRETE, as algorithm is GRID_SEARCH"
            faults.append(Fault(f"{where}.type", "DOUBLE", allowed))
    names = [parameter.parameterName for parameter in spec.params]
    for name in sorted({name for name in names if names.count(name) > 1}):
        faults.append(Fault(f"{prefix}.params", repr(name), "each parameterName once"))
    return faults


def find_parameter_faults(parameter: TuningParameter, where: str) -> list[Fault]:
    """Return the faults of the keys of a parameter, without those of its range."""
    faults = []
    if not _NAME.fullmatch(parameter.parameterName):
        allowed = "a name without spaces and '=', not beginning with '-'"
        faults.append(Fault(f"{where}.parameterName", repr(parameter.parameterName), allowed))
    if parameter.type in NUMERIC:
        low, high = parameter.minValue, parameter.maxValue
        for key, value in (("minValue", low), ("maxValue", high)):
            if value is None:
                faults.append(Fault(f"{where}.{key}", "nothing", f"a number for {parameter.type}"))
            elif parameter.type == "INTEGER" and not value.is_integer():
                faults.append(Fault(f"{where}.{key}", str(value), "a whole number for INTEGER"))
    needed = {"CATEGORICAL": "categoricalValues", "DISCRETE": "discreteValues"}
    for kind, key in needed.items():
        values = getattr(parameter, key)
        if parameter.type == kind and not values:
            faults.append(Fault(f"{where}.{key}", "nothing", f"a list of values for {kind}"))
        elif parameter.type != kind and values is not None:
            allowed = f"no such key for the type {parameter.type}"
            faults.append(Fault(f"{where}.{key}", "a list", allowed))
    return faults


def _find_limit_faults(parameter: TuningParameter, where: str) -> list[Fault]:
    """Return the faults of the limits of a number."""
    low, high = parameter.minValue, parameter.maxValue
    if low is None or high is None:
        return []
    if low >= high:
        return [Fault(f"{where}.maxValue", f"{high:g}", f"a value above minValue, {low:g}")]
    if "LOG" in parameter.scaleType and low <= 0:
        allowed = f"a value above 0, as the scale is {parameter.scaleType}"
        return [Fault(f"{where}.minValue", f"{low:g}", allowed)]
    return []
