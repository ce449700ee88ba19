"""Text that says a time: which format, and how to convert it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.sources.filters import near
from hyperplane.errors import Fault, ReadError

_ISO = (
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
)


@dataclass(frozen=True)
class TimeFormat:
    """How a column of text is converted to times.

    Parameters
    ----------
    kind : polars.Datetime
        Into what.
    written : str, optional
        Format in the codes of Polars; ISO 8601 when there is none.
    """

    kind: pl.Datetime = field(default_factory=lambda: pl.Datetime("us"))
    written: str | None = None

    def converted(self, texts: pl.Series) -> pl.Series:
        """Times of texts.

        Raises
        ------
        pyarrow.ArrowInvalid, polars.exceptions.InvalidOperationError
            When one is not a time in this format.
        """
        if self.written is None:
            unit, zone = self.kind.time_unit, self.kind.time_zone
            arrow = texts.to_arrow().cast(pa.string()).cast(pa.timestamp(unit, zone))
            return pl.Series(texts.name, arrow)
        return texts.str.to_datetime(
            self.written, time_unit="us", time_zone=self.kind.time_zone, strict=True
        )


def asked(
    parse_dates: Any, kinds: Mapping[str, pl.DataType]
) -> tuple[dict[str, str | None], list[Fault]]:
    """Columns to be converted, with their formats where these are given, and what is wrong."""
    if parse_dates is None:
        return {}, []
    if not isinstance(parse_dates, (Mapping, list, tuple, set)):
        allowed = "a list of columns, or a mapping of column to format such as '%d/%m/%Y'"
        return {}, [Fault("parse_dates", repr(parse_dates)[:80], allowed)]
    faults = [
        Fault("parse_dates", repr(name), "a column of the files", near(str(name), kinds))
        for name in parse_dates
        if name not in kinds
    ]
    formats = parse_dates if isinstance(parse_dates, Mapping) else dict.fromkeys(parse_dates)
    return {name: form for name, form in formats.items() if name in kinds}, faults


def found(name: str, texts: pl.Series, written: str | None) -> TimeFormat | Fault:
    """The format in which a sample of texts can be read as times."""
    present = texts.drop_nulls()
    formats = []
    if written is None:
        for kind in _ISO:
            zone = kind.tz
            formats.append(TimeFormat(pl.Datetime(kind.unit, zone)))
        guess = pd.tseries.api.guess_datetime_format(present[0]) if len(present) else None
        written = guess
    if written is not None:
        zone = "UTC" if "%z" in written else None
        formats.append(TimeFormat(pl.Datetime("us", zone), written.replace(".%f", "%.f")))
    for one in formats:
        with suppress(pa.ArrowException, pl.exceptions.PolarsError):
            one.converted(present)
            return one
    return Fault(
        "parse_dates",
        f"{name}: {present[0]!r}",
        "times of one format in all rows",
        f"write parse_dates={{{name!r}: '%d.%m.%Y %H:%M'}} with the format that it has, "
        "or read it as text and use to_datetime",
    )


def column(texts: pl.Series, form: TimeFormat, url: str) -> pl.Series:
    """Times of texts of a file.

    Raises
    ------
    ReadError
        When one is not a time in this format.
    """
    try:
        return form.converted(texts)
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        first_line = str(error).splitlines()[0]
        wrong = (
            f"column {texts.name!r} holds what is no time in the format "
            f"{form.written or 'ISO 8601'} ({first_line}); "
            "leave it out of parse_dates and use to_datetime"
        )
        raise ReadError(url, wrong) from error
