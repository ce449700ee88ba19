"""``python -m hyperplane.jobs.calls``: run a function call that was submitted as a job.

The call and its result are pickles in the job's folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle

from hyperplane.core.errors import JobError
from hyperplane.jobs.pickled_calls import OtherVersionError, unpickle
from hyperplane.jobs.store.job_records import Job

#: Module that the step runs with ``python -m``; stored in job definitions.
PROGRAM = "hyperplane.jobs.calls"
_CALL, _RESULT = "call.pickle", "result.pickle"


def save_call(job: Job, call: tuple[Any, ...]) -> None:
    """Save a function with its positional and keyword arguments for the step."""
    job.folder_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(job.folder_path / _CALL, call)


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


def _write(path: Path, value: Any) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(cloudpickle.dumps(value))
    draft.replace(path)


def _run_call() -> None:
    """Run the function of the job that this process is a step of."""
    folder = Path(os.environ["HYPERPLANE_JOB_FOLDER"])
    function, arguments, named = unpickle((folder / _CALL).read_bytes())
    _write(folder / _RESULT, function(*arguments, **named))


if __name__ == "__main__":
    _run_call()
