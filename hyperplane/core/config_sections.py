"""Read a section of Dask's current configuration with its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import dask.config
from pydantic import BaseModel, ValidationError

from hyperplane.core.config_sources import source_of, with_underscores
from hyperplane.core.errors import ConfigError, Fault
from hyperplane.core.pydantic_faults import faults_from_validation, with_model_keys

Model = TypeVar("Model", bound=BaseModel)


def get_mapping(path: str) -> Mapping[str, Any]:
    """Return a section; raise ConfigError if it is not a mapping."""
    section = dask.config.get(path, default={})
    if not isinstance(section, Mapping):
        raise ConfigError([make_fault(path, section, "a mapping")])
    return section


def read_section(
    path: str,
    model: type[Model],
    defaults: Mapping[str, Any] | None = None,
    *,
    deep: bool = True,
) -> Model:
    """Return the values of a section; raise ConfigError with all of its faults.

    ``deep`` is whether keys below those of the section may have hyphens in place of underscores.
    """
    section = get_mapping(path)
    try:
        return model(**{**(defaults or {}), **with_underscores(section, deep=deep)})
    except ValidationError as error:
        faults = [
            with_model_keys(fault, model, path) for fault in faults_from_validation(error, path)
        ]
        # The faults have all that pydantic says, in the words of the configuration.
        raise ConfigError(add_sources(faults)) from None


def make_fault(path: str, value: object, allowed: str, advice: str = "") -> Fault:
    """Return the fault of a value, with its source."""
    return Fault(path, repr(value), allowed, advice, source_of(path))


def add_sources(faults: list[Fault]) -> list[Fault]:
    """Return faults with the sources of their values."""
    return [replace(fault, source=source_of(fault.where)) for fault in faults]
