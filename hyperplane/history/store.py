"""Store of the records of runs: one JSON file each, which only its user can read."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import time
from pathlib import Path

from hyperplane import config
from hyperplane.core.errors import Fault, ReadError, check
from hyperplane.core.folder_entries import find_in
from hyperplane.core.public_calls import check_call
from hyperplane.history.run_record import TIME_LENGTH, RunRecord

#: Seconds after which the draft of a record counts as abandoned; it is written in milliseconds.
_ABANDONED = 3600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def history_folder() -> Path:
    """Return the folder with the records of this user, which may not exist."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "hyperplane" / "history"


def write_run(record: RunRecord) -> None:
    """Write a record atomically, in place of an earlier one of its name, and remove the oldest.

    Raises
    ------
    OSError
        If it cannot be written.
    ConfigError
        If the number of records that are kept is invalid.
    """
    keep = config.history().keep
    if not keep:
        return
    folder = history_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        # With sudo the home directory may belong to another user, who could not remove the files.
        raise PermissionError(f"{folder} belongs to another user")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    draft = folder / f"{record.name}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(record.to_json())
        draft.replace(folder / f"{record.name}.json")
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _remove_oldest(folder, keep)


def _remove_oldest(folder: Path, keep: int) -> None:
    for file in _files(folder)[keep:]:
        file.unlink(missing_ok=True)
    for draft in find_in(folder, "*.[0-9]*"):
        with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile
            is_draft = draft.suffix[1:].isdecimal()
            if is_draft and time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()


def _files(folder: Path) -> list[Path]:
    """Return the files of the records, newest first."""
    return sorted(find_in(folder, "*.json"), key=lambda file: file.name, reverse=True)


@check_call
def list_runs() -> list[RunRecord]:
    """Return the records of the clusters that this user has started on this machine.

    Returns
    -------
    list of RunRecord
        Newest first. Files that are no records are left out. ``hyperplane.history.keep`` in the
        configuration is how many are kept.

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
    >>> run = list_runs()[0]
    >>> run.cluster, run.exit_reason, run.plan.ram_per_proc, [task.name for task in run.tasks]
    ('flights', 'closed', 500000000, ['sum'])
    """
    records = []
    for file in _files(history_folder()):
        with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or damaged
            records.append(RunRecord.from_json(file.read_bytes()))
    return records


@check_call
def read_run(name: str) -> RunRecord:
    """Read the record of a run.

    Parameters
    ----------
    name : str
        Name of the record, the time that it begins with, or the name of a cluster for its newest
        record.

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
        check([Fault("name", repr(name)[:80], "the name of a record or of a cluster")])
    files = {file.stem: file for file in _files(history_folder())}
    parts = {each: (each[:TIME_LENGTH], each[TIME_LENGTH + 1 :]) for each in files}
    found = files.get(name) or next((files[each] for each in files if name in parts[each]), None)
    if found is None:
        names = [*files, *dict.fromkeys(part for both in parts.values() for part in both)]
        near = difflib.get_close_matches(name, names, n=2)
        advice = f"did you mean {' or '.join(near)}?" if near else ""
        allowed = "the name of a record or of a cluster; hyperplane history list shows them"
        check([Fault("name", repr(name), allowed, advice)])
        raise AssertionError  # check raises
    try:
        return RunRecord.from_json(found.read_bytes())
    except (OSError, ValueError) as error:
        reason = f"{error}; delete the file" if isinstance(error, ValueError) else str(error)
        raise ReadError(str(found), reason) from error
