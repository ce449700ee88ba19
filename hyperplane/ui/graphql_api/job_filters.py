"""Filters and the order of lists of jobs."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import strawberry

from hyperplane.core.errors import Fault, check
from hyperplane.jobs.store.job_records import Job
from hyperplane.jobs.store.jobs_home import open_store
from hyperplane.ui.graphql_api.job_types import IMMEDIATE

#: Most jobs of one list, and most conditions of one filter.
MOST_JOBS = 1_000
_MOST_CONDITIONS = 200


@strawberry.enum
class QueryMode(enum.Enum):
    """Whether upper and lower case differ."""

    default = "default"
    insensitive = "insensitive"


@strawberry.enum(name="SortOrder")
class JobOrder(enum.Enum):
    """Direction of an order."""

    asc = "asc"
    desc = "desc"


@strawberry.input
class StringFilter:
    """Conditions of a text; all of them must hold, and null ones do."""

    equals: str | None = None
    in_: list[str] | None = strawberry.field(name="in", default=None)
    not_in: list[str] | None = None
    not_: str | None = strawberry.field(name="not", default=None)
    contains: str | None = None
    starts_with: str | None = None
    ends_with: str | None = None
    mode: QueryMode | None = None

    def matches(self, text: str) -> bool:
        """Return whether a text meets the conditions."""
        fold = str.casefold if self.mode is QueryMode.insensitive else str
        value = fold(text)
        return (
            (self.equals is None or value == fold(self.equals))
            and (self.in_ is None or value in map(fold, self.in_))
            and (self.not_in is None or value not in map(fold, self.not_in))
            and (self.not_ is None or value != fold(self.not_))
            and (self.contains is None or fold(self.contains) in value)
            and (self.starts_with is None or value.startswith(fold(self.starts_with)))
            and (self.ends_with is None or value.endswith(fold(self.ends_with)))
        )


@strawberry.input
class DateTimeFilter:
    """Conditions of a time; all of them must hold, and null ones do."""

    equals: datetime | None = None
    lt: datetime | None = None
    lte: datetime | None = None
    gt: datetime | None = None
    gte: datetime | None = None

    def matches(self, seconds: float) -> bool:
        """Return whether a time meets the conditions; one that has not come meets none."""
        comparisons: dict[Callable[[float, float], bool], datetime | None] = {
            operator.eq: self.equals, operator.lt: self.lt, operator.le: self.lte,
            operator.gt: self.gt, operator.ge: self.gte,
        }  # fmt: skip
        given = {compare: each for compare, each in comparisons.items() if each is not None}
        return not given or (
            seconds > 0 and all(compare(seconds, _seconds(each)) for compare, each in given.items())
        )


@strawberry.input
class PipelineJobWhereInput:
    """Conditions of jobs; all of them must hold, and null ones do."""

    AND: list[PipelineJobWhereInput] | None = strawberry.field(name="AND", default=None)
    OR: list[PipelineJobWhereInput] | None = strawberry.field(name="OR", default=None)
    NOT: list[PipelineJobWhereInput] | None = strawberry.field(name="NOT", default=None)
    id: StringFilter | None = None
    job_name: StringFilter | None = None
    job_type: StringFilter | None = None
    status: StringFilter | None = None
    schedule: StringFilter | None = None
    start_time: DateTimeFilter | None = None
    completion_time: DateTimeFilter | None = None
    hyperplane_user_email: StringFilter | None = strawberry.field(
        default=None, description="Of the platform; has no effect here."
    )

    @property
    def nested(self) -> Iterator[PipelineJobWhereInput]:
        """The filter itself and all filters in it."""
        yield self
        for each in (*(self.AND or ()), *(self.OR or ()), *(self.NOT or ())):
            yield from each.nested

    @property
    def has_conditions(self) -> bool:
        """Whether there is a condition on a field of jobs, other than one without effect."""
        return any(each._texts or each._times for each in self.nested)

    @property
    def _texts(self) -> dict[str, StringFilter]:
        named = {"id": self.id, "name": self.job_name, "job_type": self.job_type,
                 "status": self.status, "schedule": self.schedule}  # fmt: skip
        return {name: each for name, each in named.items() if each is not None}

    @property
    def _times(self) -> dict[str, DateTimeFilter]:
        named = {"submitted": self.start_time, "ended": self.completion_time}
        return {name: each for name, each in named.items() if each is not None}

    def matches(self, job: Job) -> bool:
        """Return whether a job meets the conditions."""
        return (
            all(each.matches(_text_of(job, name)) for name, each in self._texts.items())
            and all(each.matches(getattr(job, name)) for name, each in self._times.items())
            and all(each.matches(job) for each in self.AND or ())
            and (self.OR is None or any(each.matches(job) for each in self.OR))
            and not any(each.matches(job) for each in self.NOT or ())
        )


@strawberry.input
class PipelineJobOrderByWithRelationInput:
    """Order of jobs, by one field."""

    start_time: JobOrder | None = None
    completion_time: JobOrder | None = None
    job_name: JobOrder | None = None
    status: JobOrder | None = None

    def sort(self, jobs: list[Job]) -> None:
        """Sort jobs; those that are equal keep their order."""
        named = {"submitted": self.start_time, "ended": self.completion_time,
                 "name": self.job_name, "status": self.status}  # fmt: skip
        for field, order in reversed(named.items()):
            if order is not None:
                jobs.sort(key=operator.attrgetter(field), reverse=order is JobOrder.desc)


def find_jobs(where: PipelineJobWhereInput | None) -> list[Job]:
    """Return the jobs that meet the conditions, most recently submitted first."""
    store = open_store()
    if where is None:
        return store.find()
    count = sum(1 for _ in where.nested)
    if count > _MOST_CONDITIONS:
        check([Fault("where", f"{count} conditions", f"at most {_MOST_CONDITIONS}")])
    # Most jobs of a store have ended: those of a status are selected by the database.
    status = where.status
    exact = status is not None and status.equals is not None and status.mode is None
    statuses = [status.equals] if exact and status is not None and status.equals else None
    return [job for job in store.find(statuses=statuses) if where.matches(job)]


def list_jobs(
    where: PipelineJobWhereInput | None,
    order_by: list[PipelineJobOrderByWithRelationInput] | None,
    take: int | None,
    skip: int | None,
) -> list[Job]:
    """Return a part of the jobs that meet the conditions."""
    faults = []
    if take is not None and not 0 <= take <= MOST_JOBS:
        faults.append(Fault("take", str(take), f"a number from 0 to {MOST_JOBS}"))
    if skip is not None and skip < 0:
        faults.append(Fault("skip", str(skip), "a number that is not negative"))
    check(faults)
    jobs = find_jobs(where)
    for order in reversed(order_by or ()):
        order.sort(jobs)
    first = skip or 0
    return jobs[first : first + (MOST_JOBS if take is None else take)]


def _text_of(job: Job, name: str) -> str:
    return str(getattr(job, name)) or (IMMEDIATE if name == "schedule" else "")


def _seconds(value: datetime) -> float:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
