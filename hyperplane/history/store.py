"""Store of the records of runs: one JSON file each, which only its user can read."""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hyperplane import config
from hyperplane.core.errors import Fault, ReadError, check
from hyperplane.core.folder_entries import find_in
from hyperplane.core.home_folder import find_home
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.history.run_record import (
    RunRecord,
    name_start,
    new_run_name,
    split_run_name,
    to_file_name,
)
from hyperplane.history.run_texts import RunList
from hyperplane.history.selection import RunSelection

#: Seconds after which the draft of a record counts as abandoned; it is written in milliseconds.
_ABANDONED = 3600.0
#: End of the name of a draft.
_DRAFT = ".draft"
#: Most names that are tried for a record; those after the first differ in the microsecond.
_MOST_NAMES = 100
#: Variable of the steps of jobs with the folder for the records of their clusters.
RECORDS_FOLDER = "HYPERPLANE_JOB_RECORDS"
#: Name of the newest run.
LATEST = "latest"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


def history_folder() -> Path:
    """Return the folder with the records of this user, which may not exist.

    Raises
    ------
    ConfigError
        If this user has no home folder, and XDG_STATE_HOME is not set.
    """
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else find_home() / ".local" / "state"
    return base / "hyperplane" / "history"


def write_run(record: RunRecord) -> RunRecord:
    """Write a record, and remove the oldest; return it as written.

    If the folder has a record of another run that started in the same second, the time in the name
    of this one has microseconds. The same record is written once.

    Raises
    ------
    OSError
        If it cannot be written, or if no name is free. The error names the file, and what to do.
    ConfigError
        If the number of records that are kept is invalid, or no folder is known.
    """
    keep = config.history().keep
    if not keep:
        return record
    folder = history_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            # With sudo the home directory may belong to another user, who could not remove the
            # files.
            raise PermissionError(f"{folder} belongs to another user")
        if status.st_mode & 0o077:
            folder.chmod(0o700)
        record = _write_unique(folder, record)
        _remove_oldest(folder, keep)
    except OSError as error:
        if error.errno is None:  # its message is complete
            raise
        raise _explain(error, folder / f"{record.name}.json") from error
    return record


def _explain(error: OSError, file: Path) -> OSError:
    """Return the error of a record that cannot be written, with its file and what to do."""
    advice = (
        "free space on that disk, or set XDG_STATE_HOME to a folder on another disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "let this user write the folder, or set XDG_STATE_HOME to another one"
    )
    text = f"{error.strerror}: {str(file)!r}; {advice}; hyperplane.history.keep: 0 keeps no records"
    return OSError(error.errno, text)


def copy_run(record: RunRecord) -> None:
    """Leave a copy of a record for the supervisor of the job whose step this process runs.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    folder = os.environ.get(RECORDS_FOLDER)
    if folder:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_unique(Path(folder), record)


def _write_unique(folder: Path, record: RunRecord) -> RunRecord:
    """Write a record under its name, or under one that no other run has; return it as written."""
    stems = {file.stem for file in find_in(folder, "*.json")}
    is_alone = _find_second(record.name) not in map(_find_second, stems)
    if (is_alone or record.name in stems) and _write_new(folder, record):
        return record
    first = int(record.started % 1 * 1e6)
    for count in range(_MOST_NAMES):
        name = new_run_name(record.subject, record.started, (first + count) % 10**6)
        record = record.model_copy(update={"name": name})
        if _write_new(folder, record):
            return record
    raise FileExistsError(f"{folder} has {_MOST_NAMES} records of other runs named like {name}")


def _find_second(name: str) -> str:
    return split_run_name(name)[0].partition(".")[0]


def _write_new(folder: Path, record: RunRecord) -> bool:
    """Write a record atomically; return False if its name is that of another run."""
    target = folder / f"{record.name}.json"
    # The draft of a name belongs to one thread at a time, so that no other one replaces the
    # record; unlike a name with the process, it is shared by containers whose processes are all 1.
    draft = folder / f"{record.name}{_DRAFT}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            is_free = not _is_of_another_run(target, record)
            if is_free:
                opened.write(record.to_json())
        if is_free:
            draft.replace(target)
        else:
            draft.unlink()
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return is_free


def _is_of_another_run(file: Path, record: RunRecord) -> bool:
    """Return whether a file is another record than this one; False if it is missing or damaged."""
    try:
        written = RunRecord.from_json(file.read_bytes())
    except (OSError, ValueError):
        return False
    # Blocks of two threads can begin at the same time, but not have all of the content in common.
    return written != record


def _remove_oldest(folder: Path, keep: int) -> None:
    files = find_in(folder, "*.json")
    for file in itertools.islice(_iterate_oldest(files), max(0, len(files) - keep)):
        file.unlink(missing_ok=True)
    # Earlier versions have named drafts by the process.
    for draft in find_in(folder, "*.[0-9]*") + find_in(folder, f"*{_DRAFT}"):
        with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile
            is_draft = draft.suffix == _DRAFT or draft.suffix[1:].isdecimal()
            if is_draft and time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()


def _files(folder: Path) -> list[Path]:
    """Return the files of the records, newest first."""
    return [*_iterate_oldest(find_in(folder, "*.json"))][::-1]


def _iterate_oldest(files: list[Path]) -> Iterator[Path]:
    """Yield the files of records in the order of their starts.

    The first record of a second has no microseconds in its name, and can be of the run that began
    last: a block is recorded after those within it. If the second has others, its file is read.
    """
    named = sorted(files, key=lambda file: file.name)
    for second, group in itertools.groupby(named, key=lambda file: _find_second(file.stem)):
        same = list(group)
        if second and len(same) > 1:
            same.sort(key=_find_microsecond)
        yield from same


def _find_microsecond(file: Path) -> int:
    """Return the microsecond of the start of a run; 0 if its file is damaged and names none."""
    in_name = split_run_name(file.stem)[0].partition(".")[2]
    if in_name:
        return int(in_name)
    try:
        return int(RunRecord.from_json(file.read_bytes()).started % 1 * 1e6)
    except (OSError, ValueError):
        return 0


@check_call
def list_runs(
    name: str | None = None,
    *,
    text: str | None = None,
    since: dt.datetime | str | None = None,
    until: dt.datetime | str | None = None,
    limit: int | None = None,
) -> list[RunRecord]:
    """Return the records of this user's clusters, and of blocks of code, on this machine.

    Parameters
    ----------
    name : str, optional
        Only runs of this cluster, block, program, pipeline or ``pipeline/step``.
    text : str, optional
        Only runs with this text in a name, that of an operation included, in the pool, the engine
        or the exit reason; in upper or lower case.
    since, until : datetime or str, optional
        Only runs that started since or until this time: a date and time in the format of ISO 8601,
        or a duration before now, such as ``"7 days"``.
    limit : int, optional
        Maximum number of records.

    Returns
    -------
    list of RunRecord
        Newest first; prints as a table. Files that are no records are left out, with a warning.
        ``hyperplane.history.keep`` in the configuration is how many are kept.

    Raises
    ------
    RequestError
        With every fault of the call.

    Examples
    --------
    >>> import hyperplane
    >>> client, cluster = hyperplane.initialize_cluster(
    ...     num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, name="flights"
    ... )  # doctest: +ELLIPSIS
    👉 Hyperplane: selecting worker node pool
    ...
    >>> client.submit(sum, [1, 2, 3]).result()
    6
    >>> client.close(); cluster.close()
    >>> run = list_runs("flights", since="1 hour")[0]
    >>> run.cluster, run.exit_reason, run.plan.ram_per_proc, [task.name for task in run.tasks]
    ('flights', 'closed', 500000000, ['sum'])
    """
    selection = RunSelection.parse(name, text, since, until, limit)
    records = RunList()
    for record in iterate_runs(_warn_of_damaged):
        if selection.contains(record):
            records.append(record)
        if len(records) == selection.limit:
            break
    return records


def iterate_runs(report_damaged: Callable[[Path], None]) -> Iterator[RunRecord]:
    """Yield all records, newest first; call a function with each file that is no record."""
    for file in _files(history_folder()):
        try:
            yield RunRecord.from_json(file.read_bytes())
        except FileNotFoundError:  # removed meanwhile
            continue
        except (OSError, ValueError):
            report_damaged(file)


def _warn_of_damaged(file: Path) -> None:
    warn_caller(f"{file} is no record of a run and is left out; delete the file", UserWarning)


@check_call
def read_run(name: str) -> RunRecord:
    """Read the record of a run.

    Parameters
    ----------
    name : str
        Name of the record, the time that it begins with (also with the microseconds of the start),
        or the name of a cluster or of a block for its newest record; ``"latest"`` for the newest
        one of all.

    Returns
    -------
    RunRecord

    Raises
    ------
    RequestError
        If there is no such record; the message has similar names.
    ReadError
        If the file cannot be read, or is no record.

    Examples
    --------
    >>> run = read_run("flights")  # doctest: +SKIP
    >>> run.peak_share  # doctest: +SKIP
    0.42
    """
    text: object = name  # callers may pass another type
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        check([Fault("name", repr(name)[:80], "the name of a record, a cluster or a block")])
    files = {file.stem: file for file in _files(history_folder())}
    found = files.get(name)
    found = found or next((files[each] for each in files if split_run_name(each)[0] == name), None)
    if found is not None:
        return _read(found)
    for record in _iterate_second(name, files):
        if name_start(record) == name:
            return record
    named = [files[each] for each in files if split_run_name(each)[1] == to_file_name(name)]
    for file in named:
        record = _read(file)
        # The files of the blocks a/b and a.b are named alike.
        if name == (record.block or record.cluster):
            return record
    if name == LATEST and files:
        return _read(next(iter(files.values())))
    near = [_name_subject(file) for file in named] or _find_near(name, files)
    advice = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    allowed = "the name of a record, a cluster or a block; hyperplane history list shows them"
    check([Fault("name", repr(name), allowed, advice)])
    raise AssertionError  # check raises


def _read(file: Path) -> RunRecord:
    try:
        return RunRecord.from_json(file.read_bytes())
    except (OSError, ValueError) as error:
        reason = f"{error}; delete the file" if isinstance(error, ValueError) else str(error)
        raise ReadError(str(file), reason) from error


def _iterate_second(name: str, files: dict[str, Path]) -> Iterator[RunRecord]:
    """Yield the records of the second of a time with microseconds."""
    second, dot, _ = name.partition(".")
    for each, file in files.items():
        if dot and _find_second(each) == second:
            yield _read(file)


def _find_near(name: str, files: dict[str, Path]) -> list[str]:
    """Return at most two names of records, times, clusters or blocks that are like a name."""
    subjects: dict[str, Path] = {}
    for each, file in files.items():
        subjects.setdefault(split_run_name(each)[1], file)
    times = (split_run_name(each)[0] for each in files)
    near = difflib.get_close_matches(name, [*files, *dict.fromkeys(times), *subjects], n=2)
    return [_name_subject(subjects[each]) if each in subjects else each for each in near]


def _name_subject(file: Path) -> str:
    """Return the name of the block or the cluster of a record; of its file if it is damaged."""
    try:
        record = RunRecord.from_json(file.read_bytes())
    except (OSError, ValueError):
        return file.stem
    return record.block or record.cluster
