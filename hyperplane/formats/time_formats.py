"""Find the format of times in text, and parse them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import Fault, ReadError
from hyperplane.formats.filters import describe_columns, is_column, suggest_similar

#: Maximum digits of a time since 1970 in each unit, to guess the unit.
_EPOCHS = ((11, "s"), (14, "ms"), (17, "us"))


@dataclass(frozen=True)
class TimeFormat:
    """A format of times in text.

    Parameters
    ----------
    kind : polars.Datetime
        The type of the parsed times.
    polars_format : str, optional
        The format in the codes of Polars; None for ISO 8601.
    """

    kind: pl.Datetime = field(default_factory=lambda: pl.Datetime("us"))
    polars_format: str | None = None

    @property
    def python_format(self) -> str:
        """The format in the codes of Python's ``strptime``; empty for ISO 8601."""
        return (self.polars_format or "").replace("%.f", ".%f")

    def parse(self, texts: pl.Series) -> pl.Series:
        """Parse texts into times.

        Raises
        ------
        pyarrow.ArrowInvalid, polars.exceptions.InvalidOperationError
            If a text is not a time in this format.
        """
        if self.polars_format is None:
            unit, zone = self.kind.time_unit, self.kind.time_zone
            arrow = texts.to_arrow().cast(pa.string()).cast(pa.timestamp(unit, zone))
            return pl.Series(texts.name, arrow)
        # Polars treats names such as ^x$ as patterns.
        times = texts.alias("texts").str.to_datetime(
            self.polars_format, time_unit="us", time_zone=self.kind.time_zone, strict=True
        )
        return times.alias(texts.name)


_ISO = tuple(TimeFormat(pl.Datetime(unit, zone)) for unit in ("us", "ns") for zone in (None, "UTC"))


def parse_dates_argument(
    parse_dates: Any, kinds: Mapping[str, pl.DataType]
) -> tuple[dict[str, str | None], list[Fault]]:
    """Parse ``parse_dates`` into columns with their formats (or None), and faults."""
    if parse_dates is None:
        return {}, []
    if not isinstance(parse_dates, (Mapping, list, tuple, set)):
        allowed = "a list of columns, or a mapping of column to format such as '%d/%m/%Y'"
        advice = f"write parse_dates=[{parse_dates!r}]" if isinstance(parse_dates, str) else ""
        return {}, [Fault("parse_dates", repr(parse_dates)[:80], allowed, advice)]
    faults = [
        Fault("parse_dates", repr(name), describe_columns(kinds), suggest_similar(name, kinds))
        for name in parse_dates
        if not is_column(name, kinds)
    ]
    named = [name for name in parse_dates if is_column(name, kinds)]
    if not isinstance(parse_dates, Mapping):
        return dict.fromkeys(named), faults
    formats = {name: parse_dates[name] for name in named}
    valid = {
        name: time_format
        for name, time_format in formats.items()
        if isinstance(time_format, str | None)
    }
    allowed = "a format such as '%d/%m/%Y', or None"
    faults += [
        Fault("parse_dates", f"{name}: {time_format!r}"[:80], allowed)
        for name, time_format in formats.items()
        if name not in valid
    ]
    return valid, faults


def find_format(name: str, texts: pl.Series, python_format: str | None) -> TimeFormat | Fault:
    """Return a format that parses a sample of texts as times, or a fault."""
    present = texts.drop_nulls()
    formats = [_make_format(python_format)] if python_format is not None else list(_ISO)
    if python_format is None and len(present):
        formats += _guess_formats(present[0])[:1]
    lengths = []
    for time_format in formats:
        lengths.append(_count_parsed(time_format, present))
        if lengths[-1] == len(present):
            return time_format
    parsed = max(lengths)
    time_format, bad = formats[lengths.index(parsed)], present[parsed]
    if python_format is None and not parsed:
        allowed = "a time in ISO 8601, or in the format given by parse_dates"
    else:
        description = (
            f"the format {time_format.python_format!r}" if time_format.polars_format else "ISO 8601"
        )
        allowed = f"a time in {description}{', like the values before it' if parsed else ''}"
    return Fault("parse_dates", f"{name}: {bad!r}", allowed, _suggest_fix(name, present, bad))


def _make_format(python_format: str) -> TimeFormat:
    zone = "UTC" if "%z" in python_format else None
    return TimeFormat(pl.Datetime("us", zone), python_format.replace(".%f", "%.f"))


def _guess_formats(text: str) -> list[TimeFormat]:
    """Return the formats that pandas guesses for a text, month first and day first."""
    with warnings.catch_warnings():
        # It warns about ambiguous days; all values are checked with each format below.
        warnings.simplefilter("ignore", UserWarning)
        guesses = [
            pd.tseries.api.guess_datetime_format(text, dayfirst=first) for first in (False, True)
        ]
    return [_make_format(guess) for guess in dict.fromkeys(guesses) if guess is not None]


def _count_parsed(time_format: TimeFormat, texts: pl.Series) -> int:
    """Return the number of leading texts that are times in the format, by bisection."""
    low, high = 0, len(texts) + 1
    while high - low > 1:
        # Try all texts first, which usually succeeds.
        middle = len(texts) if high == len(texts) + 1 and not low else (low + high) // 2
        try:
            time_format.parse(texts[:middle])
            low = middle
        except (pa.ArrowException, pl.exceptions.PolarsError):
            high = middle
    return low


def _suggest_fix(name: str, texts: pl.Series, bad: str) -> str:
    for time_format in [*_guess_formats(texts[0]), *_guess_formats(bad)]:
        if _count_parsed(time_format, texts) == len(texts):
            return f"write parse_dates={{{name!r}: {time_format.python_format!r}}}"
    seconds = re.fullmatch(r"-?(\d+)(\.\d+)?", bad.strip())
    if seconds:
        unit = next((unit for length, unit in _EPOCHS if len(seconds[1]) <= length), "ns")
        return (
            f"leave it out of parse_dates, and convert the numbers with "
            f"to_datetime(df, {name!r}, unit={unit!r})"
        )
    return (
        f"leave it out of parse_dates, and use to_datetime(df, {name!r}), which takes a format=, "
        "dayfirst= and mixed formats, and can turn invalid values into missing ones"
    )


def parse_column(
    texts: pl.Series, time_format: TimeFormat, url: str, locate_row: Callable[[int], str]
) -> pl.Series:
    """Parse a column of texts of a file into times.

    ``locate_row`` returns a description of the line of a row.

    Raises
    ------
    ReadError
        If a text is not a time in this format.
    """
    try:
        return time_format.parse(texts)
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        row = _count_parsed(time_format, texts)
        present = texts.drop_nulls()
        message = (
            f"column {texts.name!r} holds {texts[row]!r}, which is not a time in the format "
            f"{time_format.python_format or 'ISO 8601'} ({locate_row(row)}); "
            f"{_suggest_fix(texts.name, present, texts[row])}"
        )
        raise ReadError(url, message) from error
