"""``python -m hyperplane.jobs.calls``: run a function call that was submitted as a job.

The call and its result are pickles in the job's folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from hyperplane.core.errors import JobError, RequestError
from hyperplane.core.pickling import find_pickle_faults
from hyperplane.core.public_calls import stating_outcome
from hyperplane.core.tracebacks import keeps_all_frames, walk_traceback
from hyperplane.jobs.call_sources import format_error, pickle_with_sources
from hyperplane.jobs.pickled_calls import OtherVersionError, unpickle
from hyperplane.jobs.store.job_records import Job

#: Module that the step runs with ``python -m``; stored in job definitions.
PROGRAM = "hyperplane.jobs.calls"
_CALL, _RESULT, _SOURCES = "call.pickle", "result.pickle", "call-sources.json"


def save_call(job: Job, call: tuple[Any, ...]) -> None:
    """Save a function with its positional and keyword arguments for the step.

    Raises
    ------
    RequestError
        With each variable and argument that cannot be pickled.
    """
    data, sources = _pickle_call(*call)
    job.folder_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (job.folder_path / _SOURCES).write_text(sources, encoding="utf-8")
    _write(job.folder_path / _CALL, data)


def _pickle_call(
    function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[bytes, str]:
    try:
        return pickle_with_sources((function, arguments, named))
    except Exception as error:  # __reduce__ of any class may run
        values = {f"args[{number}]": value for number, value in enumerate(arguments)}
        values.update(named)
        faults = find_pickle_faults("function", function, receiver="the job")
        for name, value in values.items():
            faults += find_pickle_faults(name, value, receiver="the job")
        if not faults:
            raise
        with stating_outcome("nothing was submitted"):
            raise RequestError(faults) from error


def is_function_job(job: Job) -> bool:
    """Whether a job runs a submitted function."""
    return (job.folder_path / _CALL).exists()


def load_result(job: Job) -> Any:
    """Load the return value of a job's function."""
    try:
        return unpickle((job.folder_path / _RESULT).read_bytes())
    except FileNotFoundError:
        message = f"the result of the function is not in {job.folder_path}; submit it again"
        raise JobError(job.id, message) from None
    except OtherVersionError as error:
        raise JobError(job.id, f"the result cannot be read: {error}") from error


def _write(path: Path, data: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(data)
    draft.replace(path)


def _run_call() -> None:
    """Run the function of the job that this process is a step of."""
    folder = Path(os.environ["HYPERPLANE_JOB_FOLDER"])
    if not keeps_all_frames():
        sys.excepthook = _print_error
    function, arguments, named = unpickle((folder / _CALL).read_bytes())
    result = function(*arguments, **named)
    try:
        data = cloudpickle.dumps(result)
    except MemoryError:  # an attempt with more memory may pickle it
        raise
    except Exception as error:  # noqa: BLE001 - __reduce__ of any class may run
        # Here, so that the log has no frame below this function.
        raise TypeError(_describe_result(result, error)) from None
    _write(folder / _RESULT, data)


def _describe_result(result: Any, error: Exception) -> str:
    """Return why a result cannot be pickled, and what to do."""
    text = ""
    with suppress(Exception):  # __str__ of any class may run
        text = str(error)
    reason = " ".join(text.split()) or type(error).__name__
    return (
        f"the function has ended, but its result of type {type(result).__name__} cannot be "
        f"pickled: {reason}; return plain values or data, or save them within the function, "
        "for example with hyperplane.save"
    )


def _print_error(kind: type[BaseException], error: BaseException, first: Any) -> None:
    """Print an error with the frames of the user; a hook of the interpreter."""
    del kind
    own = [node for node in walk_traceback(first) if node.tb_frame.f_code is _run_call.__code__]
    below: TracebackType | None = own[-1].tb_next if own else first
    sources = Path(os.environ["HYPERPLANE_JOB_FOLDER"]) / _SOURCES
    sys.stderr.write(format_error(error, below, sources))


if __name__ == "__main__":
    _run_call()
