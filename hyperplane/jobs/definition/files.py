"""The files that a pipeline names: which folder they are in, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane.errors import Fault
from hyperplane.jobs.definition import credentials
from hyperplane.jobs.definition.wording import format_value, suggest_names

#: What stands at a path: a file that is there, a folder that is there, or a file yet to come.
_FILE, _FOLDER, _NEW = "a file", "a folder", "a new file"
#: Faults for which folders are searched for near names.
_MAX_SUGGESTIONS = 50
_STEP_PATHS = {"path": _FILE, "output_path": _NEW, "working_dir": _FOLDER}
_PIPELINE_PATHS = {"requirements": _FILE, "working_dir": _FOLDER}


class _PathField(NamedTuple):
    """A path as it was written, and what shall be there."""

    step: int | None
    field: str
    text: str
    sort: str

    @property
    def where(self) -> str:
        return self.field if self.step is None else f"{self.step}.{self.field}"


class PipelineFiles(NamedTuple):
    """What was found of the files of a pipeline.

    Parameters
    ----------
    root : Path
        The folder that paths are relative to.
    steps : list of dict
        For each step, its paths relative to the root.
    shared : dict
        The paths of the whole pipeline, relative to the root.
    faults : list of Fault
        What is wrong; ``where`` is ``"2.path"`` for the step with index 2, or ``"requirements"``.
    warnings : tuple of str
        What somebody should see to, though it can run.
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
    """Look for all files of a pipeline.

    Parameters
    ----------
    steps : sequence of mapping
        The fields of each step, as far as they are known.
    shared : mapping
        ``requirements`` and ``working_dir`` of the whole pipeline.
    root : path, or None
        The folder that paths are relative to; None to find it.
    folder : Path
        Absolute folder of the file that describes the pipeline.

    Returns
    -------
    Survey
        Without a root given it is the first of three folders that holds the most of the files: the
        git repository that ``folder`` is in, ``folder`` itself, and the current folder.
    """
    asked = list(_list_paths(steps, shared))
    candidates = _candidate_roots(folder) if root is None else [Path(root).absolute()]
    faults: list[Fault] = []
    if root is not None and not is_folder(candidates[0]):
        faults.append(Fault("root", format_value(str(root)), "a folder that is there"))
    # The first of the best: max() keeps the first of equals.
    chosen = max(candidates, key=lambda one: _count_valid_paths(one, asked))
    placed: list[dict[str, str]] = [{} for _ in steps]
    whole: dict[str, str] = {}
    notes: list[str] = []
    if chosen != candidates[0]:
        notes.append(
            f"paths are relative to {chosen}: more of the files are there than in "
            f"{candidates[0]}, where they are looked for first; write paths relative to that"
        )
    for one in asked:
        relative = _relative_path(chosen, one.text)
        fault = _path_fault(chosen, one, relative)
        if fault is not None:
            # A hostile file must not have folders listed a thousand times.
            near = (
                _suggest_file(chosen / one.text)
                if relative and len(faults) < _MAX_SUGGESTIONS
                else ""
            )
            faults.append(replace(fault, advice=fault.advice or near))
        elif relative is not None:
            (whole if one.step is None else placed[one.step])[one.field] = relative
            if one.field == "path" and steps[one.step or 0].get("kind") == "notebook":
                _scan_notebook(chosen, one._replace(text=relative), faults, notes)
    notes += _credential_warnings(steps)
    return PipelineFiles(chosen, placed, whole, faults, tuple(notes))


def _list_paths(
    steps: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> Iterator[_PathField]:
    for field, sort in _PIPELINE_PATHS.items():
        if shared.get(field):
            yield _PathField(None, field, shared[field], sort)
    for index, step in enumerate(steps):
        for field, sort in _STEP_PATHS.items():
            if step.get(field):
                yield _PathField(index, field, step[field], sort)


def _candidate_roots(folder: Path) -> list[Path]:
    repository = [one for one in (folder, *folder.parents) if (one / ".git").exists()][:1]
    return list(dict.fromkeys([*repository, folder, Path.cwd()]))


def _count_valid_paths(root: Path, asked: Sequence[_PathField]) -> int:
    """How many of the paths are right in a folder."""
    return sum(_path_fault(root, one, _relative_path(root, one.text)) is None for one in asked)


def _relative_path(root: Path, text: str) -> str | None:
    """A path relative to a folder; None when it leads out of it, by ``..`` or by a link."""
    real, there = os.path.realpath(root), os.path.realpath(root / text)
    if not Path(there).is_relative_to(real):
        return None
    if Path(text).is_absolute():
        return os.path.relpath(there, real)
    return text.removeprefix("./") or "."


def is_file(path: Path) -> bool:
    """Whether a file is there; no, where the path is too long to ask."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_path(value: object) -> bool:
    r"""Whether a value names a path: text without zero bytes, or what stands for such text.

    Examples
    --------
    >>> is_path("a.yaml"), is_path(b"a.yaml"), is_path(3), is_path("a\0")
    (True, False, False, False)
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return isinstance(text, str) and "\0" not in text


def is_folder(path: Path) -> bool:
    """Whether a folder is there; no, where the path is too long to ask."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _path_fault(root: Path, one: _PathField, relative: str | None) -> Fault | None:
    asked, file = format_value(one.text), root / one.text
    if relative is None:
        return Fault(one.where, asked, f"a path inside {root}", "move or copy the file there")
    if one.sort == _FILE and not is_file(file):
        return Fault(one.where, asked, f"a file that is there, in {root}")
    if one.sort == _FOLDER and not is_folder(file):
        return Fault(one.where, asked, f"a folder that is there, in {root}")
    if one.sort == _NEW and is_folder(file):
        return Fault(one.where, asked, "a file, not a folder")
    return None


def _suggest_file(file: Path) -> str:
    """Names beside a missing file that somebody may have meant."""
    try:
        return suggest_names(file.name, sorted(other.name for other in file.parent.iterdir()))
    except OSError:
        return ""


def _scan_notebook(root: Path, one: _PathField, faults: list[Fault], notes: list[str]) -> None:
    """Scan a notebook for credentials; add what is found, without the credentials."""
    try:
        found = credentials.find_in_notebook(root / one.text)
    except ValueError as error:
        faults.append(Fault(one.where, format_value(one.text), str(error)))
    except OSError as error:
        faults.append(
            Fault(one.where, format_value(one.text), "a file that can be read", str(error))
        )
    else:
        notes += [
            f"{one.text}, {place}: looks like {kind}; take it out and name it under secrets"
            for place, kind in found
        ]


def _credential_warnings(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Credentials in what is kept with a job and shown: variables and arguments."""
    return [
        f"{place} of step {step.get('name')!r}: looks like {kind}; "
        "name it under secrets, since this is kept with the job and shown"
        for step in steps
        for place, text in _step_texts(step)
        if (kind := credentials.detect_credential(text))
    ]


def _step_texts(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in (step.get("env") or {}).items():
        yield f"env.{name}", value
    for word in step.get("argv") or ():
        yield "command", word
