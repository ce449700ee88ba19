"""From CSV files to parts: headers, types by samples, cuts between lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.sources import (
    csv_inference,
    csv_quotes,
    samples,
    schemas,
    text_errors,
    text_plan,
    time_formats,
)
from hyperplane.collections.frames.sources.csv_decoder import (
    BOM,
    CsvDecoder,
    CsvForm,
    arrow_type,
    parsed,
    row_error,
)
from hyperplane.collections.frames.sources.missing_values import missing_values
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.collections.frames.sources.samples import GLANCE, Sample
from hyperplane.collections.frames.sources.text_plan import Content, Kinds, TextOptions
from hyperplane.collections.frames.sources.time_formats import TimeFormat
from hyperplane.errors import Fault, ReadError, check
from hyperplane.stores.naming import suffix_of
from hyperplane.stores.places import File

#: Other separators in a header from which on the one that the caller wrote is not believed.
SEVERAL = 2


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
    taken, errors = samples.taken(files, lambda file, text: _last_end(file, text, options))
    taken = [sample for sample in taken if sample.head.strip(BOM + b"\r\n") or not sample.whole]
    if not (taken or errors):
        named = ", ".join(repr(file.url) for file in files[: schemas.NAMED])
        more = f" and {len(files) - schemas.NAMED} more" if len(files) > schemas.NAMED else ""
        check([Fault("urls", named + more, "at least one file that is not empty")])
    seen: list[_Seen] = []
    for sample in taken:
        try:
            seen.append(_seen(sample, options))
        except ReadError as error:
            errors.append(error)
    request.tell(errors, len(seen))
    names = list(dict.fromkeys(name for one in seen for name in one.form.names))
    check(missing_values(options.na_values, names)[1])
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
            tuple(asked),
            text_plan.full(asked, set_optional),
        )
        for one in seen
    }
    declared = text_plan.of_pandas(options.dtypes, set(asked) - set(formats))
    return text_plan.table(
        list(made.values()), kinds, optional, lambda one: decoders[one.file.path], request, declared
    )


def _content(one: _Seen, density: float) -> Content:
    return Content(one.sample.file, one.start, one.form.names, density, one.form.breaking)


def _seen(sample: Sample, options: TextOptions) -> _Seen:
    separator = _separator(sample.file, options)
    start = len(BOM) if sample.head.startswith(BOM) else 0
    while sample.head[start : start + 1] in (b"\r", b"\n"):
        start += 1
    _check_quotes(sample, start, separator, options.encoding)
    if options.names is None:
        end = _end_of_record(sample.head, start)
        try:
            header = sample.head[start:end].decode(options.encoding)
            names = next(csv.reader(io.StringIO(header), delimiter=separator))
        except (UnicodeError, csv.Error, StopIteration) as error:
            wrong = f"its first line is no header of CSV in {options.encoding} ({error})"
            raise ReadError(sample.file.url, wrong) from error
        _check_separator(sample, start, names, separator, options)
        start = end
    else:
        names = list(options.names)
    breaking = options.multiline or samples.breaks_lines(sample.head[start:])
    distinct = csv_inference.distinct(names)
    missing = missing_values(options.na_values, distinct)[0]
    form = CsvForm(distinct, separator, options.encoding, breaking, missing)
    if not sample.close:
        return _Seen(sample, form, start, (), 0)
    try:
        tables = [_typed(sample.head[start:], form)]
    except pa.ArrowInvalid as error:
        wrong = row_error(error, form, sample.head[start:], sample.file, start)
        raise ReadError(sample.file.url, wrong) from error
    length = len(sample.head) - start
    for _, text in () if breaking else sample.inside:
        # One that does not parse may begin within quotes; when it is read it will be said.
        try:
            tables.append(_typed(text, form))
            length += len(text)
        except pa.ArrowInvalid:
            continue
    return _Seen(sample, form, start, tuple(tables), length)


def _typed(text: bytes, form: CsvForm) -> pa.Table:
    def as_text(names: Collection[str]) -> pa.Table:
        return parsed(text, form, dict.fromkeys(names, pa.string()))

    return csv_inference.as_pandas(parsed(text, form, None), text, as_text)


def _separator(file: File, options: TextOptions) -> str:
    return options.separator or ("\t" if suffix_of(file.path) == ".tsv" else ",")


def _last_end(file: File, text: bytes, options: TextOptions) -> int:
    return csv_quotes.last_end(text, _separator(file, options).encode(options.encoding))


def _check_quotes(sample: Sample, start: int, separator: str, encoding: str) -> None:
    data = sample.head[start:]
    at = csv_quotes.unclosed(data, separator.encode(encoding))
    if at is not None:
        place = text_errors.numbered(sample.file, start, data.count(b"\n", 0, at) + 1)
        raise ReadError(sample.file.url, text_errors.quote(place, text_errors.begun(data, at)))


def _check_separator(
    sample: Sample, start: int, names: Sequence[str], separator: str, options: TextOptions
) -> None:
    """Refuse one column where the file has several; pandas reads it without a word."""
    if len(names) != 1:
        return
    near = sample.head[start : start + GLANCE]
    if len(near) == GLANCE:
        near = near[: near.rfind(b"\n") + 1]
    lines = near.decode(options.encoding, "replace").splitlines()[: text_errors.COMPARED]
    other = text_errors.separator_of(lines[0], lines[1:], separator) if lines else None
    if other is None or (options.separator and lines[0].count(other) < SEVERAL):
        return
    where = f"the columns of its header {text_errors.begun(lines[0].encode(), 0)!r} are divided"
    raise ReadError(
        sample.file.url, f"{where} by {other!r}, not by {separator!r}: write separator={other!r}"
    )


def _end_of_record(text: bytes, start: int) -> int:
    end, quotes = start, 0
    while True:
        line = text.find(b"\n", end)
        if line < 0:
            return len(text)
        quotes += text.count(b'"', end, line)
        end = line + 1
        if quotes % 2 == 0:
            return end


def _kinds(names: Sequence[str], seen: Sequence[_Seen]) -> tuple[Kinds, set[str]]:
    """Types that hold all values of the samples, and columns in which some may be missing."""
    complete = all(one.sample.close and one.sample.whole for one in seen)
    tables = [table for one in seen for table in one.tables]
    kinds: Kinds = {}
    optional: set[str] = set()
    for name in names:
        columns = [table.column(name) for table in tables if name in table.column_names]
        found = set().union(*map(csv_inference.families, columns))
        kinds[name] = csv_inference.kind(found, complete)
        if not complete or any(column.null_count for column in columns):
            optional.add(name)
    return kinds, optional


def _formats(
    kinds: Kinds, seen: Sequence[_Seen], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    asked, faults = time_formats.asked(parse_dates, kinds)
    formats = {}
    for name, written in asked.items():
        texts = [_texts(one, name) for one in seen if one.tables and name in one.form.names]
        found = time_formats.found(name, pl.concat(texts), written) if texts else TimeFormat()
        if isinstance(found, Fault):
            faults.append(found)
        else:
            formats[name] = found
    return formats, faults


def _texts(one: _Seen, name: str) -> pl.Series:
    data = one.sample.head[one.start :]
    return pl.DataFrame(parsed(data, one.form, {name: arrow_type(pl.String())})).get_column(name)
