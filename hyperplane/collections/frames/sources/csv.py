"""CSV by pyarrow, with the types that were found in samples."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import csv as arrow_csv

from hyperplane.collections.frames.sources import times
from hyperplane.collections.frames.sources.spans import Span
from hyperplane.collections.frames.sources.times import TimeFormat
from hyperplane.errors import ReadError

#: What stands for a missing value, as in ``pandas.read_csv``.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_TRUE, _FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")
#: Bytes that pyarrow takes at once: such as fit into a cache, and for longer rows.
BLOCK = 1 << 20
LARGE_BLOCK = 1 << 27
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to ([^:]+): (.*)"
)
_BAD_ROW = re.compile(r"CSV parse error: (?:Row #(\d+): )?(.*)")


@dataclass(frozen=True)
class CsvForm:
    """How a file is written.

    Parameters
    ----------
    names : tuple of str
        All columns, in the order of the file.
    separator, encoding : str
        Of the file.
    breaking : bool
        Whether quoted values may go over lines.
    """

    names: tuple[str, ...]
    separator: str
    encoding: str
    breaking: bool


@dataclass(frozen=True)
class CsvDecoder:
    """Makes columns of CSV without its header.

    Parameters
    ----------
    form : CsvForm
        How it is written.
    kinds : tuple of polars.DataType
        The type of each column of the file.
    times : tuple of (str, TimeFormat)
        The columns that are times.
    """

    form: CsvForm
    kinds: tuple[pl.DataType, ...]
    times: tuple[tuple[str, TimeFormat], ...] = ()

    def decoded(self, span: Span, names: Collection[str]) -> pl.DataFrame:
        """Some columns of a span.

        Raises
        ------
        ReadError
            When a value does not fit the type of its column, or a row has too few or many.
        """
        data = span.data()
        divided = not self.form.breaking and not span.file.packing
        if divided and _quotes(data) % 2:
            # Then some cut, of this span or of one before, may lie within quotes.
            raise ReadError(
                span.file.url,
                f"an odd number of quotes in bytes {span.start} to {span.stop}: a quote is not "
                "closed, or a quoted value goes over several lines; "
                "for the latter write multiline=True",
            )
        types = {
            name: pa.string() if name in dict(self.times) else arrow_type(kind)
            for name, kind in zip(self.form.names, self.kinds, strict=True)
        }
        wanted = {name: types[name] for name in names}
        try:
            table = parsed(data, self.form, wanted)
        except pa.ArrowInvalid as error:
            raise ReadError(span.file.url, self._wrong(error, span)) from error
        frame = pl.DataFrame(pl.from_arrow(table, rechunk=False))
        return frame.with_columns(
            times.column(frame.get_column(name), form, span.file.url)
            for name, form in self.times
            if name in wanted
        )

    def _wrong(self, error: pa.ArrowInvalid, span: Span) -> str:
        place = f"bytes {span.start} to {span.stop}"
        value = _BAD_VALUE.match(str(error))
        if value is None:
            row = _BAD_ROW.match(str(error))
            return f"{row[2] if row else error}, in row {row[1] if row else '?'} of {place}"
        name = self.form.names[int(value[1])]
        if "UTF8" in value[4]:
            return f"column {name!r}: {value[4]}; write encoding='latin-1' or what it is in"
        held = value[4].removeprefix("invalid value ").strip("'")
        advice = "float64" if _is_number(held) else "str"
        return (
            f"column {name!r} holds {held!r}, but the sample held {value[3]} (row {value[2]} of "
            f"{place}); write dtypes={{{name!r}: {advice!r}}}"
        )


def _quotes(data: bytes) -> int:
    """The number of quotes; numpy counts several times faster than bytes do."""
    values = np.frombuffer(data, np.uint8)
    pieces = (values[start : start + BLOCK] for start in range(0, len(values), BLOCK))
    return sum(int(np.count_nonzero(piece == ord('"'))) for piece in pieces)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def arrow_type(kind: pl.DataType) -> pa.DataType:
    """The type that pyarrow parses for a Polars type."""
    if isinstance(kind, pl.String):
        return pa.string()
    return pl.DataFrame(schema={"one": kind}).to_arrow().schema.field("one").type


def parsed(data: bytes, form: CsvForm, types: dict[str, pa.DataType] | None) -> pa.Table:
    """Columns of CSV without header; all of them, with types that pyarrow finds, for None."""
    if not data.strip(b"\r\n"):
        wanted = types or dict.fromkeys(form.names, pa.null())
        return pa.schema(list(wanted.items())).empty_table()
    convert: dict[str, Any] = {}
    if types is not None:
        convert = {"column_types": types, "include_columns": list(types)}
    try:
        return _read(data, form, convert, BLOCK)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
    return _read(data, form, convert, LARGE_BLOCK)


def _read(data: bytes, form: CsvForm, convert: dict[str, Any], block: int) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(
            use_threads=False,
            block_size=block,
            column_names=form.names,
            encoding=form.encoding,
        ),
        # Quoted lines cost nothing where there are none.
        parse_options=arrow_csv.ParseOptions(delimiter=form.separator, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            null_values=MISSING,
            true_values=_TRUE,
            false_values=_FALSE,
            strings_can_be_null=True,
            **convert,
        ),
    )
