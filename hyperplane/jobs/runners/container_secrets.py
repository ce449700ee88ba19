"""Secrets of steps that a service reads itself, and passes to a container as variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.step_environment import secret_variables
from hyperplane.jobs.runners.task_manifest import parse_pairs


class SecretSettings(Protocol):
    """Settings with variables of containers and sources of secrets."""

    @property
    def environ(self) -> Sequence[str]:
        """Variables of all containers."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """Names of secrets, and where the service reads them."""
        ...


def secret_sources(step: Step, settings: SecretSettings) -> dict[str, str]:
    """Return where the secrets of a step are read by their names, without those that have none."""
    sources = parse_pairs(settings.secrets)
    return {name: sources[name] for name in step.secrets if name in sources}


def secret_variable_sources(step: Step, settings: SecretSettings) -> dict[str, str]:
    """Return where the secret of each variable that has one is read."""
    return {
        variable: source
        for name, source in secret_sources(step, settings).items()
        for variable in secret_variables({name: ""})
    }


def find_secret_faults(
    pipeline: Pipeline, settings: SecretSettings, section: str, title: str, source: str
) -> Iterator[Fault]:
    """Yield a fault for each secret that a service cannot read, and for variables that hide one.

    ``section`` is that of the settings, ``title`` the name of the service, and ``source`` the word
    for what names a value there, such as ``"ARN"``.
    """
    environ = parse_pairs(settings.environ)
    for step in pipeline.steps:
        sources = secret_sources(step, settings)
        for variable in secret_variables(dict.fromkeys(step.secrets, "")):
            if variable in environ:
                allowed = f"no variable with a secret of step {step.name!r}"
                yield Fault(f"{section}.environ", repr(variable), allowed)
        for name in step.secrets:
            if name not in sources:
                allowed = f"a secret that {title} can read"
                advice = f"add '{name}={source}' to {section}.secrets"
                where = f"step {step.name!r}: secrets"
                yield Fault(where, format_value(name), allowed, advice)
