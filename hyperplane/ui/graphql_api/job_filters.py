"""Filters and the order of lists of jobs."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import strawberry
from strawberry import UNSET

from hyperplane.core.errors import Fault, check
from hyperplane.jobs.store.job_records import Job
from hyperplane.ui.graphql_api.context import StoreSnapshot
from hyperplane.ui.graphql_api.filter_checks import filter_faults, given_fields
from hyperplane.ui.graphql_api.job_types import IMMEDIATE, to_time

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
    """Conditions of a text; all of them must hold."""

    equals: str | None = UNSET
    in_: list[str] | None = strawberry.field(name="in", default=UNSET)
    not_in: list[str] | None = UNSET
    not_: str | None = strawberry.field(name="not", default=UNSET)
    contains: str | None = UNSET
    starts_with: str | None = UNSET
    ends_with: str | None = UNSET
    mode: QueryMode | None = UNSET

    def matches(self, text: str) -> bool:
        """Return whether a text meets the conditions."""
        fold = str.casefold if self.mode is QueryMode.insensitive else str
        value = fold(text)
        for name, given in given_fields(self).items():
            if name != "mode":
                folded = [*map(fold, given)] if isinstance(given, list) else fold(given)
                if not _TEXT_COMPARISONS[name](value, folded):
                    return False
        return True


#: Comparisons of a text with the value of a condition.
_TEXT_COMPARISONS: dict[str, Callable[[str, Any], bool]] = {
    "equals": operator.eq, "not_": operator.ne, "contains": operator.contains,
    "in_": lambda value, given: value in given, "not_in": lambda value, given: value not in given,
    "starts_with": str.startswith, "ends_with": str.endswith,
}  # fmt: skip


@strawberry.input
class DateTimeFilter:
    """Conditions of a time as responses have it, in milliseconds; all of them must hold."""

    equals: datetime | None = UNSET
    lt: datetime | None = UNSET
    lte: datetime | None = UNSET
    gt: datetime | None = UNSET
    gte: datetime | None = UNSET

    def matches(self, seconds: float) -> bool:
        """Return whether a time meets the conditions; one that has not come meets none."""
        time = to_time(seconds) if seconds > 0 else None
        return time is not None and all(
            _ORDER_COMPARISONS[name](time, given if given.tzinfo else given.replace(tzinfo=UTC))
            for name, given in given_fields(self).items()
        )


_ORDER_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": operator.eq, "lt": operator.lt, "lte": operator.le, "gt": operator.gt,
    "gte": operator.ge,
}  # fmt: skip


@strawberry.input
class IntFilter:
    """Conditions of a number; all of them must hold."""

    equals: int | None = UNSET
    in_: list[int] | None = strawberry.field(name="in", default=UNSET)
    not_: int | None = strawberry.field(name="not", default=UNSET)
    lt: int | None = UNSET
    lte: int | None = UNSET
    gt: int | None = UNSET
    gte: int | None = UNSET

    def matches(self, number: float) -> bool:
        """Return whether a number meets the conditions."""
        return all(
            _NUMBER_COMPARISONS[name](number, given) for name, given in given_fields(self).items()
        )


_NUMBER_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    **_ORDER_COMPARISONS, "not_": operator.ne, "in_": lambda value, given: value in given,
}  # fmt: skip


@strawberry.input
class PipelineJobWhereInput:
    """Conditions of jobs; all of them must hold."""

    WITHOUT_EFFECT: ClassVar = frozenset({"hyperplane_user_email"})

    AND: list[PipelineJobWhereInput] | None = strawberry.field(name="AND", default=UNSET)
    OR: list[PipelineJobWhereInput] | None = strawberry.field(name="OR", default=UNSET)
    NOT: list[PipelineJobWhereInput] | None = strawberry.field(name="NOT", default=UNSET)
    id: StringFilter | None = UNSET
    job_name: StringFilter | None = UNSET
    job_type: StringFilter | None = UNSET
    status: StringFilter | None = UNSET
    schedule: StringFilter | None = UNSET
    start_time: DateTimeFilter | None = UNSET
    completion_time: DateTimeFilter | None = UNSET
    timeout: IntFilter | None = UNSET
    active_timeout: IntFilter | None = UNSET
    max_retries: IntFilter | None = UNSET
    hyperplane_user_email: StringFilter | None = strawberry.field(
        default=UNSET, description="Of the platform; has no effect here."
    )

    @property
    def nested(self) -> Iterator[PipelineJobWhereInput]:
        """The filter itself and all filters in it."""
        yield self
        for each in (*(self.AND or ()), *(self.OR or ()), *(self.NOT or ())):
            yield from each.nested

    def matches(self, job: Job) -> bool:
        """Return whether a job meets the conditions."""
        given = given_fields(self)
        return (
            all(given[name].matches(_text_of(job, text))
                for name, text in _TEXTS.items() if name in given)
            and all(given[name].matches(getattr(job, field))
                    for name, field in _NUMBERS.items() if name in given)
            and all(each.matches(job) for each in self.AND or ())
            and ("OR" not in given or any(each.matches(job) for each in given["OR"]))
            and not any(each.matches(job) for each in self.NOT or ())
        )  # fmt: skip


#: Attributes of jobs that the conditions compare.
_TEXTS = {"id": "id", "job_name": "name", "job_type": "job_type", "status": "status",
          "schedule": "schedule"}  # fmt: skip
_NUMBERS = {"start_time": "requested", "completion_time": "ended", "timeout": "timeout",
            "active_timeout": "active_timeout", "max_retries": "max_retries"}  # fmt: skip


@strawberry.input
class PipelineJobOrderByWithRelationInput:
    """Order of jobs, by one field."""

    pinned: JobOrder | None = strawberry.field(
        default=None, description="Has no effect, as no job is pinned here."
    )
    start_time: JobOrder | None = None
    completion_time: JobOrder | None = None
    job_name: JobOrder | None = None
    status: JobOrder | None = None

    def sort(self, jobs: list[Job]) -> None:
        """Sort jobs; those that are equal keep their order."""
        named = {"requested": self.start_time, "ended": self.completion_time,
                 "name": self.job_name, "status": self.status}  # fmt: skip
        for field, order in reversed(named.items()):
            if order is not None:
                jobs.sort(key=operator.attrgetter(field), reverse=order is JobOrder.desc)


def find_jobs(
    snapshot: StoreSnapshot,
    where: PipelineJobWhereInput | None,
    argument: str = "where",
    *,
    strict: bool = False,
) -> list[Job]:
    """Return the jobs that meet the conditions, most recently submitted or resumed first.

    Raises
    ------
    RequestError
        If a condition is null, or, if the check is strict, empty.
    """
    if where is None:
        return [*snapshot.read()]
    count = sum(1 for _ in where.nested)
    if count > _MOST_CONDITIONS:
        check([Fault(argument, f"{count} conditions", f"at most {_MOST_CONDITIONS}")])
    check(filter_faults(where, argument, strict=strict))
    # Most jobs of a store have ended: those of a status are selected by the database.
    status = where.status
    exact = status and status.equals and status.mode is UNSET
    jobs = snapshot.read(status.equals if exact and status and status.equals else None)
    return [job for job in jobs if where.matches(job)]


def list_jobs(
    snapshot: StoreSnapshot,
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
    jobs = find_jobs(snapshot, where)
    for order in reversed(order_by or ()):
        order.sort(jobs)
    first = skip or 0
    return jobs[first : first + (MOST_JOBS if take is None else take)]


def _text_of(job: Job, name: str) -> str:
    return str(getattr(job, name)) or (IMMEDIATE if name == "schedule" else "")
