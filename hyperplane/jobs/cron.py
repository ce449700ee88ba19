"""Parse and validate cron expressions of five fields."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hyperplane.core.errors import Fault, RequestError, check

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {
    name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
}
#: Name of the field, lowest and highest number, and names of values.
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
#: Common abbreviations of five fields.
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ITEM = re.compile(r"(\*|[a-z]+|\d+)(?:-([a-z]+|\d+))?(?:/(\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class CronExpression:
    """A validated cron expression.

    Parameters
    ----------
    text : str
        The five fields separated by single blanks.
    warning : str
        How an expression written without blanks is read; empty for other expressions.
    """

    text: str
    warning: str = ""


def parse_cron(text: str) -> CronExpression:
    """Parse and validate a cron expression.

    Parameters
    ----------
    text : str
        Minute, hour, day of the month, month and day of the week.

    Raises
    ------
    RequestError
        With every fault.

    Examples
    --------
    >>> parse_cron("*/30 8-18 * * mon-fri").text
    '*/30 8-18 * * mon-fri'
    >>> parse_cron("*/30***").text
    '*/30 * * * *'
    """
    fields, warning = text.split(), ""
    if len(fields) == 1 and re.fullmatch(r"(\*(/\d+)?){4,5}", fields[0]):
        fields = re.findall(r"\*(?:/\d+)?", fields[0])
        fields += ["*"] * (5 - len(fields))
        read_as = " ".join(fields)
        warning = f"--cron {text.strip()!r} is read as {read_as!r}; put blanks between the fields"
    if len(fields) != 5:
        replacement = _NICKNAMES.get(text.strip().lower())
        allowed = "five fields: minute, hour, day of the month, month, day of the week"
        advice = f"write {replacement!r}" if replacement else "'*/30 * * * *' is every half hour"
        raise RequestError([Fault("--cron", repr(text), allowed, advice)])
    faults: list[Fault] = []
    values = [
        _parse_field(field, *bounds, faults) for field, bounds in zip(fields, _FIELDS, strict=True)
    ]
    if not faults and not _has_matching_day(fields, values):
        allowed = "a day that exists"
        advice = f"none of these months has a day {fields[2]}"
        faults.append(Fault("--cron", repr(text), allowed, advice))
    check(faults)
    return CronExpression(" ".join(fields), warning)


def _parse_field(
    field: str, name: str, low: int, high: int, names: dict[str, int], faults: list[Fault]
) -> set[int]:
    """Return all numbers that a field matches."""
    numbers = f"numbers from {low} to {high}" + (f" or {', '.join(names)}" if names else "")
    matching: set[int] = set()

    def add_fault(asked: str, allowed: str, advice: str = "") -> None:
        faults.append(Fault(f"--cron, {name}", repr(asked), allowed, advice))

    for item in field.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            add_fault(item, f"*, {numbers}, ranges as 1-5, steps as */2, and lists of them")
            continue
        first, last, step = match.groups()
        begin = low if first == "*" else _parse_number(first, names)
        end = _parse_number(last, names) if last else (high if first == "*" else begin)
        if begin is None or end is None or not (low <= begin <= high and low <= end <= high):
            add_fault(item, numbers)
        elif first == "*" and last:
            add_fault(item, "a range of numbers", f"write {first}")
        elif begin > end:
            add_fault(item, "an ascending range", f"write {first}-{high},{low}-{last}")
        elif step and first != "*" and not last:
            add_fault(item, "a step of a range", f"write {first}-{high}/{step}")
        elif step and not 1 <= int(step) <= max(1, end - begin):
            add_fault(item, f"a step from 1 to {max(1, end - begin)}")
        else:
            matching.update(range(begin, end + 1, int(step or 1)))
    return matching


def _parse_number(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdecimal() else names.get(text.lower())


def _has_matching_day(fields: Sequence[str], values: Sequence[set[int]]) -> bool:
    """Whether the expression matches any date; days of the week occur in every month."""
    if fields[4] != "*":
        return True
    return min(values[2]) <= max(calendar.monthrange(2024, month)[1] for month in values[3])
