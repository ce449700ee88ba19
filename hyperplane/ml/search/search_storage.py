"""Storage of searches: the database of their trials, and a folder for each named search."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, JobStoreError, RequestError
from hyperplane.core.optional import need
from hyperplane.jobs.store.jobs_home import jobs_folder, store_url, this_machine
from hyperplane.ml.search.space import MAX_TEXT
from hyperplane.ml.search.trial import TrialResult
from hyperplane.platforms.local.file_locks import try_lock

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def find_name_faults(name: object, argument: str = "name") -> list[Fault]:
    """Return the fault of an invalid name of a search.

    Examples
    --------
    >>> [fault.where for fault in find_name_faults("late flights")], find_name_faults("late-1")
    (['name'], [])
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return []
    allowed = "1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit"
    return [Fault(argument, repr(name)[:120], allowed)]


def database_url() -> str:
    """Return the URL of the database with the trials of searches.

    It is the job store if that is a server, and otherwise a file beside it: the supervisor of jobs
    writes to the file of the job store at any time, which would delay both.
    """
    url = store_url()
    return f"sqlite:///{jobs_folder() / 'searches.db'}" if url.startswith("sqlite") else url


def open_storage() -> Any:
    """Return Optuna's storage in the database of searches.

    Raises
    ------
    JobStoreError
        If the database cannot be opened, or Optuna cannot use its tables.
    """
    return _open_cached(database_url(), os.getpid())


@functools.lru_cache(maxsize=4)
def _open_cached(url: str, process: int) -> Any:
    del process  # a connection does not survive a fork
    wait = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    storages = need("optuna.storages", "ml")
    # Here, because they need SQLAlchemy, which Optuna installs.
    from sqlalchemy import make_url

    from hyperplane.jobs.store.store_errors import (
        display_name,
        first_line,
        is_file_error,
        store_error,
    )

    try:
        with quiet():
            storage = storages.RDBStorage(url, engine_kwargs=wait)
        with suppress(KeyError):  # tables of other programs fail with another error
            storage.get_study_id_from_name("")
    except Exception as error:  # of SQLAlchemy; of Optuna if it cannot use the tables
        if is_file_error(error):
            raise store_error(make_url(url), error) from error
        reason = f"cannot keep searches ({first_line(error)})"
        raise JobStoreError(display_name(make_url(url)), reason, passing=False) from error
    return storage


@contextmanager
def quiet() -> Iterator[None]:
    """Hide Optuna's messages about new studies in this block."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def study_name(name: str) -> str:
    """Return the name of a search in the database, which other users may share."""
    return f"{this_machine().partition('@')[0]}/{name}"


def search_folder(name: str) -> Path:
    """Return the private folder of a search, created if needed."""
    folder = jobs_folder() / "searches" / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def exclusive(name: str) -> Iterator[Path]:
    """Lock a search in this block and return its folder.

    Raises
    ------
    RequestError
        If another process of this machine runs the search.
    """
    folder = search_folder(name)
    lock = try_lock(folder / "lock")
    if lock is None:
        allowed = "a search that no other process runs"
        advice = "wait until it has ended, or use another name"
        raise RequestError([Fault("name", repr(name), allowed, advice)])
    with lock:
        yield folder


#: Attributes of trials in the storage.
RESULT, VALUES = "result", "values"
INTERRUPTED, ENQUEUED, COPIED, CHUNK = "interrupted", "enqueued", "copied", "chunk"


def result_file(folder: Path, number: int) -> Path:
    """Return the file in which a worker writes the result of a trial."""
    return folder / f"trial-{number}.json"


def list_result_files(folder: Path) -> list[Path]:
    """Return the files in which workers have written results."""
    return list(folder.glob("trial-*.json"))


def is_interrupted(trial: Any) -> bool:
    """Return whether the process of a trial ended, so that its values run in another trial."""
    return bool(trial.user_attrs.get(INTERRUPTED))


def read_result(trial: Any) -> dict[str, Any]:
    """Return the stored result of a trial, as for :class:`TrialResult`; empty if it has none."""
    result: dict[str, Any] = trial.user_attrs.get(RESULT, {})
    return result


def read_values(trial: Any) -> dict[str, Any]:
    """Return the values of the parameters of a trial; those that JSON lacks are texts."""
    values: dict[str, Any] = trial.user_attrs.get(VALUES, {})
    return values


def enqueue(study: Any, stored: dict[str, Any]) -> None:
    """Let a later trial run with these values, as the database contains them."""
    study.enqueue_trial(stored, user_attrs={ENQUEUED: stored})


def tell(study: Any, trial: Any, result: TrialResult) -> None:
    """Record the result of a trial."""
    # Before the state: a trial that has ended cannot be changed.
    trial.set_user_attr(RESULT, asdict(result))
    states = need("optuna", "ml").trial.TrialState
    state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}
    values = result.value if result.state == "complete" else None
    study.tell(trial, values, state=state[result.state])


def settle(study: Any, frozen: Any, folder: Path | None) -> bool:
    """Record the result of a trial whose process ended, or enqueue its values again.

    Return whether there was a result.
    """
    optuna = need("optuna", "ml")
    storage = open_storage()
    study_id = storage.get_study_id_from_name(study.study_name)
    trial = optuna.Trial(
        study, storage.get_trial_id_from_study_id_trial_number(study_id, frozen.number)
    )
    result = None if folder is None else TrialResult.read(result_file(folder, frozen.number))
    if folder is not None and result is not None:
        tell(study, trial, result)
        return True
    trial.set_user_attr(INTERRUPTED, True)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    # A process may end after it took enqueued values, and before it stored them as parameters.
    values = frozen.params or frozen.user_attrs.get(ENQUEUED, {})
    if values:
        enqueue(study, values)
    return False


def as_json(value: Any) -> Any:
    """Return a value that JSON can contain, or its text."""
    is_plain = isinstance(value, (bool, int, float, str, type(None)))
    return value if is_plain else describe_value(value, MAX_TEXT)
