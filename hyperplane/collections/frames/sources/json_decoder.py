"""JSON lines as columns of known types: by pyarrow, and line by line where that says no."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from hyperplane.collections.frames.sources import json_types, text_errors, times
from hyperplane.collections.frames.sources.csv import BLOCK, LARGE_BLOCK
from hyperplane.collections.frames.sources.spans import Span
from hyperplane.collections.frames.sources.times import TimeFormat
from hyperplane.errors import ReadError


@dataclass(frozen=True)
class JsonDecoder:
    """Makes columns of lines that hold a JSON object each.

    Parameters
    ----------
    kinds : tuple of (str, polars.DataType)
        The columns.
    times : tuple of (str, TimeFormat)
        Those of them that are times.
    asked : tuple of str
        Those whose type the caller set.
    full : tuple of str
        Those of them whose type has no missing values.
    chosen : bool
        Whether the caller chose columns, so that other fields of a line are passed over.
    """

    kinds: tuple[tuple[str, pl.DataType], ...]
    times: tuple[tuple[str, TimeFormat], ...] = ()
    asked: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    chosen: bool = False

    def decoded(self, span: Span, names: Collection[str]) -> pl.DataFrame:
        """Some columns of a span.

        Raises
        ------
        ReadError
            When a line is no JSON object, has a field that no sample had, or a value that does
            not fit the type of its column.
        """
        data = span.data()
        forms = dict(self.times)
        every = {name: pl.String() if name in forms else kind for name, kind in self.kinds}
        wanted = {name: kind for name, kind in every.items() if name in names}
        if not data.strip():
            frame = pl.DataFrame(schema=wanted)
        else:
            table = self._by_arrow(data, every, wanted)
            if table is None:
                table = self._by_line(data, every, wanted, span)
            held = [pl.Series(f"c{place}", one) for place, one in enumerate(table.columns)]
            frame = pl.DataFrame(held)
            frame.columns = list(wanted)  # set last: Polars finds another for an empty one
        text_errors.check_full(frame, self.full, span)
        return frame.with_columns(
            times.column(frame.get_column(name), forms[name], span.file.url)
            for name in wanted
            if name in forms
        )

    def _by_arrow(
        self, data: bytes, every: Mapping[str, pl.DataType], wanted: Mapping[str, pl.DataType]
    ) -> pa.Table | None:
        """The columns, unless a line is not as expected; which one pyarrow does not say."""
        # Fields that no sample had are passed over in nested columns, too, or in none.
        strict = len(wanted) == len(every) or any(kind.is_nested() for kind in wanted.values())
        kinds = every if strict else wanted
        schema = pa.schema([(name, json_types.arrow_of(kind)) for name, kind in kinds.items()])
        behavior = "error" if strict else "ignore"
        for block in (BLOCK, LARGE_BLOCK):
            try:
                table = arrow_json.read_json(
                    pa.BufferReader(data),
                    read_options=arrow_json.ReadOptions(use_threads=False, block_size=block),
                    parse_options=arrow_json.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior=behavior
                    ),
                )
            except pa.ArrowInvalid as error:
                if "straddl" in str(error):
                    continue
                return None
            floats = [table.column(name) for name, kind in wanted.items() if kind.is_float()]
            return None if any(map(_may_be_inexact, floats)) else table.select(list(wanted))
        return None

    def _by_line(
        self,
        data: bytes,
        every: Mapping[str, pl.DataType],
        wanted: Mapping[str, pl.DataType],
        span: Span,
    ) -> pa.Table:
        """The columns, or the first line that is not as expected."""
        columns: dict[str, list[Any]] = {name: [] for name in wanted}
        strict = len(wanted) == len(every) and not self.chosen
        for place, record in _records(data, span):
            for name in record if strict else ():
                if name not in every:
                    raise ReadError(
                        span.file.url,
                        f"{place} has the field {name!r}, which no sample had; write "
                        f"dtypes={{{name!r}: 'str'}}, or columns=[...] without it",
                    )
            for name, kind in wanted.items():
                value = record.get(name)
                if isinstance(kind, pl.String):
                    value = json_types.as_text(value)
                elif not json_types.fits(value, kind):
                    asked = name in self.asked
                    wrong = text_errors.value(name, value, str(kind), asked, place)
                    raise ReadError(span.file.url, wrong)
                columns[name].append(value)
        arrays = [_array(columns[name], kind, name, span) for name, kind in wanted.items()]
        return pa.table(arrays, names=list(wanted))


def _array(values: list[Any], kind: pl.DataType, name: str, span: Span) -> pa.Array:
    try:
        return pa.array(values, json_types.arrow_of(kind))
    except (pa.ArrowException, ValueError) as error:  # such as half characters
        raise ReadError(span.file.url, f"column {name!r}: {error}") from error


def _may_be_inexact(column: pa.ChunkedArray) -> bool:
    """Whether floats may have been whole numbers of more digits."""
    return bool(pc.any(pc.greater_equal(pc.abs(column), float(json_types.EXACT))).as_py())


def _records(data: bytes, span: Span) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object, and where it is."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        place = f"line {number} of bytes {span.start} to {span.stop}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            said = f"{place} is no JSON ({wrong}): {line[:60]!r}"
            raise ReadError(span.file.url, said) from wrong
        if not isinstance(record, dict):
            raise ReadError(span.file.url, f"{place} is no JSON object: {line[:60]!r}")
        yield place, record
