"""What the resolvers of one request share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hyperplane.core.errors import Fault, check
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import open_store

#: Most jobs in all lists of one query. A list of 1,000 with 20 fields takes 0.4 s.
MOST_JOBS_OF_QUERY = 2_000


class StoreSnapshot:
    """Jobs of the store, which are read once: 200 counts in one query took a minute.

    Lists and counts of one query agree, too.
    """

    def __init__(self) -> None:
        self._jobs: dict[str | None, Sequence[Job]] = {}

    def read(self, status: str | None = None) -> Sequence[Job]:
        """Return the jobs of a status, or all, most recently submitted or resumed first."""
        if status not in self._jobs:
            statuses = None if status is None else [status]
            self._jobs[status] = open_store().find(statuses=statuses)
        return self._jobs[status]


@dataclass
class RequestContext:
    """Context of one request.

    Parameters
    ----------
    folder : Path
        Folder that paths of pipelines are relative to.
    warnings : list of str
        Possible mistakes in the jobs that were submitted, for the ``extensions`` of the response.
    """

    folder: Path
    warnings: list[str] = field(default_factory=list)
    #: Lists and counts of one query read the store one after the other.
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listed: int = 0
    jobs: StoreSnapshot = field(default_factory=StoreSnapshot)

    def count_jobs(self, number: int) -> None:
        """Add the jobs of a list to those of the query.

        Raises
        ------
        RequestError
            If they are too many together, then and for each later list.
        """
        self._listed += number
        if self._listed > MOST_JOBS_OF_QUERY:
            given = f"more than {MOST_JOBS_OF_QUERY:,} jobs in the lists of one query"
            advice = "give take, or send several queries"
            check([Fault("pipelineJobs", given, f"at most {MOST_JOBS_OF_QUERY:,}", advice)])
