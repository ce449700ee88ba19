"""Name of the custom job of an attempt, stored beside its files before and after its creation.

The file is written before the request, so that a supervisor that is killed before it has the answer
finds the job by its display name, and does not create another one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

from hyperplane.jobs.execution.attempt_process import AttemptCommand

_SUFFIX = ".vertex"
#: Seconds after which a creation without an answer cannot appear in the list of jobs any more.
UNCONFIRMED_SECONDS = 120.0


@dataclass(frozen=True)
class VertexJobId:
    """Display name and name of the job of an attempt.

    Parameters
    ----------
    display_name : str
        Its display name, which is unique because it is that of the attempt.
    prefix : str
        Beginning of the display names of all attempts of the job of hyperplane.
    name : str
        Name of the custom job, as ``projects/.../customJobs/...``; empty until the answer to its
        creation.
    written : float
        Time when the request was sent.
    """

    display_name: str
    prefix: str
    name: str = ""
    written: float = 0.0

    @property
    def number(self) -> str:
        """Number of the job, which its log has; empty until the answer."""
        return self.name.rpartition("/")[2]

    def may_appear(self) -> bool:
        """Whether a creation without an answer may still become visible."""
        return time.time() - self.written < UNCONFIRMED_SECONDS

    def with_name(self, name: str) -> VertexJobId:
        """Return a copy with the name of the job."""
        return replace(self, name=name)

    def write(self, command: AttemptCommand) -> None:
        """Store it beside the files of an attempt."""
        draft = command.file(f"{_SUFFIX}.draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(command.file(_SUFFIX))


def read_job_id(command: AttemptCommand) -> VertexJobId | None:
    """Return what is stored beside the files of an attempt; None if nothing was sent."""
    try:
        return VertexJobId(**json.loads(command.file(_SUFFIX).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def forget_job_id(command: AttemptCommand) -> None:
    """Remove what is stored beside the files of an attempt."""
    command.file(_SUFFIX).unlink(missing_ok=True)
