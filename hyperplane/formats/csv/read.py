"""Read CSV files: plan partitions from headers and the types of samples."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import Fault, ReadError, check
from hyperplane.formats import schemas, text_errors, text_plan, text_samples, time_formats
from hyperplane.formats.csv import inference
from hyperplane.formats.csv import quotes as csv_quotes
from hyperplane.formats.csv.decoder import (
    BOM,
    CsvDecoder,
    CsvDialect,
    describe_row_error,
    parse_csv,
    to_arrow_type,
)
from hyperplane.formats.csv.missing_values import parse_na_values
from hyperplane.formats.csv.sample_types import ColumnValues, infer_types, parse_as_known
from hyperplane.formats.file_changes import compute_head_checksum
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.formats.text_plan import Kinds, TextFile, TextOptions
from hyperplane.formats.text_samples import SHORT_HEAD, TextSample
from hyperplane.formats.time_formats import TimeFormat
from hyperplane.objectstore.file_names import suffix_of
from hyperplane.objectstore.locations import File

#: Occurrences of another separator in the header from which ``separator=`` is refused.
MIN_OTHER_SEPARATORS = 2


@dataclass(frozen=True)
class _InspectedFile:
    """One file: its sample and dialect, and the offset of its rows."""

    sample: TextSample
    dialect: CsvDialect
    start: int

    @property
    def rows(self) -> bytes:
        """The rows of the head."""
        return self.sample.head[self.start :]

    @property
    def excerpts(self) -> list[bytes]:
        """Rows from the middle and the end, unless values may contain their line ends."""
        return [] if self.dialect.multiline else [text for _, text in self.sample.excerpts]


def plan_partitions(files: Sequence[File], request: ReadRequest, options: TextOptions) -> ReadPlan:
    """Read headers and samples of the files and plan the partitions.

    Raises
    ------
    RequestError
        If the columns differ, or the request does not match them.
    ReadError
        If a file cannot be read and ``on_error`` is not "skip".
    """
    sampled, errors = text_samples.read_samples(
        files, lambda file, text: _find_last_end(file, text, options)
    )
    sampled = [sample for sample in sampled if sample.head.strip(BOM + b"\r\n") or not sample.whole]
    if not (sampled or errors):
        urls = schemas.list_some_files([repr(file.url) for file in files])
        check([Fault("urls", urls, "at least one file that is not empty")])
    inspected: list[_InspectedFile] = []
    for sample in sampled:
        try:
            inspected.append(_inspect(sample, options))
        except ReadError as error:
            errors.append(error)
    found, invalid = _parse_samples(inspected)
    errors += invalid.values()
    inspected = [entry for entry in inspected if entry.sample.file not in invalid]
    request.raise_or_warn(errors, len(inspected))
    names = list(dict.fromkeys(name for entry in inspected for name in entry.dialect.names))
    check(parse_na_values(options.na_values, names)[1])
    kinds, optional = _merge_types(names, inspected, found)
    declared, set_optional, faults = text_plan.parse_dtypes(options.dtypes, kinds)
    formats, time_faults = _find_time_formats(kinds, inspected, options.parse_dates)
    check([*faults, *time_faults])
    kinds |= declared | {name: time_format.kind for name, time_format in formats.items()}
    optional = (optional - set(declared)) | set_optional
    density = found.nbytes / max(1, found.text_bytes)
    text_files = {id(entry): _make_text_file(entry, density) for entry in inspected}
    text_plan.check_same_columns(list(text_files.values()), kinds, request.schema_mode)
    decoders = {
        text_files[id(entry)].file: CsvDecoder(
            entry.dialect,
            tuple(kinds[name] for name in entry.dialect.names),
            tuple(
                (name, time_format)
                for name, time_format in formats.items()
                if name in entry.dialect.names
            ),
            tuple(declared),
            text_plan.find_non_nullable(declared, set_optional),
        )
        for entry in inspected
    }
    pandas_dtypes = text_plan.find_pandas_dtypes(options.dtypes, set(declared) - set(formats))
    return text_plan.make_read_plan(
        list(text_files.values()),
        kinds,
        optional,
        lambda text_file: decoders[text_file.file],
        request,
        pandas_dtypes,
        has_nan=False,
    )


def _make_text_file(file: _InspectedFile, density: float) -> TextFile:
    head = compute_head_checksum(file.sample.head)
    dialect = file.dialect
    return TextFile(file.sample.file, file.start, dialect.names, density, dialect.multiline, head)


def _inspect(sample: TextSample, options: TextOptions) -> _InspectedFile:
    if sample.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        message = "is encoded in utf-16, as its byte order mark says; convert the file to utf-8"
        raise ReadError(sample.file.url, message)
    separator = _choose_separator(sample.file, options)
    start = len(BOM) if sample.head.startswith(BOM) else 0
    while sample.head[start : start + 1] in (b"\r", b"\n"):
        start += 1
    _check_quotes(sample, start, separator, options.encoding)
    if options.names is None:
        end = _find_record_end(sample.head, start)
        try:
            header = sample.head[start:end].decode(options.encoding)
            names = next(csv.reader(io.StringIO(header), delimiter=separator))
        except (UnicodeError, csv.Error, StopIteration) as error:
            message = f"its first line is not a CSV header in {options.encoding} ({error})"
            if isinstance(error, csv.Error) and b"\r" in sample.head[start:end].rstrip(b"\r\n"):
                message = (
                    "its lines end with carriage returns (\\r), not with \\n or \\r\\n; convert "
                    "it, or read it with pandas.read_csv"
                )
            raise ReadError(sample.file.url, message) from error
        _check_separator(sample, start, names, separator, options)
        start = end
    else:
        names = list(options.names)
    multiline = options.multiline or text_samples.has_multiline_values(sample.head[start:])
    distinct = inference.deduplicate_names(names)
    missing = parse_na_values(options.na_values, distinct)[0]
    dialect = CsvDialect(distinct, separator, options.encoding, multiline, missing)
    return _InspectedFile(sample, dialect, start)


def _parse_samples(
    inspected: Sequence[_InspectedFile],
) -> tuple[ColumnValues, dict[File, ReadError]]:
    """Return the values of the samples, and the errors of files whose head cannot be parsed."""
    entries = [entry for entry in inspected if entry.sample.used_for_types]
    found, errors, tried = ColumnValues(), {}, False
    for number, entry in enumerate(entries):
        file, dialect = entry.sample.file, entry.dialect
        try:
            found.add(infer_types(entry.rows, dialect))
        except pa.ArrowInvalid as error:
            message = describe_row_error(error, dialect, entry.rows, file, entry.start)
            errors[file] = ReadError(file.url, message)
            continue
        if not tried:
            others = parse_as_known(_list_other_texts(entries[number:]), dialect, found)
            if others is not None:
                found.add(others)
                break
            tried = True
        for text in entry.excerpts:
            # A sample that starts inside quotes may not parse; real errors are raised when reading.
            with suppress(pa.ArrowInvalid):
                found.add(infer_types(text, dialect))
    return found, errors


def _list_other_texts(entries: Sequence[_InspectedFile]) -> list[tuple[bytes, CsvDialect]]:
    """Return the texts of samples, without the head of the first file."""
    others = [(entry.rows, entry.dialect) for entry in entries[1:]]
    return others + [(text, entry.dialect) for entry in entries for text in entry.excerpts]


def _choose_separator(file: File, options: TextOptions) -> str:
    return options.separator or ("\t" if suffix_of(file.path) == ".tsv" else ",")


def _find_last_end(file: File, text: bytes, options: TextOptions) -> int:
    return csv_quotes.find_last_line_end(
        text, _choose_separator(file, options).encode(options.encoding)
    )


def _check_quotes(sample: TextSample, start: int, separator: str, encoding: str) -> None:
    data = sample.head[start:]
    at = csv_quotes.find_unclosed_quote(data, separator.encode(encoding))
    if at is not None:
        location = text_errors.locate_line(sample.file, start, data.count(b"\n", 0, at) + 1)
        raise ReadError(
            sample.file.url,
            text_errors.describe_open_quote(location, text_errors.excerpt_line(data, at)),
        )


def _check_separator(
    sample: TextSample, start: int, names: Sequence[str], separator: str, options: TextOptions
) -> None:
    """Reject a one-column header that contains another separator; pandas accepts it."""
    if len(names) != 1:
        return
    start_text = sample.head[start : start + SHORT_HEAD]
    if len(start_text) == SHORT_HEAD:
        start_text = start_text[: start_text.rfind(b"\n") + 1]
    lines = start_text.decode(options.encoding, "replace").splitlines()[: text_errors.COMPARED]
    other = text_errors.guess_separator(lines[0], lines[1:], separator) if lines else None
    if other is None or (options.separator and lines[0].count(other) < MIN_OTHER_SEPARATORS):
        return
    header = text_errors.excerpt_line(lines[0].encode(), 0)
    raise ReadError(
        sample.file.url,
        f"the columns of its header {header!r} are separated by {other!r}, not by {separator!r}: "
        f"write separator={other!r}",
    )


def _find_record_end(text: bytes, start: int) -> int:
    end, quotes = start, 0
    while True:
        line = text.find(b"\n", end)
        if line < 0:
            return len(text)
        quotes += text.count(b'"', end, line)
        end = line + 1
        if quotes % 2 == 0:
            return end


def _merge_types(
    names: Sequence[str], inspected: Sequence[_InspectedFile], found: ColumnValues
) -> tuple[Kinds, set[str]]:
    """Return types that fit all samples, and the columns that may have missing values."""
    complete = all(file.sample.used_for_types and file.sample.whole for file in inspected)
    kinds = {
        name: inference.choose_type(found.categories.get(name, set()), complete) for name in names
    }
    optional = {name for name in names if not complete or name in found.missing}
    return kinds, optional


def _find_time_formats(
    kinds: Kinds, inspected: Sequence[_InspectedFile], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    requested, faults = time_formats.parse_dates_argument(parse_dates, kinds)
    formats = {}
    for name, requested_format in requested.items():
        texts = [
            _read_as_text(file, name)
            for file in inspected
            if file.sample.used_for_types and name in file.dialect.names
        ]
        result = (
            time_formats.find_format(name, pl.concat(texts), requested_format)
            if texts
            else TimeFormat()
        )
        if isinstance(result, Fault):
            faults.append(result)
        else:
            formats[name] = result
    return formats, faults


def _read_as_text(file: _InspectedFile, name: str) -> pl.Series:
    data = file.sample.head[file.start :]
    return pl.DataFrame(
        parse_csv(data, file.dialect, {name: to_arrow_type(pl.String())})
    ).get_column(name)
