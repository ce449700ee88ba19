"""Id of the job of an attempt in a service, stored beside its files before and after its creation.

The file is written before the request, so that a supervisor that is killed before it has the answer
finds the job by its name, and does not create another one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Self

from hyperplane.jobs.execution.attempt_process import AttemptCommand

#: Seconds after which a creation without an answer cannot appear in the list of jobs any more.
UNCONFIRMED_SECONDS = 120.0


@dataclass(frozen=True)
class ServiceJobId:
    """Name and id of the job of an attempt; base of those of each service.

    Parameters
    ----------
    name : str
        Name that the attempt gives to its job.
    id : str
        Id of the job; empty until the answer to its creation.
    written : float
        Time when the creation was sent or, if there was no answer, given up.
    """

    name: str
    id: str = field(default="", kw_only=True)
    written: float = field(default=0.0, kw_only=True)

    #: Suffix of the file.
    suffix: ClassVar[str]

    def task_id(self) -> str:
        """Return the id of what runs the attempt."""
        return self.id

    def may_appear(self) -> bool:
        """Whether a creation without an answer may still become visible."""
        return time.time() - self.written < UNCONFIRMED_SECONDS

    def with_id(self, job_id: str) -> Self:
        """Return a copy with the id of the job."""
        return replace(self, id=job_id)

    def write(self, command: AttemptCommand) -> None:
        """Store it beside the files of an attempt."""
        draft = command.file(f"{self.suffix}.draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(command.file(self.suffix))

    @classmethod
    def read(cls, command: AttemptCommand) -> Self | None:
        """Return what is stored beside the files of an attempt; None if nothing was sent."""
        try:
            return cls(**json.loads(command.file(cls.suffix).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def forget(cls, command: AttemptCommand) -> None:
        """Remove what is stored beside the files of an attempt."""
        command.file(cls.suffix).unlink(missing_ok=True)
