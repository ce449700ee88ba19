"""Find parameters of a job that no step reads, such as misspelled ones."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hyperplane.jobs.calls import PROGRAM
from hyperplane.jobs.definition.field_types import split_target
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.pipeline import Pipeline
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.notebook_steps.notebook_checks import read_declared_parameters
from hyperplane.jobs.submission.parameters import variable_name
from hyperplane.jobs.submission.source_analysis import (
    UNKNOWN,
    ParameterReads,
    analyze_bash,
    analyze_cells,
    analyze_javascript,
    analyze_python,
    find_words,
)

#: Maximum files that are followed for one step, and maximum bytes of one file.
_MAX_FILES, _MAX_FILE_BYTES = 50, 1 << 23
#: Minimum similarity of a reported name if a step may read more than its source shows.
_TYPO_RATIO = 0.75
_SHELLS = {"bash", "sh", "dash", "zsh", "ksh"}
_READERS = {
    ".py": analyze_python, ".sh": analyze_bash, ".bash": analyze_bash,
    ".js": analyze_javascript, ".mjs": analyze_javascript, ".cjs": analyze_javascript,
}  # fmt: skip
#: Packages that read no parameters, only environment variables with their own prefixes.
_PACKAGES_WITHOUT_READS = {
    "IPython", "dask", "distributed", "hyperplane", "hyperplane_gpu", "joblib", "matplotlib",
    "numpy", "pandas", "pyarrow", "scipy", "sklearn", "tqdm", "xarray", "yaml", "zarr",
}  # fmt: skip


def find_unread_parameters(
    pipeline: Pipeline, parameters: Iterable[str], source: str | None = None
) -> list[str]:
    """Describe the parameters that no step of a pipeline reads.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    parameters : iterable of str
        Names of the job's parameters.
    source : str, optional
        Source of the submitted function, if any.

    Returns
    -------
    list of str
        One sentence per parameter that no step names, if a step reads a similar name or if
        everything that the steps run has been analyzed. A step that runs or imports unknown code
        may read any parameter: then only likely misspellings are reported.
    """
    parameter_names = list(parameters)
    if not parameter_names:
        return []
    reads = ParameterReads()
    for step in pipeline.steps:
        reads |= _step_reads(pipeline, step, source)
        if step.forecast is not None:  # the program of the forecast has the same parameters
            program = step.model_copy(
                update={"kind": "python", "path": split_target(step.forecast)[0]}
            )
            reads |= _step_reads(pipeline, program, source)
    messages = []
    for name in parameter_names:
        if reads.mentions(name):
            continue
        suggestion = _suggest_name(
            name, reads, {variable_name(other) for other in parameter_names if other != name}
        )
        if suggestion or reads.complete:
            known = ", ".join(sorted(reads.names))
            advice = suggestion or (f"they read {known}" if known else "they read none")
            messages.append(f"no step reads the parameter {format_value(name)}: {advice}")
    return messages


def _suggest_name(name: str, reads: ParameterReads, given_variables: set[str]) -> str:
    """Suggest the most similar parameter that a step reads.

    If the steps may read others, too, only a very similar one that the job does not have.
    """
    known = {variable_name(parameter): parameter for parameter in sorted(reads.names)}
    variable = variable_name(name)
    if not reads.complete:
        known = {
            other: known[other]
            for other in known
            if other not in given_variables
            and difflib.SequenceMatcher(None, variable, other).ratio() >= _TYPO_RATIO
        }
    lowered = {other.lower(): known[other] for other in known}
    suggestion = suggest_names(variable.lower(), lowered)
    return re.sub(r"\w+(?= or |\?$)", lambda match: lowered.get(match[0], match[0]), suggestion)


def _step_reads(pipeline: Pipeline, step: Step, source: str | None) -> ParameterReads:
    folder = Path(pipeline.root, step.working_dir or pipeline.working_dir or ".")
    if step.kind == "command":
        return _command_reads(step.argv, [folder], source)
    if step.kind == "train":
        return UNKNOWN
    path = Path(pipeline.root, step.path)
    if step.kind == "notebook":
        return _notebook_reads(path, folder)
    reader = {"python": analyze_python, "bash": analyze_bash}.get(step.kind, analyze_javascript)
    text = _read_text(path)
    if text is None:
        return UNKNOWN
    return _follow_files(reader(text), [path.parent, folder, Path(pipeline.root)], {path})


def _command_reads(
    argv: tuple[str, ...], folders: list[Path], source: str | None
) -> ParameterReads:
    program = Path(argv[0]).name
    is_python = re.fullmatch(r"python[\d.]*", program) is not None
    if argv[1:3] == ("-m", PROGRAM):  # a function, which may call others of its module
        return UNKNOWN if source is None else replace(analyze_python(source), complete=False)
    if argv[1:2] == ("-c",) and len(argv) > 2 and (is_python or program in _SHELLS):
        reads = analyze_python(argv[2]) if is_python else analyze_bash(argv[2])
        return _follow_files(reads, folders, set())
    if is_python and len(argv) > 2 and argv[1] == "-m":
        return _follow_files(ParameterReads(modules=frozenset({argv[2]})), folders, set())
    reads = analyze_bash(" ".join(argv))
    if (is_python or program in {*_SHELLS, "node"}) and len(argv) > 1:
        is_script = argv[1].endswith(tuple(_READERS)) and (folders[0] / argv[1]).is_file()
        reads = replace(reads, complete=is_script)
    return _follow_files(reads, folders, set())


def _notebook_reads(path: Path, folder: Path) -> ParameterReads:
    try:
        cells = json.loads(_read_text(path) or "")["cells"]
        code = [
            source if isinstance(source := cell["source"], str) else "".join(source)
            for cell in cells
            if cell["cell_type"] == "code"
        ]
        language, declared = read_declared_parameters(path)
    except (ValueError, LookupError, TypeError, RecursionError):
        return UNKNOWN
    if language not in ("", "python"):
        return ParameterReads(declared, words=find_words(" ".join(code)), complete=False)
    reads = analyze_cells(code)
    return _follow_files(replace(reads, names=reads.names | declared), [folder], {path})


def _follow_files(reads: ParameterReads, folders: list[Path], visited: set[Path]) -> ParameterReads:
    """Add the parameters that are read by local files that a program imports or runs."""
    pending = [reads]
    while pending:
        current = pending.pop()
        files, complete = [], True
        for module in current.modules:
            file = _module_file(module, folders)
            if file is not None:
                files.append(file)
            elif _module_file(module.rpartition(".")[0], folders) is None:
                complete &= _reads_no_parameters(module)
        for word in current.files:
            file = _find_program(word, folders)
            if file is not None:
                files.append(file)
        reads = replace(reads, complete=reads.complete and complete)
        for file in files:
            if file in visited:
                continue
            visited.add(file)
            text = _read_text(file) if len(visited) <= _MAX_FILES else None
            file_reads = UNKNOWN if text is None else _READERS[file.suffix](text)
            reads |= file_reads
            pending.append(file_reads)
    return reads


def _module_file(module: str, folders: list[Path]) -> Path | None:
    for folder in folders if module else ():
        base = folder.joinpath(*module.split("."))
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


def _reads_no_parameters(module: str) -> bool:
    top = module.split(".")[0]
    return top in sys.stdlib_module_names or top in _PACKAGES_WITHOUT_READS


def _find_program(word: str, folders: list[Path]) -> Path | None:
    """Return the program file that a word of a command names."""
    name = re.sub(r"^(\$\{?\w+\}?|\.)/", "", word)
    if not name or len(name) > 1000 or "\0" in name:
        return None
    for folder in folders:
        for file in (folder / name, folder / f"{name}.js"):
            try:
                if file.suffix in _READERS and file.is_file():
                    return file
            except OSError:
                continue
    return None


def _read_text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            return None
        return path.read_text(errors="replace")
    except OSError:
        return None
