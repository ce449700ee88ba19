"""From JSON lines to parts: types by samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from hyperplane.collections.frames.sources import samples, text_plan, time_formats
from hyperplane.collections.frames.sources.json_decoder import JsonDecoder, parsed
from hyperplane.collections.frames.sources.json_types import as_text, kind_of
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.collections.frames.sources.samples import Sample
from hyperplane.collections.frames.sources.text_plan import Content, Kinds, TextOptions
from hyperplane.collections.frames.sources.time_formats import TimeFormat
from hyperplane.errors import Fault, ReadError, check
from hyperplane.stores.places import File
from hyperplane.units import plural


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
        text += (
            len(sample.head) + sum(len(inside) for _, inside in sample.inside)
            if sample.close
            else 0
        )
        for record in found:
            records += 1
            for name, value in record.items():
                values.setdefault(name, []).append(value)
    request.tell(errors, len(left))
    if not values:
        which = repr(files[0].url) if len(files) == 1 else plural(len(files), "file")
        check([Fault("urls", which, "files of which at least one holds JSON objects")])
    complete = all(sample.close and sample.whole for sample in left)
    kinds = {name: kind_of(found) for name, found in values.items()}
    memory = sum(_memory(found, kinds[name]) for name, found in values.items())
    if not complete and isinstance(options.dtypes, Mapping):
        # Fields of lines that no sample holds, which an error told the caller of.
        kinds |= {name: pl.String() for name in options.dtypes if name not in kinds}
    optional = {
        name
        for name, found in values.items()
        if not complete or len(found) < records or any(value is None for value in found)
    } | (kinds.keys() - values.keys())
    asked, set_optional, faults = text_plan.overrides(options.dtypes, kinds)
    formats, wrong = _formats(kinds, values, options.parse_dates)
    check([*faults, *wrong])
    kinds |= asked | {name: form.kind for name, form in formats.items()}
    optional = (optional - set(asked)) | set_optional
    full = text_plan.full(asked, set_optional)
    decoder = JsonDecoder(
        tuple(kinds.items()),
        tuple(formats.items()),
        tuple(asked),
        full,
        chosen=request.columns is not None,
    )
    density = memory / max(1, text)
    contents = [Content(sample.file, 0, tuple(kinds), density) for sample in left]
    declared = text_plan.of_pandas(options.dtypes, set(asked) - set(formats))
    return text_plan.table(contents, kinds, optional, lambda _: decoder, request, declared)


def _records(sample: Sample) -> list[dict[str, Any]]:
    if sample.head.lstrip()[:1] == b"[":
        raise ReadError(
            sample.file.url,
            "it is a JSON array, not a JSON object a line; "
            "pandas.read_json(...).to_json(..., orient='records', lines=True) makes one of it",
        )
    return [
        parsed(line, sample.file, start, number)
        for start, text in ((0, sample.head), *sample.inside)
        for number, line in enumerate(text.split(b"\n"), 1)
        if line.strip()
    ]


def _memory(values: Sequence[Any], kind: pl.DataType) -> int:
    """Bytes of values in memory, about."""
    if kind.is_nested() or isinstance(kind, pl.String):
        return sum(len(value if isinstance(value, str) else repr(value)) + 8 for value in values)
    return 8 * len(values)


def _formats(
    kinds: Kinds, values: dict[str, list[Any]], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    asked, faults = time_formats.asked(parse_dates, kinds)
    formats = {}
    for name, written in asked.items():
        held = [as_text(value) for value in values.get(name, ())]
        texts = pl.Series(name, held, dtype=pl.String)
        found = time_formats.found(name, texts, written)
        if isinstance(found, Fault):
            faults.append(found)
        else:
            formats[name] = found
    return formats, faults
