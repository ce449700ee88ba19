"""Locate and check the files that a pipeline names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane.core.errors import Fault
from hyperplane.jobs.definition import credential_detection
from hyperplane.jobs.definition.field_types import split_target
from hyperplane.jobs.definition.message_formatting import format_value, suggest_names
from hyperplane.jobs.definition.notebook_outputs import NotebookOutputs

#: Kinds of files: an existing file, an existing folder, a file to be written.
_FILE, _FOLDER, _NEW = "a file", "a folder", "a new file"
#: Maximum faults for which folders are searched for similar names.
_MAX_SUGGESTIONS = 50
_STEP_PATHS = {
    "path": _FILE,
    "output_path": _NEW,
    "working_dir": _FOLDER,
    "package_path": _FOLDER,
}
_PIPELINE_PATHS = {"requirements": _FILE, "working_dir": _FOLDER}


class _PathField(NamedTuple):
    """A path as written in a field, and the kind of file that must be there."""

    step: int | None
    field: str
    text: str
    kind: str
    #: What follows the path in the field.
    suffix: str = ""

    @property
    def where(self) -> str:
        return self.field if self.step is None else f"{self.step}.{self.field}"


class PipelineFiles(NamedTuple):
    """Located files of a pipeline, with their faults.

    Parameters
    ----------
    root : Path
        Folder that paths are relative to.
    steps : list of dict
        For each step, its paths relative to the root.
    shared : dict
        Paths of the whole pipeline, relative to the root.
    faults : list of Fault
        Faults; ``where`` is ``"2.path"`` for the step with index 2, or ``"requirements"``.
    warnings : tuple of str
        Possible mistakes that do not prevent a run.
    """

    root: Path
    steps: list[dict[str, str]]
    shared: dict[str, str]
    faults: list[Fault]
    warnings: tuple[str, ...]


def find_files(
    steps: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Any],
    root: str | os.PathLike[str] | None,
    folder: Path,
) -> PipelineFiles:
    """Locate and check all files of a pipeline.

    Parameters
    ----------
    steps : sequence of mapping
        The known fields of each step.
    shared : mapping
        ``requirements`` and ``working_dir`` of the whole pipeline.
    root : path, or None
        Folder that paths are relative to; None to determine it.
    folder : Path
        Absolute folder of the pipeline file.

    Returns
    -------
    PipelineFiles
        Without ``root``, the root is the folder that contains the most of the files among the git
        repository of ``folder``, ``folder`` itself and the current folder; the first if several
        contain equally many.
    """
    path_fields = list(_list_paths(steps, shared))
    candidates = _candidate_roots(folder) if root is None else [Path(root).absolute()]
    faults: list[Fault]
    if root is not None and not is_folder(candidates[0]):
        # Each file would be missing, too, and some of these paths cannot be resolved.
        faults = [Fault("root", format_value(str(root)), "an existing folder")]
        return PipelineFiles(candidates[0], [{} for _ in steps], {}, faults, ())
    faults = []
    # max() returns the first of several best candidates.
    selected = max(candidates, key=lambda candidate: _count_valid_paths(candidate, path_fields))
    step_paths: list[dict[str, str]] = [{} for _ in steps]
    shared_paths: dict[str, str] = {}
    warnings: list[str] = []
    if selected != candidates[0]:
        warnings.append(
            f"paths are relative to {selected}, which has more of the files than "
            f"{candidates[0]}, the preferred folder; write paths relative to the latter"
        )
    for path_field in path_fields:
        relative = _relative_path(selected, path_field.text)
        fault = _path_fault(selected, path_field, relative)
        if fault is not None:
            # A malicious file must not cause thousands of folder listings.
            suggestion = (
                _suggest_file(selected / path_field.text)
                if relative and path_field.kind != _NEW and len(faults) < _MAX_SUGGESTIONS
                else ""
            )
            faults.append(replace(fault, advice=fault.advice or suggestion))
        elif relative is not None:
            paths = shared_paths if path_field.step is None else step_paths[path_field.step]
            paths[path_field.field] = relative + path_field.suffix
            if path_field.field == "path" and steps[path_field.step or 0].get("kind") == "notebook":
                _scan_notebook(selected, path_field._replace(text=relative), faults, warnings)
    outputs = NotebookOutputs(selected, steps, step_paths)
    faults += outputs.find_faults(shared_paths)
    warnings += outputs.describe_shared()
    warnings += _credential_warnings(steps)
    return PipelineFiles(selected, step_paths, shared_paths, faults, tuple(warnings))


def _list_paths(
    steps: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> Iterator[_PathField]:
    for field, kind in _PIPELINE_PATHS.items():
        if shared.get(field):
            yield _PathField(None, field, shared[field], kind)
    for index, step in enumerate(steps):
        for field, kind in _STEP_PATHS.items():
            if step.get(field):
                yield _PathField(index, field, step[field], kind)
        if step.get("forecast"):
            path, name = split_target(step["forecast"])
            yield _PathField(index, "forecast", path, _FILE, f":{name}")


def _candidate_roots(folder: Path) -> list[Path]:
    repository = [parent for parent in (folder, *folder.parents) if (parent / ".git").exists()][:1]
    return list(dict.fromkeys([*repository, folder, Path.cwd()]))


def _count_valid_paths(root: Path, path_fields: Sequence[_PathField]) -> int:
    """Count the paths that are valid in a folder."""
    return sum(
        _path_fault(root, path_field, _relative_path(root, path_field.text)) is None
        for path_field in path_fields
    )


def _relative_path(root: Path, text: str) -> str | None:
    """Return a path relative to a folder; None if it leads out of it by ``..`` or a link."""
    real_root, target = os.path.realpath(root), os.path.realpath(root / text)
    if not Path(target).is_relative_to(real_root):
        return None
    if Path(text).is_absolute():
        return os.path.relpath(target, real_root)
    return text.removeprefix("./") or "."


def is_file(path: Path) -> bool:
    """Whether a file exists; False if the path is too long to check."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_path(value: object) -> bool:
    r"""Whether a value is a path: text without null characters, or a path object of such text.

    Examples
    --------
    >>> is_path("a.yaml"), is_path(b"a.yaml"), is_path(3), is_path("a\0")
    (True, False, False, False)
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return isinstance(text, str) and "\0" not in text


def is_folder(path: Path) -> bool:
    """Whether a folder exists; False if the path is too long to check."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _path_fault(root: Path, path_field: _PathField, relative: str | None) -> Fault | None:
    asked, file = format_value(path_field.text), root / path_field.text
    if relative is None:
        return Fault(
            path_field.where, asked, f"a path inside {root}", "move or copy the file there"
        )
    if path_field.kind == _FILE and not is_file(file):
        return Fault(path_field.where, asked, f"an existing file in {root}")
    if path_field.kind == _FOLDER and not is_folder(file):
        return Fault(path_field.where, asked, f"an existing folder in {root}")
    if path_field.kind == _NEW and is_folder(file):
        return Fault(path_field.where, asked, "a file, not a folder")
    if path_field.kind == _NEW:
        parents = file.relative_to(root).parents if file.is_relative_to(root) else ()
        files = [each for each in parents if is_file(root / each)]
        if files:
            return Fault(path_field.where, asked, f"a path in a folder; {files[0]} is a file")
    return None


def _suggest_file(file: Path) -> str:
    """Suggest similar names in the folder of a missing file."""
    try:
        return suggest_names(file.name, sorted(other.name for other in file.parent.iterdir()))
    except OSError:
        return ""


def _scan_notebook(
    root: Path, path_field: _PathField, faults: list[Fault], warnings: list[str]
) -> None:
    """Scan a notebook for credentials; add warnings that do not contain them."""
    try:
        findings = credential_detection.find_in_notebook(root / path_field.text)
    except ValueError as error:
        faults.append(Fault(path_field.where, format_value(path_field.text), str(error)))
    except OSError as error:
        faults.append(
            Fault(
                path_field.where,
                format_value(path_field.text),
                "a file that can be read",
                str(error),
            )
        )
    else:
        warnings += [
            f"{path_field.text}, {place}: looks like {kind}; remove it and list its name under "
            "secrets"
            for place, kind in findings
        ]


def _credential_warnings(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warn of credentials in variables and arguments, which are stored with a job and shown."""
    return [
        f"{place} of step {step.get('name')!r}: looks like {kind}; "
        "list its name under secrets, because this value is stored with the job and shown"
        for step in steps
        for place, text in _step_texts(step)
        if (kind := credential_detection.detect_credential(text))
    ]


def _step_texts(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in (step.get("env") or {}).items():
        yield f"env.{name}", value
    for word in step.get("argv") or ():
        yield "command", word
    for word in step.get("args") or ():
        yield "args", word
