"""Check that appended parts can be loaded together with the saved ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.core.errors import Fault, OutputConflict, ReadError, check
from hyperplane.core.progress import compute_with_progress
from hyperplane.formats.base import SupportsColumnLoad
from hyperplane.formats.pandas_frames.from_arrow import empty_frame
from hyperplane.formats.registry import load as load_format
from hyperplane.storage.commit_protocol import CommitProtocol
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_kinds import find_format
from hyperplane.storage.part_reading import FrameReader, PartFile
from hyperplane.storage.part_schemas import needs_value_check, unify_schemas


def check_appended_columns(
    names: Sequence[str], commits: CommitProtocol, manifest: Manifest
) -> None:
    """Raise unless a dataframe with these columns has those of the saved parts.

    Raises
    ------
    RequestError
        If it lacks columns, or has others.
    """
    filled = next((file for file in _saved_files(commits, manifest) if file.part.rows != 0), None)
    if filled is None or not _has_schema(filled):
        return
    present = list(empty_frame(filled.read_schema()).columns)
    missing = [name for name in present if name not in names]
    extra = [name for name in names if name not in present]
    differences = " and ".join(
        f"{verb} {', '.join(map(repr, some[:3]))}{', ...' * (len(some) > 3)}"
        for some, verb in ((missing, "without the columns"), (extra, "with the other columns"))
        if some
    )
    if differences:
        allowed = "the columns of the saved parts"
        advice = "rename or add them, save to another URL, or pass mode='overwrite'"
        check([Fault("obj", f"a dataframe to append {differences}", allowed, advice)])


def check_appended_types(
    commits: CommitProtocol, manifest: Manifest, folder: str, appended: Sequence[ManifestEntry]
) -> None:
    """Raise unless all values can be loaded in the common types of saved and appended parts.

    ``appended`` are parts in a staging folder, and ``manifest`` has the saved ones. Parts are read
    only if their types differ from the common ones such that values may not fit.

    Raises
    ------
    OutputConflict
        If a value does not fit.
    """
    url, saved = commits.target.url, _saved_files(commits, manifest)
    files = [
        *saved,
        *(
            PartFile(commits.target.store, path, part, saved[0].format, path)
            for path, part in ((f"{folder}/{part.name}", part) for part in appended)
        ),
    ]
    if not all(map(_has_schema, files)):
        return
    schemas = [file.read_schema() for file in files]
    rows, urls = [file.part.rows for file in files], [file.url for file in files]
    try:
        like = unify_schemas(schemas, rows, urls)
    except ReadError as error:
        raise _misfit_error(url, str(error)) from error
    reader, arguments = FrameReader(like), []
    for file, schema in zip(files, schemas, strict=True):
        if file.part.rows == 0:
            continue
        frame = empty_frame(schema)
        if frame.index.nlevels != like.index.nlevels:
            raise _misfit_error(url, f"{file.url} has another number of index levels")
        names = [
            name
            for name, dtype in like.dtypes.items()
            if needs_value_check(frame.dtypes[name], dtype)
        ]
        if names:
            arguments.append([reader, file, names])
    if not arguments:
        return
    tasks = task_graph.make_tasks(
        "compare", tokenize(url, [file.part for file in files]), _find_misfit, arguments
    )
    problems = compute_with_progress(tasks, f"comparing the types of {url}")
    problem = next(filter(None, problems), "")
    if problem:
        raise _misfit_error(url, problem)


def _saved_files(commits: CommitProtocol, manifest: Manifest) -> list[PartFile]:
    """Return the published parts of a dataframe."""
    target, paths = commits.target, commits.part_paths(manifest)
    suffix_format = find_format(PurePosixPath(manifest.parts[0].name).suffix.lower())
    return [
        PartFile(target.store, path, part, suffix_format, f"{target.path}/{part.name}")
        for path, part in zip(paths, manifest.parts, strict=True)
    ]


def _has_schema(file: PartFile) -> bool:
    """Return whether the types of a part are known without its values."""
    return bool(file.part.schema) or isinstance(load_format(file.format), SupportsColumnLoad)


def _find_misfit(reader: FrameReader, file: PartFile, names: Sequence[str]) -> str:
    """Return the error of a part that cannot be read in the common types; empty if it can."""
    try:
        reader(file, names)
    except ReadError as error:
        return str(error)
    return ""


def _misfit_error(url: str, problem: str) -> OutputConflict:
    return OutputConflict(
        url,
        "the rows to append cannot be loaded together with the saved ones, so nothing was "
        f"appended: {problem}",
    )
