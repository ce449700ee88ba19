"""Function calls submitted as jobs: stored in the job's folder, executed by a step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle

from hyperplane.errors import JobError
from hyperplane.jobs.states import Job

#: Module that the step runs with ``python -m``; stored in job definitions.
PROGRAM = "hyperplane.jobs.calls"
_CALL, _RESULT = "call.pickle", "result.pickle"


def save_call(made: Job, call: tuple[Any, ...]) -> None:
    """Save a function with its positional and keyword arguments for the step."""
    made.place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(made.place / _CALL, call)


def is_function_job(made: Job) -> bool:
    """Whether a job runs a submitted function."""
    return (made.place / _CALL).exists()


def load_result(made: Job) -> Any:
    """Load what the function of a job returned."""
    try:
        return cloudpickle.loads((made.place / _RESULT).read_bytes())
    except FileNotFoundError:
        raise JobError(made.id, f"no result of the function in {made.place}") from None


def _write(path: Path, value: Any) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(cloudpickle.dumps(value))
    draft.replace(path)


def _run_call() -> None:
    """Run the function of the job that this process is a step of."""
    place = Path(os.environ["HYPERPLANE_JOB_FOLDER"])
    function, arguments, named = cloudpickle.loads((place / _CALL).read_bytes())
    _write(place / _RESULT, function(*arguments, **named))


if __name__ == "__main__":
    _run_call()
