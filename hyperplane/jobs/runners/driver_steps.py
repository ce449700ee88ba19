"""Faults of steps whose programs cannot be those of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from hyperplane.core.errors import Fault, UnknownPool
from hyperplane.jobs.definition.message_formatting import format_value
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.runners.driver_files import JOB_TAG, DriverSettings, step_size
from hyperplane.jobs.runners.task_manifest import parse_pairs
from hyperplane.platforms.task_size import TaskSize

#: Packages that execute a notebook.
_NOTEBOOK_MODULES = ("ipykernel", "nbclient")
#: Least minor version of Python 3 that the package, and the program of notebooks, run with.
_LEAST_PYTHON = 11
_NEW_PYTHON = f"Python 3.{_LEAST_PYTHON} or later, which the setting python does not name"
#: Maximum tags of a job, without the one with the id of the job of hyperplane.
_MAX_TAGS = 49


class PythonSettings(DriverSettings, Protocol):
    """Settings of a runner with the name of Python."""

    @property
    def python(self) -> str:
        """Python of the driver."""
        ...


class TaggedSettings(DriverSettings, Protocol):
    """Settings of a runner whose jobs have tags."""

    @property
    def tags(self) -> Sequence[str]:
        """Tags of all jobs."""
        ...


class ModuleSettings(DriverSettings, Protocol):
    """Settings of a runner that installs packages for Python."""

    @property
    def python_modules(self) -> Sequence[str]:
        """Packages that pip installs before the start."""
        ...


def module_advice(section: str) -> str:
    """Return where the packages of ``requirements`` are named instead."""
    return f"name the packages in {section}.python_modules, and omit the key"


def find_setting_faults(
    settings: TaggedSettings, section: str, required: dict[str, str]
) -> Iterator[Fault]:
    """Yield a fault for each setting that is missing, and for too many tags.

    ``required`` has the names of settings, and what they are.
    """
    for name, allowed in required.items():
        if getattr(settings, name) is None:
            advice = f"set it in the configuration, or with the option {name}="
            yield Fault(f"{section}.{name}", "nothing", allowed, advice)
    count = len(parse_pairs(settings.tags).keys() - {JOB_TAG})
    if count > _MAX_TAGS:
        allowed = f"at most {_MAX_TAGS} tags, besides {JOB_TAG}, which hyperplane adds"
        yield Fault(f"{section}.tags", f"{count} tags", allowed)


def find_kind_faults(
    step: Step, settings: ModuleSettings, section: str, title: str
) -> Iterator[Fault]:
    """Yield a fault for a kind of a step whose program a service does not have."""
    yield from find_node_faults(step, title)
    if step.kind != "notebook":
        return
    names = {re.split(r"[^A-Za-z0-9._-]", text)[0].lower() for text in settings.python_modules}
    missing = [name for name in _NOTEBOOK_MODULES if name not in names]
    if missing:
        allowed = f"python_modules with {' and '.join(missing)}, which execute a notebook"
        advice = f"add them to {section}.python_modules"
        yield Fault(f"step {step.name!r}: kind", step.kind, allowed, advice)


def find_node_faults(step: Step, title: str) -> Iterator[Fault]:
    """Yield a fault for a step that needs Node.js."""
    if step.kind == "javascript":
        allowed = f"a step without Node.js, which {title} does not have"
        yield Fault(f"step {step.name!r}: kind", step.kind, allowed)


def find_timeout_faults(step: Step, most_minutes: int, title: str) -> Iterator[Fault]:
    """Yield a fault for a timeout that a service does not have."""
    if step.timeout is not None and step.timeout > most_minutes * 60:
        allowed = f"at most {most_minutes * 60} s, the time limit of {title}"
        yield Fault(f"step {step.name!r}: timeout", f"{step.timeout:g} s", allowed)


def find_python_faults(step: Step, python: str, advice: str) -> Iterator[Fault]:
    """Yield a fault for a notebook if the name of Python does not say that it is new enough."""
    if step.kind == "notebook" and not _is_new(python):
        yield Fault(f"step {step.name!r}: kind", step.kind, _NEW_PYTHON, advice)


def find_package_faults(settings: PythonSettings, section: str, advice: str) -> Iterator[Fault]:
    """Yield a fault for a package that is sent to a Python that may be too old for it."""
    if settings.send_package and not _is_new(settings.python):
        yield Fault(f"{section}.send_package", "true", _NEW_PYTHON, advice)


def _is_new(python: str) -> bool:
    found = re.search(r"python3\.([0-9]+)$", python)
    return found is not None and int(found[1]) >= _LEAST_PYTHON


def find_secret_faults(step: Step, runner: str) -> Iterator[Fault]:
    """Yield a fault for each secret of a step: arguments and files would show it."""
    for name in step.secrets:
        advice = "read it in the step from Secrets Manager, with the role of the job"
        allowed = f"no secrets on {runner}, whose arguments and files would show them"
        yield Fault(f"step {step.name!r}: secrets", format_value(name), allowed, advice)


def requested_size(step: Step, settings: DriverSettings) -> TaskSize | None:
    """Return what a step requests; None if its pool is unknown, which is reported elsewhere."""
    try:
        return step_size(step, 1.0, settings)
    except UnknownPool:  # reported for all runners, or chosen from earlier runs
        return None


def size_fault(step: Step, size: TaskSize, allowed: str, advice: str = "request less") -> Fault:
    """Return the fault of a step for which no machine is large enough."""
    asked = f"{size.cores:g} cores, {size.memory} MiB, {size.gpus} GPUs"
    return Fault(f"step {step.name!r}: resources", asked, allowed, advice)
