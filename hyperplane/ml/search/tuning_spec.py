"""Specification of hyper-parameter tuning in the format of Cloud ML (AI Platform)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.pydantic_faults import faults_from_validation
from hyperplane.ml.search.space import Choice, Parameter, Range, list_grid
from hyperplane.spec.tuning_job import (
    NUMERIC,
    TuningParameter,
    TuningSpec,
    find_parameter_faults,
)

#: Keys under which the specification is found in the file of a training job.
_PATHS = (("trainingInput", "hyperparameters"), ("training_input", "hyperparameters"))
#: Maximum number of values in a file: nested aliases of a short file can describe billions.
_MAX_VALUES = 100_000
_SCALES = {
    "NONE": "linear",
    "SCALE_TYPE_UNSPECIFIED": "linear",
    "UNIT_LINEAR_SCALE": "linear",
    "UNIT_LOG_SCALE": "log",
    "UNIT_REVERSE_LOG_SCALE": "reverse_log",
}


def read_tuning_spec(spec: Any) -> TuningSpec:
    """Return the tuning specification in a YAML or JSON file, or in a mapping.

    Parameters
    ----------
    spec : path or mapping
        The specification, or a training job that has it under ``trainingInput.hyperparameters``.

    Returns
    -------
    TuningSpec

    Raises
    ------
    RequestError
        With every fault of the specification.

    Examples
    --------
    >>> spec = read_tuning_spec({"params": [
    ...     {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.01, "maxValue": 1}]})
    >>> spec.maxTrials, spec.direction
    (1, 'maximize')
    """
    content, prefix = _find_spec(_load(spec))
    faults = []
    parsed: TuningSpec | None = None
    try:
        parsed = TuningSpec.model_validate(content)
    except ValidationError as error:
        faults += faults_from_validation(error, prefix)
    parameters = _list_valid_parameters(content)
    for number, parameter in parameters.items():
        where = f"{prefix}.params.{number}"
        found = find_parameter_faults(parameter, where)
        if not found and parameter.type in NUMERIC:
            found = _find_range_faults(parameter, where)
        faults += found
    names = [parameter.parameterName for parameter in parameters.values()]
    for name in sorted({name for name in names if names.count(name) > 1}):
        faults.append(Fault(f"{prefix}.params", repr(name), "each parameterName once"))
    if content.get("algorithm") == "GRID_SEARCH":
        faults += [
            Fault(
                f"{prefix}.params.{number}.type",
                "DOUBLE",
                "INTEGER, CATEGORICAL or DISCRETE, as algorithm is GRID_SEARCH",
            )
            for number, parameter in parameters.items()
            if parameter.type == "DOUBLE"
        ]
        if not faults and parsed is not None:
            faults += list_grid(make_parameters(parsed))[1]
    check(faults)
    assert parsed is not None  # noqa: S101 - for mypy
    return parsed


def _list_valid_parameters(content: Mapping[str, Any]) -> dict[int, TuningParameter]:
    """Return the valid entries of ``params`` by their position."""
    entries = content.get("params")
    parameters = {}
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        with suppress(ValidationError):
            parameters[number] = TuningParameter.model_validate(entry)
    return parameters


def make_parameters(spec: TuningSpec) -> dict[str, Parameter]:
    """Return the search space of a valid specification.

    Examples
    --------
    >>> spec = read_tuning_spec({"params": [
    ...     {"parameterName": "n", "type": "INTEGER", "minValue": 1, "maxValue": 8}]})
    >>> make_parameters(spec)
    {'n': Range(low=1, high=8, scale='linear', step=None)}
    """
    return {parameter.parameterName: _make_parameter(parameter) for parameter in spec.params}


def _make_parameter(parameter: TuningParameter) -> Parameter:
    if parameter.type == "CATEGORICAL":
        return Choice(tuple(parameter.categoricalValues or ()))
    if parameter.type == "DISCRETE":
        return Choice(tuple(map(_shortest_number, parameter.discreteValues or ())))
    convert = int if parameter.type == "INTEGER" else float
    low, high = convert(parameter.minValue or 0), convert(parameter.maxValue or 0)
    return Range(low, high, scale=_SCALES[parameter.scaleType])  # type: ignore[arg-type]


def _shortest_number(value: float) -> float:
    """Return an integer if the number is one: programs often parse ``--units=32`` as such."""
    return int(value) if value.is_integer() else value


def _find_range_faults(parameter: TuningParameter, where: str) -> list[Fault]:
    """Return the faults of a range, with the keys of the specification."""
    keys = {"low": "minValue", "high": "maxValue"}
    try:
        _make_parameter(parameter)
    except RequestError as error:
        return [replace(fault, where=f"{where}.{keys[fault.where]}") for fault in error.faults]
    return []


def _find_spec(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the specification and the path of its keys."""
    for path in _PATHS:
        found: Any = content
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            return found, ".".join(path)
    inner = content.get("hyperparameters")
    if isinstance(inner, Mapping):
        return inner, "hyperparameters"
    return content, "spec"


def _count_values(node: yaml.Node | None, known: dict[int, float]) -> float:
    """Return the number of values below a node, in which aliases count each time they are used."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf  # of an alias to a collection that contains it
        children = (
            [child for pair in node.value for child in pair]
            if isinstance(node, yaml.MappingNode)
            else node.value
        )
        known[id(node)] = 1 + sum(_count_values(child, known) for child in children)
    return known[id(node)]


def _load(spec: Any) -> Mapping[str, Any]:
    allowed = "a mapping, or the path of a YAML or JSON file with one"
    if isinstance(spec, Mapping):
        return spec
    if not isinstance(spec, (str, Path)):
        raise RequestError([Fault("spec", f"a {type(spec).__name__}", allowed)])
    try:
        text = Path(spec).read_text(encoding="utf-8")
        if _count_values(yaml.compose(text, yaml.SafeLoader), {}) > _MAX_VALUES:
            reason = f"of at most {_MAX_VALUES:,} values; its YAML aliases may repeat too many"
            raise RequestError([Fault("spec", repr(str(spec)), f"{allowed}, {reason}")])
        content = yaml.safe_load(text)
    except RequestError:  # also a ValueError
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RequestError([Fault("spec", repr(str(spec)), f"{allowed} ({reason})")]) from error
    # ValueError: of a path or of the encoding.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RequestError([Fault("spec", repr(str(spec)), f"{allowed} ({reason})")]) from error
    if not isinstance(content, Mapping):
        raise RequestError([Fault("spec", repr(str(spec)), allowed)])
    return content
