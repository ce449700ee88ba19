"""Read JSON lines: plan partitions, with the types of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from hyperplane.core.errors import Fault, ReadError, check
from hyperplane.formats import schemas, text_plan, text_samples, time_formats
from hyperplane.formats.file_changes import compute_head_checksum
from hyperplane.formats.jsonl.decoder import JsonDecoder, parse_object
from hyperplane.formats.jsonl.types import infer_type, to_text
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.formats.text_plan import Kinds, TextFile, TextOptions
from hyperplane.formats.text_samples import TextSample
from hyperplane.formats.time_formats import TimeFormat
from hyperplane.objectstore.locations import File


def plan_partitions(files: Sequence[File], request: ReadRequest, options: TextOptions) -> ReadPlan:
    """Read samples of the files and plan the partitions.

    Raises
    ------
    RequestError
        If the request does not match the fields of the files.
    ReadError
        If a file cannot be read and ``on_error`` is not "skip".
    """
    sampled, errors = text_samples.read_samples(files, lambda _, text: text.rfind(b"\n") + 1)
    values: dict[str, list[Any]] = {}
    records = text_bytes = 0
    readable = []
    for sample in sampled:
        try:
            sample_records = _parse_sample(sample) if sample.used_for_types else []
        except ReadError as error:
            errors.append(error)
            continue
        readable.append(sample)
        text_bytes += (
            len(sample.head) + sum(len(excerpt) for _, excerpt in sample.excerpts)
            if sample.used_for_types
            else 0
        )
        for record in sample_records:
            records += 1
            for name, value in record.items():
                values.setdefault(name, []).append(value)
    request.raise_or_warn(errors, len(readable))
    if not values:
        urls = schemas.list_some_files([repr(file.url) for file in files])
        check([Fault("urls", urls, "files of which at least one contains JSON objects")])
    complete = all(sample.used_for_types and sample.whole for sample in readable)
    kinds = {name: infer_type(field_values) for name, field_values in values.items()}
    memory = sum(
        _estimate_memory(field_values, kinds[name]) for name, field_values in values.items()
    )
    if not complete and isinstance(options.dtypes, Mapping):
        # Fields that no sample has, but that the caller knows from an earlier error.
        kinds |= {name: pl.String() for name in options.dtypes if name not in kinds}
    optional = {
        name
        for name, field_values in values.items()
        if not complete
        or len(field_values) < records
        or any(value is None for value in field_values)
    } | (kinds.keys() - values.keys())
    declared, set_optional, faults = text_plan.parse_dtypes(options.dtypes, kinds)
    formats, time_faults = _find_time_formats(kinds, values, options.parse_dates)
    check([*faults, *time_faults])
    kinds |= declared | {name: time_format.kind for name, time_format in formats.items()}
    optional = (optional - set(declared)) | set_optional
    non_nullable = text_plan.find_non_nullable(declared, set_optional)
    decoder = JsonDecoder(
        tuple(kinds.items()),
        tuple(formats.items()),
        tuple(declared),
        non_nullable,
        chosen=request.columns is not None,
    )
    density = memory / max(1, text_bytes)
    names = tuple(kinds)
    text_files = [
        TextFile(sample.file, 0, names, density, head=compute_head_checksum(sample.head))
        for sample in readable
    ]
    pandas_dtypes = text_plan.find_pandas_dtypes(options.dtypes, set(declared) - set(formats))
    return text_plan.make_read_plan(
        text_files, kinds, optional, lambda _: decoder, request, pandas_dtypes
    )


def _parse_sample(sample: TextSample) -> list[dict[str, Any]]:
    if sample.head.lstrip()[:1] == b"[":
        raise ReadError(
            sample.file.url,
            "it is a JSON array, not one JSON object per line; "
            "convert it with pandas.read_json(...).to_json(..., orient='records', lines=True)",
        )
    return [
        parse_object(line, sample.file, start, number)
        for start, text in ((0, sample.head), *sample.excerpts)
        for number, line in enumerate(text.split(b"\n"), 1)
        if line.strip()
    ]


def _estimate_memory(values: Sequence[Any], kind: pl.DataType) -> int:
    """Return the estimated bytes of values in memory."""
    if kind.is_nested() or isinstance(kind, pl.String):
        return sum(len(value if isinstance(value, str) else repr(value)) + 8 for value in values)
    return 8 * len(values)


def _find_time_formats(
    kinds: Kinds, values: dict[str, list[Any]], parse_dates: Any
) -> tuple[dict[str, TimeFormat], list[Fault]]:
    requested, faults = time_formats.parse_dates_argument(parse_dates, kinds)
    formats = {}
    for name, requested_format in requested.items():
        sample_texts = [to_text(value) for value in values.get(name, ())]
        texts = pl.Series(name, sample_texts, dtype=pl.String)
        result = time_formats.find_format(name, texts, requested_format)
        if isinstance(result, Fault):
            faults.append(result)
        else:
            formats[name] = result
    return formats, faults
