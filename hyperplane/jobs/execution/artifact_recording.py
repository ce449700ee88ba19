"""Record what an attempt has saved: reported outputs, executed notebooks, and its output folder."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from hyperplane.core.artifact_reports import OUTPUT
from hyperplane.core.units import plural
from hyperplane.jobs.artifact_files import FileIdentity, identify, resolve_parent
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.redaction import redact_text
from hyperplane.jobs.execution.saved_reports import read_reports
from hyperplane.jobs.execution.step_command import notebook_output_path, working_folder
from hyperplane.jobs.store.artifact_records import (
    ARRAY,
    FILE,
    FOLDER,
    LONGEST_NAME,
    LONGEST_URL,
    MODEL,
    NOTEBOOK,
    TABLE,
    Artifact,
    combine_shards,
    find_suffix,
    kind_of_file,
)
from hyperplane.jobs.store.job_records import Attempt, Job, WorkUnit
from hyperplane.jobs.store.jobs_home import jobs_folder
from hyperplane.objectstore.redaction import redact_url

#: Suffixes of the folder for reports of an attempt, and of its output folder.
REPORTS_SUFFIX, OUTPUTS_SUFFIX = ".artifacts", ".outputs"
#: Most artifacts of an attempt, and files of a table among which the first one is looked for.
MOST_ARTIFACTS, _MOST_FILES = 2000, 10_000
#: Longest format, in characters: a longer suffix is none.
_LONGEST_FORMAT = 32
#: Protocols of fsspec that read files or the memory of the machine that copies an artifact.
_LOCAL_PROTOCOLS = {
    "", "file", "local", "memory", "data", "dir", "git", "libarchive", "reference", "tar", "zip",
}  # fmt: skip
#: Files of a job's folder that have its settings, and the function that it calls.
_RESERVED = {
    "submission.json", "submission.lock", "lock", "cancelled", "call.pickle", "call-sources.json",
    "result.pickle",
}  # fmt: skip
#: Seconds by which the time of a file may be before that of another one written earlier.
_CLOCK_SECONDS = 1.0
#: Kinds of artifacts by the kind of the saved object.
_SAVED_KINDS = {
    "dataframe": TABLE, "table": TABLE, "array": ARRAY, "numpy": ARRAY, "model": MODEL,
}  # fmt: skip


def collect_artifacts(
    job: Job,
    step: Step,
    attempt: Attempt,
    command: AttemptCommand,
    secrets: Sequence[str] = (),
    *,
    succeeded: bool = True,
) -> tuple[list[Artifact], str]:
    """Return the artifacts of an attempt that has ended, and a note on those that are left out.

    Parameters
    ----------
    job, step, attempt
        Job, step and attempt.
    command : AttemptCommand
        The paths of the attempt's files.
    secrets : sequence of str
        Secrets of the step, which are masked in names and addresses.
    succeeded : bool
        Whether it has exited with 0, so that its chunk has saved to the output of the step.
    """
    collector = _Collector(job, step, attempt, command)
    collector.add_reports()
    if step.output and succeeded:
        collector.add_shard(step.output)
    if step.kind == "notebook":
        collector.add_notebook()
    collector.add_output_folder()
    found = _number_names([_mask(each, secrets) for each in collector.found.values()])
    left_out = max(0, len(found) - MOST_ARTIFACTS) + collector.left_out
    if not left_out:
        return found, ""
    note = (
        f"{plural(left_out, 'saved file')} not recorded as artifacts: at most {MOST_ARTIFACTS:,} "
        f"of an attempt, with names in UTF-8 of at most {LONGEST_NAME} bytes"
    )
    return found[:MOST_ARTIFACTS], note


def _mask(artifact: Artifact, secrets: Sequence[str]) -> Artifact:
    lower = [each.lower() for each in secrets]  # as suffixes are
    name, url, identity = (
        redact_text(text, secrets) for text in (artifact.name, artifact.url, artifact.identity)
    )
    is_same = (url, identity) == (artifact.url, artifact.identity)
    return replace(
        artifact, name=name, url=url, format=redact_text(artifact.format, [*secrets, *lower]),
        identity=identity if is_same else "",
    )  # fmt: skip


def _number_names(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Return artifacts with different names: those that are equal when masked get numbers."""
    names = {each.name for each in artifacts}
    last: dict[str, int] = {}
    numbered = []
    for artifact in artifacts:
        name, number = artifact.name, last.get(artifact.name, 0) + 1
        if number > 1:
            while (name := _add_number(artifact.name, number)) in names:
                number += 1
        names.add(name)
        last[artifact.name] = number
        numbered.append(replace(artifact, name=name))
    return numbered


def _add_number(name: str, number: int) -> str:
    """Return a name with a number before its suffix, with at most the longest length.

    Examples
    --------
    >>> _add_number("*******/a.csv", 2)
    '*******/a-2.csv'
    """
    suffix = PurePosixPath(name).suffix
    stem, ending = name[: len(name) - len(suffix)], f"-{number}{suffix}"
    left = LONGEST_NAME - len(ending.encode())
    return stem.encode()[: max(0, left)].decode(errors="ignore") + ending


class _Collector:
    """Artifacts of one attempt by their names; ``left_out`` counts those that cannot be stored."""

    def __init__(self, job: Job, step: Step, attempt: Attempt, command: AttemptCommand) -> None:
        self.found: dict[str, Artifact] = {}
        self.left_out = 0
        self._job, self._step, self._attempt, self._command = job, step, attempt, command
        #: Addresses of what was found.
        self._addresses: set[str] = set()
        #: Records of the shards of an output, by its address and their index.
        self._shards: dict[str, dict[int, Artifact]] = {}
        self._own = Path(os.path.realpath(job.folder_path))
        self._home = jobs_folder()
        self._outputs = Path(os.path.realpath(command.file(OUTPUTS_SUFFIX)))
        self._folder = Path(os.path.realpath(working_folder(job.pipeline, step)))

    def add_reports(self) -> None:
        """Add what the processes of the attempt have reported."""
        # By address: equal names are made unique, and an attempt that saves in another order must
        # give each file the same name.
        reports = sorted(
            read_reports(self._command.file(REPORTS_SUFFIX)), key=lambda report: report["url"]
        )
        for report in reports:
            with suppress(OSError, ValueError):  # it has no path or URL
                self._add_report(report)

    def _add_report(self, report: dict[str, Any]) -> None:
        if report["kind"] == OUTPUT:
            self._add(Artifact(
                **self._names(), name=OUTPUT, kind=OUTPUT, size=report["size"],
                created=report["created"], identity=report["digest"],
            ))  # fmt: skip
        elif report["local"]:
            self._add_saved(report)
        elif _is_remote(report["url"]):
            url = redact_url(report["url"])
            name = PurePosixPath(urlsplit(url).path).name or url
            self._add(self._describe_saved(report, name, url))

    def add_shard(self, output: str) -> None:
        """Add the output of a step with chunks, unless its process has reported it.

        Processes of pods report nothing.
        """
        output = re.sub("^(file|local)://", "", output)
        is_local = "://" not in output
        url = str(Path(self._folder, output)) if is_local else redact_url(output)
        if url in self._addresses or url.startswith("memory:"):
            return
        with suppress(OSError, ValueError):
            url = resolve_parent(url) if is_local else url
            if url not in self._addresses:
                self._add(Artifact(
                    **self._names(), name=self._make_unique(PurePosixPath(url).name, url),
                    kind=kind_of_file(url) if find_suffix(url) else FOLDER,
                    format=_limit_format(find_suffix(url)), url=url, files=None, is_folder=True,
                    shard=max(0, self._attempt.chunk), created=time.time(),
                ))  # fmt: skip

    def _add_saved(self, report: dict[str, Any]) -> None:
        """Add an output on a disk."""
        if not report["url"].startswith("/"):
            return
        try:
            url = resolve_parent(report["url"])
        except (OSError, ValueError):  # it was removed, or is on a disk of another machine
            url = os.path.normpath(report["url"])
        path = Path(url)
        if self._is_internal(path):
            return
        bases = (self._outputs, self._folder)
        base = next((each for each in bases if path.is_relative_to(each)), path.parent)
        found = self._describe_saved(report, path.relative_to(base).as_posix(), url)
        if found.shard is not None:
            self._add(found)  # readers see the output, and its files, when all shards are saved
        elif path.is_dir():
            first = _find_first(path, found.format) if found.kind == TABLE else ""
            identity = identify(url, first) if first else None
            self._add(replace(found, identity=str(identity or "")))
        else:
            identity = identify(url)
            size = found.size if identity is None else identity.size
            self._add(replace(found, size=size, identity=str(identity or "")))

    def _describe_saved(self, report: dict[str, Any], name: str, url: str) -> Artifact:
        is_folder = report["folder"] or report["shard"] is not None
        kind = _SAVED_KINDS.get(report["kind"]) or kind_of_file(name)
        is_named = report["format"] not in ("", "figure", "bytes", "text", "files")
        return Artifact(
            **self._names(), name=self._make_unique(name, url),
            kind=FOLDER if is_folder and kind == FILE else kind,
            format=_limit_format(report["format"] if is_named else find_suffix(name)), url=url,
            size=report["size"], rows=report["rows"], files=report["files"],
            created=report["created"], is_folder=is_folder, shard=report["shard"],
        )  # fmt: skip

    def _is_internal(self, path: Path) -> bool:
        """Whether a path is one of the files of jobs, such as a log that may have secrets."""
        if not any(path.is_relative_to(folder) for folder in (self._own.parent, self._home)):
            return False
        if path.is_relative_to(self._outputs):
            return path == self._outputs
        return not path.is_relative_to(self._own) or path.relative_to(self._own).parts[:1] in [
            (), ("steps",), *((name,) for name in _RESERVED)
        ]  # fmt: skip

    def add_notebook(self) -> None:
        """Add the executed notebook, if this attempt has written it."""
        unit = WorkUnit(self._step.name, self._attempt.chunk, self._step.chunk_count)
        with suppress(OSError, ValueError):
            url = resolve_parent(str(notebook_output_path(self._job, self._step, unit)))
            identity = identify(url)
            if identity is not None and identity.changed / 1e9 >= self._find_start():
                self._add_file(PurePosixPath(url).name, url, identity, NOTEBOOK)

    def _find_start(self) -> float:
        """Return when the attempt has started, by the clock of the machine that runs it."""
        try:
            return self._command.file(".pid").stat().st_mtime - _CLOCK_SECONDS
        except OSError:
            return self._attempt.started - _CLOCK_SECONDS

    def add_output_folder(self) -> None:
        """Add all files in the output folder; links and hidden files are left out."""
        root = str(self._outputs)
        if self._command.file(OUTPUTS_SUFFIX).is_symlink():
            return
        for name in _list_files(root):
            parents = [str(Path(root, parent)) for parent in PurePosixPath(name).parents]
            url = str(Path(root, name))
            if not self._addresses.isdisjoint([url, *parents]):
                continue
            if len(self.found) >= MOST_ARTIFACTS:
                self.left_out += 1
            elif identity := identify(url):
                self._add_file(name, url, identity, kind_of_file(name))

    def _add_file(self, name: str, url: str, identity: FileIdentity, kind: str) -> None:
        self._add(Artifact(
            **self._names(), name=self._make_unique(name, url), kind=kind,
            format=_limit_format(find_suffix(name)), url=url, size=identity.size,
            created=identity.changed / 1e9, identity=str(identity),
        ))  # fmt: skip

    def _make_unique(self, name: str, url: str) -> str:
        """Return a name that no artifact of another address has: with more of the address.

        A file is never named as the output of the job, which may be set after it.
        """
        parts = [part for part in url.split("/") if part]
        names = [name, *("/".join(parts[-count:]) for count in range(1, len(parts) + 1))]
        for each in names:
            name = f"./{each}" if each == OUTPUT else each
            other = self.found.get(name)
            if other is None or other.url == url:
                return name
        return name

    def _names(self) -> dict[str, Any]:
        attempt = self._attempt
        return {
            "job_id": attempt.job_id, "step": attempt.step, "chunk": attempt.chunk,
            "attempt": attempt.number,
        }  # fmt: skip

    def _add(self, artifact: Artifact) -> None:
        if artifact.shard is not None:  # a process may save several shards
            shards = self._shards.setdefault(artifact.url, {})
            shards[artifact.shard] = artifact
            whole = combine_shards({artifact.url: list(shards.values())})[0]
            artifact = replace(whole, chunk=artifact.chunk, shard=artifact.shard)
        if _can_store(artifact):
            self.found[artifact.name] = artifact
            self._addresses.add(artifact.url)
        else:
            self.left_out += 1


def _can_store(artifact: Artifact) -> bool:
    """Whether databases can store the texts of an artifact."""
    try:
        texts = (artifact.name, artifact.url, artifact.identity, artifact.format)
        sizes = [len(text.encode()) for text in texts]
    except UnicodeEncodeError:
        return False
    is_short = 0 < sizes[0] <= LONGEST_NAME and max(sizes) <= 2 * LONGEST_URL
    return is_short and "\0" not in "".join(texts)


def _limit_format(text: str) -> str:
    return text if len(text) <= _LONGEST_FORMAT else ""


def _is_remote(url: str) -> bool:
    """Whether a URL leads to a store, and not to the machine that copies what it has."""
    protocol, separator, _ = url.partition("://")
    return bool(separator) and "::" not in url and protocol.lower() not in _LOCAL_PROTOCOLS


def _list_files(root: str) -> Iterator[str]:
    """Yield the paths of the files in a folder, in order, without links and hidden files."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            with suppress(OSError):
                if not name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                    yield path.relative_to(root).as_posix()


def _find_first(folder: Path, suffix: str) -> str:
    """Return the first file of a folder, of those with a suffix if there are any."""
    names = sorted(islice(_list_files(str(folder)), _MOST_FILES))
    return next((name for name in names if find_suffix(name) == suffix), next(iter(names), ""))
