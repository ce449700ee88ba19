"""Selection of records by name, text and time."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import parse_seconds
from hyperplane.history.run_record import RunRecord

TIME_FORM = (
    "a date and time such as '2026-11-27' or '2026-11-27T16:00', or a duration such as '7 days'"
)


@dataclass(frozen=True)
class RunSelection:
    """Conditions that a record meets; None for those that do not matter."""

    name: str | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None
    limit: int | None = None

    @classmethod
    def parse(cls, name: Any, text: Any, since: Any, until: Any, limit: Any) -> Self:
        """Check the arguments of a call.

        Raises
        ------
        RequestError
            With every fault.
        """
        faults = find_text_faults((("name", name), ("text", text)))
        times: dict[str, float | None] = {}
        for argument, value in (("since", since), ("until", until)):
            try:
                times[argument] = None if value is None else parse_time(value)
            except ValueError:
                faults.append(Fault(argument, describe_value(value), TIME_FORM))
        check([*faults, *find_limit_faults(limit)])
        wanted = None if text is None else text.casefold()
        return cls(name, wanted, times["since"], times["until"], limit)

    def contains(self, record: RunRecord) -> bool:
        """Return whether a record meets the conditions."""
        return (
            (self.name is None or self.name in _list_names(record))
            and (self.since is None or record.started >= self.since)
            and (self.until is None or record.started <= self.until)
            and (
                self.text is None
                or any(self.text in each.casefold() for each in _list_texts(record))
            )
        )


def find_text_faults(arguments: Iterable[tuple[str, Any]]) -> list[Fault]:
    """Return the faults of arguments, by their names, that are neither text nor None."""
    return [
        Fault(name, describe_value(value), "text or None")
        for name, value in arguments
        if value is not None and not isinstance(value, str)
    ]


def find_limit_faults(limit: Any) -> list[Fault]:
    """Return the fault of a maximum number of records."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is None or (is_number and 1 <= limit < 2**31):
        return []
    return [Fault("limit", describe_value(limit), "a whole number of at least 1, or None")]


def _list_names(record: RunRecord) -> set[str]:
    names = {record.name, record.cluster, record.program, record.pipeline, record.label}
    if record.step:
        names.add(f"{record.pipeline}/{record.step}")
    return names - {""}


def _list_texts(record: RunRecord) -> Iterator[str]:
    yield from _list_names(record)
    yield from (record.step, record.job, record.exit_reason, record.plan.engine, record.plan.pool)
    yield from (task.name for task in record.tasks)


def parse_time(value: Any) -> float:
    """Return seconds since 1970.

    Raises
    ------
    ValueError
        If the value is no time of the years 1 to 9999.
    """
    if isinstance(value, dt.datetime):
        return value.timestamp()
    if not isinstance(value, str):
        raise ValueError(value)
    try:
        return dt.datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        earlier = time.time() - parse_seconds(value)
    try:
        return dt.datetime.fromtimestamp(earlier, dt.UTC).timestamp()
    except (OverflowError, OSError) as error:
        raise ValueError(value) from error
