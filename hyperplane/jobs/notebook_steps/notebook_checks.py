"""Check the kernels and declared parameters of notebooks before they run."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.notebook import DEFAULT_KERNEL, is_variable, notebook_language
from hyperplane.jobs.notebook_steps.parameter_cells import ParameterCell, read_parameter_cell

#: Environment variables with which a step finds other kernels than this process.
_KERNEL_VARIABLES = {"JUPYTER_PATH", "JUPYTER_DATA_DIR", "HOME", "XDG_DATA_HOME"}


@dataclass(frozen=True)
class _NotebookInfo:
    """Kernel, language and parameter cell of a notebook."""

    kernel: str
    language: str
    #: Cell tagged ``parameters``; None if there is none.
    cell: ParameterCell | None


def kernel_faults(pipeline: Pipeline) -> list[Fault]:
    """Return faults for missing packages, and for missing kernels that cannot be replaced.

    A pipeline with ``requirements`` may install kernels itself and has no faults.
    """
    steps = [] if pipeline.requirements else [s for s in pipeline.steps if s.kind == "notebook"]
    if not steps:
        return []
    if missing := [
        package for package in ("papermill", "jupyter_client") if not is_installed(package)
    ]:
        advice = "pip install 'hyperplane[jobs]'"
        asked = f"a notebook, without the package {missing[0]}"
        return [Fault(f"step {steps[0].name!r}", asked, "an installation for notebooks", advice)]
    kernels = sorted(_installed_kernels())
    return [
        fault
        for step, notebook in _read_with_local_kernels(pipeline)
        if (fault := _kernel_fault(step, notebook, kernels)) is not None
    ]


def kernel_warnings(pipeline: Pipeline) -> list[str]:
    """Return warnings for missing Python kernels that this environment's kernel replaces."""
    named: dict[str, list[str]] = {}
    for step, notebook in _read_with_local_kernels(pipeline):
        if step.kernel is None and notebook.kernel not in ("", DEFAULT_KERNEL):
            named.setdefault(notebook.kernel, []).append(step.path)
    installed = set(_installed_kernels()) if named else set()
    version = platform.python_version()
    return [
        f"{', '.join(dict.fromkeys(paths))}: the kernel {format_value(kernel)} is not installed; "
        f"the kernel of this environment (Python {version}) runs instead. Set kernel: in the step "
        "to select another"
        for kernel, paths in named.items()
        if kernel not in installed
    ]


def _read_with_local_kernels(pipeline: Pipeline) -> list[tuple[Step, _NotebookInfo]]:
    """Return the notebook steps that use the kernels of this process, with their notebooks."""
    steps = [] if pipeline.requirements else [s for s in pipeline.steps if s.kind == "notebook"]
    notebooks = (
        (step, _read_step_notebook(pipeline, step))
        for step in steps
        if not _KERNEL_VARIABLES & {*step.env}
    )
    return [(step, notebook) for step, notebook in notebooks if notebook is not None]


def _kernel_fault(step: Step, notebook: _NotebookInfo, kernels: list[str]) -> Fault | None:
    where = f"step {step.name!r}: {step.path}"
    allowed = f"an installed kernel: {', '.join(kernels) or 'there is none'}"
    select = "select another with kernel: in the step"
    if not step.kernel and not notebook.kernel and notebook.language not in ("", "python"):
        given_kernel = f"no kernel, and the language {format_value(notebook.language)}"
        return Fault(where, given_kernel, allowed, select)
    name = step.kernel or notebook.kernel or DEFAULT_KERNEL
    if name in kernels:
        return None
    suggestion = suggest_names(name, kernels)
    if step.kernel:
        advice = f"{suggestion} 'jupyter kernelspec list' shows them".strip()
        return Fault(f"step {step.name!r}: kernel", format_value(name), allowed, advice)
    if notebook.language == "python" and is_installed("ipykernel"):
        return None  # the kernel of this environment is used
    given_kernel = (
        f"the kernel {format_value(name)}" if notebook.kernel else f"no kernel, so {DEFAULT_KERNEL}"
    )
    if notebook.language:
        given_kernel += f" of the language {notebook.language}"
    return Fault(where, given_kernel, allowed, f"{suggestion} {select}, or install it".strip())


def notebook_warnings(pipeline: Pipeline, parameters: Iterable[str]) -> list[str]:
    """Return warnings of unnamed kernels, defaults that are not text, and invalid variables."""
    parameter_names = list(parameters)
    steps = [step for step in pipeline.steps if step.kind == "notebook"]
    notebooks = [
        (step, notebook)
        for step in steps
        if (notebook := _read_step_notebook(pipeline, step)) is not None
    ]
    python_notebooks = [
        (step, notebook) for step, notebook in notebooks if notebook.language in ("", "python")
    ]
    texts = [
        f"{step.path} names no kernel; it runs with {DEFAULT_KERNEL}"
        for step, notebook in python_notebooks
        if not notebook.kernel and not step.kernel
    ]
    texts += dict.fromkeys(
        text
        for step, notebook in python_notebooks
        if (text := _type_warning(step, notebook, parameter_names))
    )
    return texts + [
        f"parameter {format_value(name)} is not a valid Python variable name; notebooks find it "
        "only in the environment"
        for name in parameter_names
        if python_notebooks and not is_variable(name)
    ]


def _type_warning(step: Step, notebook: _NotebookInfo, parameter_names: Sequence[str]) -> str:
    """Warn of parameters that arrive as text although the notebook's default is not text."""
    chunk_parameters = ["chunk_id"] * bool(step.chunk_count) + ["item"] * bool(step.foreach)
    types = notebook.cell.types if notebook.cell else {}
    types_by_name = {
        name: types[name] for name in (*parameter_names, *chunk_parameters) if name in types
    }
    if not types_by_name:
        return ""
    shown_types = ", ".join(f"{name} ({kind})" for name, kind in types_by_name.items())
    name, kind = next(iter(types_by_name.items()))
    conversions = {
        "int": f"int({name})",
        "float": f"float({name})",
        "bool": f'{name}.lower() == "true"',
    }
    return (
        f"{step.path}: parameters arrive as text (str), but the cell tagged parameters has other "
        f"types: {shown_types}; convert them in a later cell, as with {name} = "
        f"{conversions.get(kind, f'json.loads({name})')}"
    )


def read_declared_parameters(path: Path) -> tuple[str, frozenset[str]]:
    """Return a notebook's language and the variables of its cell tagged ``parameters``.

    Raises ValueError if the notebook cannot be read.
    """
    notebook = _read_notebook(path)
    if notebook is None:
        raise ValueError(f"{path} cannot be read")
    return notebook.language, notebook.cell.names if notebook.cell else frozenset()


def _installed_kernels() -> Iterable[str]:
    from jupyter_client.kernelspec import KernelSpecManager  # slow import

    kernels: Iterable[str] = KernelSpecManager().find_kernel_specs()
    return kernels


def _read_step_notebook(pipeline: Pipeline, step: Step) -> _NotebookInfo | None:
    return _read_notebook(Path(pipeline.root, step.path))


def _read_notebook(path: Path) -> _NotebookInfo | None:
    """Read a notebook's kernel, language and parameter cell; None if it cannot be read."""
    try:
        document = json.loads(path.read_bytes())
        metadata = _as_mapping(document.get("metadata"))
        spec, info = (
            _as_mapping(metadata.get("kernelspec")),
            _as_mapping(metadata.get("language_info")),
        )
        language = notebook_language({"kernelspec": spec, "language_info": info}).lower()
        cell = read_parameter_cell(document["cells"]) if language in ("", "python") else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return _NotebookInfo(str(spec.get("name") or ""), language, cell)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
