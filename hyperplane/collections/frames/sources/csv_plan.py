"""From CSV files to parts: headers, types by samples, cuts between lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.sources import samples, text_plan, times
from hyperplane.collections.frames.sources.csv import CsvDecoder, CsvForm, arrow_type, parsed
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.collections.frames.sources.samples import Sample
from hyperplane.collections.frames.sources.text_plan import Content, Kinds, TextOptions
from hyperplane.collections.frames.sources.times import TimeFormat
from hyperplane.errors import Fault, ReadError, check
from hyperplane.stores.naming import suffix_of
from hyperplane.stores.places import File

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class _Seen:
    """One file: how it is written, where its rows begin, and rows of its samples."""

    sample: Sample
    form: CsvForm
    start: int
    tables: tuple[pa.Table, ...]
    text: int


def plan(files: Sequence[File], request: Request, options: TextOptions) -> Table:
    """Read heads and samples of the files, and make a table of them.

    Raises
    ------
    RequestError
        When files do not go together, or what is asked does not go with them.
    ReadError
        When a file cannot be read, unless it is to be skipped.
    """
    taken, errors = samples.taken(files)
    taken = [sample for sample in taken if sample.head.strip(_BOM + b"\r\n") or not sample.whole]
    if not (taken or errors):
        check([Fault("urls", f"{len(files)} files", "at least one that is not empty")])
    seen: list[_Seen] = []
    for sample in taken:
        try:
            seen.append(_seen(sample, options))
        except ReadError as error:
            errors.append(error)
    request.tell(errors, len(seen))
    names = list(dict.fromkeys(name for one in seen for name in one.form.names))
    kinds, optional = _kinds(names, seen)
    asked, set_optional, faults = text_plan.overrides(options.dtypes, kinds)
    formats, wrong = _formats(kinds, seen, options.parse_dates)
    check([*faults, *wrong])
    kinds |= asked | {name: form.kind for name, form in formats.items()}
    optional = (optional - set(asked)) | set_optional
    text = sum(one.text for one in seen)
    density = sum(table.nbytes for one in seen for table in one.tables) / max(1, text)
    made = {id(one): _content(one, density) for one in seen}
    text_plan.check_names(list(made.values()), kinds, request.mixing)
    decoders = {
        made[id(one)].file.path: CsvDecoder(
            one.form,
            tuple(kinds[name] for name in one.form.names),
            tuple((name, form) for name, form in formats.items() if name in one.form.names),
        )
        for one in seen
    }
    return text_plan.table(
        list(made.values()), kinds, optional, lambda one: decoders[one.file.path], request
    )


def _content(one: _Seen, density: float) -> Content:
    return Content(one.sample.file, one.start, one.form.names, density, one.form.breaking)


def _seen(sample: Sample, options: TextOptions) -> _Seen:
    separator = options.separator or ("\t" if suffix_of(sample.file.path) == ".tsv" else ",")
    start = len(_BOM) if sample.head.startswith(_BOM) else 0
    while sample.head[start : start + 1] in (b"\r", b"\n"):
        start += 1
    if options.names is None:
        end = _end_of_record(sample.head, start)
        try:
            header = sample.head[start:end].decode(options.encoding)
            names = next(csv.reader(io.StringIO(header), delimiter=separator))
        except (UnicodeError, csv.Error, StopIteration) as error:
            wrong = f"its first line is no header of CSV in {options.encoding} ({error})"
            raise ReadError(sample.file.url, wrong) from error
        start = end
    else:
        names = list(options.names)
    breaking = options.multiline or samples.breaks_lines(sample.head[start:])
    form = CsvForm(_distinct(names), separator, options.encoding, breaking)
    if not sample.close:
        return _Seen(sample, form, start, (), 0)
    try:
        tables = [parsed(sample.head[start:], form, None)]
    except pa.ArrowInvalid as error:
        raise ReadError(sample.file.url, f"{error}, counted from byte {start}") from error
    length = len(sample.head) - start
    for text in () if breaking else sample.inside:
        # One that does not parse may begin within quotes; when it is read it will be said.
        try:
            tables.append(parsed(text, form, None))
            length += len(text)
        except pa.ArrowInvalid:
            continue
    return _Seen(sample, form, start, tuple(tables), length)


def _end_of_record(text: bytes, start: int) -> int:
    end = start
    while True:
        line = text.find(b"\n", end)
        if line < 0:
            return len(text)
        end = line + 1
        if text.count(b'"', start, end) % 2 == 0:
            return end


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names as pandas makes them: none is empty, none is there twice."""
    made: list[str] = []
    for place, name in enumerate(names):
        whole = name or f"Unnamed: {place}"
        one, number = whole, 0
        while one in made:
            number += 1
            one = f"{whole}.{number}"
        made.append(one)
    return tuple(made)


def _kinds(names: Sequence[str], seen: Sequence[_Seen]) -> tuple[Kinds, set[str]]:
    """Types that hold all values of the samples, and columns in which some may be missing."""
    complete = all(one.sample.close and one.sample.whole for one in seen)
    tables = [table for one in seen for table in one.tables]
    kinds: Kinds = {}
    optional: set[str] = set()
    for name in names:
        columns = [table.column(name) for table in tables if name in table.column_names]
        kinds[name] = _kind({_family(column.type) for column in columns}, complete)
        if not complete or any(column.null_count for column in columns):
            optional.add(name)
    return kinds, optional


def _family(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "nothing"
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_integer(kind):
        return "whole"
    return "number" if pa.types.is_floating(kind) else "text"


def _kind(families: set[str], complete: bool) -> pl.DataType:
    families = families - {"nothing"}
    if families == {"truth"}:
        return pl.Boolean()
    if families == {"whole"}:
        return pl.Int64()
    if families in ({"number"}, {"whole", "number"}):
        return pl.Float64()
    # A column of nothing: of numbers for pandas; but what was not seen may be anything.
    return pl.Float64() if complete and not families else pl.String()


def _formats(
    kinds: Kinds, seen: Sequence[_Seen], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    asked, faults = times.asked(parse_dates, kinds)
    formats = {}
    for name, written in asked.items():
        texts = [_texts(one, name) for one in seen if one.tables and name in one.form.names]
        found = times.found(name, pl.concat(texts), written) if texts else TimeFormat()
        if isinstance(found, Fault):
            faults.append(found)
        else:
            formats[name] = found
    return formats, faults


def _texts(one: _Seen, name: str) -> pl.Series:
    data = one.sample.head[one.start :]
    return pl.DataFrame(parsed(data, one.form, {name: arrow_type(pl.String())})).get_column(name)
