"""Parameters of a job that none of its steps reads: a misspelt name changes nothing, silently."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hyperplane.jobs.calls import PROGRAM
from hyperplane.jobs.definition.models import Pipeline, Step
from hyperplane.jobs.definition.wording import did_you_mean, shown
from hyperplane.jobs.environment import cleaned
from hyperplane.jobs.notebook_checks import parameters_of
from hyperplane.jobs.source_reads import (
    UNKNOWN,
    Reads,
    bash_reads,
    cells_reads,
    javascript_reads,
    python_reads,
    words_of,
)

#: Files that are looked at for one step, and bytes of the longest.
_MOST_FILES, _LONGEST = 50, 1 << 23
#: How like a name must be where a step may read what is not seen: a slip, and no other word.
_SLIP = 0.75
_SHELLS = {"bash", "sh", "dash", "zsh", "ksh"}
_READERS = {
    ".py": python_reads, ".sh": bash_reads, ".bash": bash_reads,
    ".js": javascript_reads, ".mjs": javascript_reads, ".cjs": javascript_reads,
}  # fmt: skip
#: Packages that read variables with names of their own only.
_CLOSED_PACKAGES = {
    "IPython", "dask", "distributed", "hyperplane", "hyperplane_gpu", "joblib", "matplotlib",
    "numpy", "pandas", "pyarrow", "scipy", "sklearn", "tqdm", "xarray", "yaml", "zarr",
}  # fmt: skip


def unread_parameters(
    pipeline: Pipeline, parameters: Iterable[str], source: str | None = None
) -> list[str]:
    """Say which parameters no step of a pipeline reads.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    parameters : iterable of str
        Names of the job's parameters.
    source : str, optional
        The text of the function that is submitted, if one is.

    Returns
    -------
    list of str
        A sentence for each parameter that no step names, if one reads a name much like it, or if
        all that the steps run is seen. A step that runs or imports what is not seen may read any
        parameter from its environment: there only what looks like a slip is reported.
    """
    given = list(parameters)
    if not given:
        return []
    reads = Reads()
    for step in pipeline.steps:
        reads |= _reads_of(pipeline, step, source)
    found = []
    for name in given:
        if reads.mentions(name):
            continue
        near = _nearest(name, reads, {cleaned(other) for other in given if other != name})
        if near or reads.complete:
            known = ", ".join(sorted(reads.names))
            advice = near or (f"they read {known}" if known else "they read none")
            found.append(f"no step reads the parameter {shown(name)}: {advice}")
    return found


def _nearest(name: str, reads: Reads, given: set[str]) -> str:
    """A question that names the nearest parameter that is read and not given."""
    known = {cleaned(one): one for one in sorted(reads.names)}
    variable = cleaned(name)
    if not reads.complete:
        known = {
            one: known[one]
            for one in known
            if one not in given and difflib.SequenceMatcher(None, variable, one).ratio() >= _SLIP
        }
    lowered = {one.lower(): known[one] for one in known}
    near = did_you_mean(variable.lower(), lowered)
    return re.sub(r"\w+(?= or |\?$)", lambda one: lowered.get(one[0], one[0]), near)


def _reads_of(pipeline: Pipeline, step: Step, source: str | None) -> Reads:
    folder = Path(pipeline.root, step.working_dir or pipeline.working_dir or ".")
    if step.kind == "command":
        return _command_reads(step.argv, [folder], source)
    path = Path(pipeline.root, step.path)
    if step.kind == "notebook":
        return _notebook_reads(path, folder)
    reader = {"python": python_reads, "bash": bash_reads}.get(step.kind, javascript_reads)
    text = _text(path)
    if text is None:
        return UNKNOWN
    return _followed(reader(text), [path.parent, folder, Path(pipeline.root)], {path})


def _command_reads(argv: tuple[str, ...], folders: list[Path], source: str | None) -> Reads:
    program = Path(argv[0]).name
    is_python = re.fullmatch(r"python[\d.]*", program) is not None
    if argv[1:3] == ("-m", PROGRAM):  # a function; its module may have others that it calls
        return UNKNOWN if source is None else replace(python_reads(source), complete=False)
    if argv[1:2] == ("-c",) and len(argv) > 2 and (is_python or program in _SHELLS):
        reads = python_reads(argv[2]) if is_python else bash_reads(argv[2])
        return _followed(reads, folders, set())
    if is_python and len(argv) > 2 and argv[1] == "-m":
        return _followed(Reads(modules=frozenset({argv[2]})), folders, set())
    reads = bash_reads(" ".join(argv))
    if (is_python or program in {*_SHELLS, "node"}) and len(argv) > 1:
        script = argv[1].endswith(tuple(_READERS)) and (folders[0] / argv[1]).is_file()
        reads = replace(reads, complete=script)
    return _followed(reads, folders, set())


def _notebook_reads(path: Path, folder: Path) -> Reads:
    try:
        cells = json.loads(_text(path) or "")["cells"]
        code = [
            source if isinstance(source := cell["source"], str) else "".join(source)
            for cell in cells
            if cell["cell_type"] == "code"
        ]
        language, declared = parameters_of(path)
    except (ValueError, LookupError, TypeError, RecursionError):
        return UNKNOWN
    if language not in ("", "python"):
        return Reads(declared, words=words_of(" ".join(code)), complete=False)
    reads = cells_reads(code)
    return _followed(replace(reads, names=reads.names | declared), [folder], {path})


def _followed(reads: Reads, folders: list[Path], seen: set[Path]) -> Reads:
    """What a program reads together with the files here that it imports or runs."""
    left = [reads]
    while left:
        one = left.pop()
        found, complete = [], True
        for module in one.modules:
            file = _module_file(module, folders)
            if file is not None:
                found.append(file)
            elif _module_file(module.rpartition(".")[0], folders) is None:
                complete &= _is_closed(module)
        for word in one.files:
            file = _existing(word, folders)
            if file is not None:
                found.append(file)
        reads = replace(reads, complete=reads.complete and complete)
        for file in found:
            if file in seen:
                continue
            seen.add(file)
            text = _text(file) if len(seen) <= _MOST_FILES else None
            more = UNKNOWN if text is None else _READERS[file.suffix](text)
            reads |= more
            left.append(more)
    return reads


def _module_file(module: str, folders: list[Path]) -> Path | None:
    for folder in folders if module else ():
        base = folder.joinpath(*module.split("."))
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


def _is_closed(module: str) -> bool:
    top = module.split(".")[0]
    return top in sys.stdlib_module_names or top in _CLOSED_PACKAGES


def _existing(word: str, folders: list[Path]) -> Path | None:
    """The program here that a word names."""
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


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LONGEST:
            return None
        return path.read_text(errors="replace")
    except OSError:
        return None
