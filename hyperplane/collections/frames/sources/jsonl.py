"""JSON lines by Polars, with the types that were found in samples."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from hyperplane.collections.frames.sources import samples, text_errors, text_plan, times
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.collections.frames.sources.samples import Sample
from hyperplane.collections.frames.sources.spans import Span
from hyperplane.collections.frames.sources.text_plan import Content, Kinds, TextOptions
from hyperplane.collections.frames.sources.times import TimeFormat
from hyperplane.errors import Fault, ReadError, check
from hyperplane.stores.places import File
from hyperplane.units import plural

#: Lines that are looked at one by one when one of them is wrong.
NEARLY = 64


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
    """

    kinds: tuple[tuple[str, pl.DataType], ...]
    times: tuple[tuple[str, TimeFormat], ...] = ()
    asked: tuple[str, ...] = ()
    full: tuple[str, ...] = ()

    def decoded(self, span: Span, names: Collection[str]) -> pl.DataFrame:
        """Some columns of a span.

        Raises
        ------
        ReadError
            When a line is no JSON object or a value does not fit the type of its column.
        """
        data = span.data()
        forms = dict(self.times)
        schema = {
            name: pl.String() if name in forms else kind
            for name, kind in self.kinds
            if name in names
        }
        if not data.strip():
            frame = pl.DataFrame(schema=schema)
        else:
            try:
                frame = pl.read_ndjson(io.BytesIO(data), schema=schema)
            except pl.exceptions.PolarsError as error:
                raise ReadError(span.file.url, self._wrong(data, schema, span, error)) from error
        text_errors.check_full(frame, self.full, span)
        return frame.with_columns(
            times.column(frame.get_column(name), forms[name], span.file.url)
            for name in schema
            if name in forms
        )

    def _wrong(self, data: bytes, schema: Kinds, span: Span, error: Exception) -> str:
        """Which line, column and value; looked for one by one, since Polars does not say."""
        lines = data.splitlines()
        sound = _sound(lines, schema)
        for number, line in enumerate(lines[sound:], sound + 1):
            if not line.strip():
                continue
            place = f"line {number} of bytes {span.start} to {span.stop}"
            try:
                record = json.loads(line)
            except ValueError as wrong:
                return f"{place} is no JSON ({wrong}): {line[:60]!r}"
            if not isinstance(record, dict):
                return f"{place} is no JSON object: {line[:60]!r}"
            for name, kind in schema.items():
                value = record.get(name)
                try:
                    pl.read_ndjson(
                        io.BytesIO(json.dumps({name: value}).encode()), schema={name: kind}
                    )
                except pl.exceptions.PolarsError:
                    asked = name in self.asked
                    return text_errors.value(name, value, str(kind), asked, place)
        return str(error).splitlines()[0]


def _sound(lines: Sequence[bytes], schema: Kinds) -> int:
    """About how many of the first lines Polars can read, found by halves."""
    low, high = 0, len(lines)
    while high - low > NEARLY:
        middle = (low + high) // 2
        piece = b"\n".join(lines[low:middle])
        try:
            if piece.strip():
                pl.read_ndjson(io.BytesIO(piece), schema=schema)
            low = middle
        except pl.exceptions.PolarsError:
            high = middle
    return low


def plan(files: Sequence[File], request: Request, options: TextOptions) -> Table:
    """Read samples of the files, and make a table of them.

    Raises
    ------
    RequestError
        When what is asked does not go with the files.
    ReadError
        When a file cannot be read, unless it is to be skipped.
    """
    taken, errors = samples.taken(files, lambda _, text: text.rfind(b"\n") + 1)
    values: dict[str, list[Any]] = {}
    records = text = 0
    left = []
    for sample in taken:
        try:
            found = _records(sample) if sample.close else []
        except ReadError as error:
            errors.append(error)
            continue
        left.append(sample)
        text += len(sample.head) + sum(map(len, sample.inside)) if sample.close else 0
        for record in found:
            records += 1
            for name, value in record.items():
                values.setdefault(name, []).append(value)
    request.tell(errors, len(left))
    if not values:
        which = repr(files[0].url) if len(files) == 1 else plural(len(files), "file")
        check([Fault("urls", which, "files of which at least one holds JSON objects")])
    complete = all(sample.close and sample.whole for sample in left)
    kinds = {name: _kind(found) for name, found in values.items()}
    optional = {
        name
        for name, found in values.items()
        if not complete or len(found) < records or any(value is None for value in found)
    }
    asked, set_optional, faults = text_plan.overrides(options.dtypes, kinds)
    formats, wrong = _formats(kinds, values, options.parse_dates)
    check([*faults, *wrong])
    kinds |= asked | {name: form.kind for name, form in formats.items()}
    optional = (optional - set(asked)) | set_optional
    full = text_plan.full(asked, set_optional)
    decoder = JsonDecoder(tuple(kinds.items()), tuple(formats.items()), tuple(asked), full)
    memory = sum(pl.Series(found, strict=False).estimated_size() for found in values.values())
    density = memory / max(1, text)
    contents = [Content(sample.file, 0, tuple(kinds), density) for sample in left]
    return text_plan.table(contents, kinds, optional, lambda _: decoder, request)


def _records(sample: Sample) -> list[dict[str, Any]]:
    if sample.head.lstrip()[:1] == b"[":
        raise ReadError(
            sample.file.url,
            "it is a JSON array, not a JSON object a line; "
            "pandas.read_json(...).to_json(..., orient='records', lines=True) makes one of it",
        )
    found = []
    for number, line in enumerate(b"\n".join([sample.head, *sample.inside]).splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            wrong = f"line {number} is no JSON ({error}): {line[:60]!r}"
            raise ReadError(sample.file.url, wrong) from error
        if not isinstance(record, dict):
            raise ReadError(sample.file.url, f"line {number} is no JSON object: {line[:60]!r}")
        found.append(record)
    return found


def _kind(values: Sequence[Any]) -> pl.DataType:
    """The type that holds all values of a sample; text where there is no other."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        whole = [value for value in values if value is not None]
        least, most = min(whole), max(whole)
        if least >= -(2**63) and most < 2**63:
            return pl.Int64()
        return pl.UInt64() if least >= 0 and most < 2**64 else pl.String()
    if kinds and kinds <= {int, float}:
        return pl.Float64()
    if kinds <= {dict} or kinds <= {list}:
        try:
            kind = pl.Series(values).dtype
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            return pl.String()
        return pl.String() if kind in (pl.Null, pl.Object) else kind
    return pl.String()


def _formats(
    kinds: Kinds, values: dict[str, list[Any]], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    asked, faults = times.asked(parse_dates, kinds)
    formats = {}
    for name, written in asked.items():
        texts = pl.Series(name, values[name], dtype=pl.String, strict=False)
        found = times.found(name, texts, written)
        if isinstance(found, Fault):
            faults.append(found)
        else:
            formats[name] = found
    return formats, faults
