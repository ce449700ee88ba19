"""From Avro files to parts: headers say the types, marks between blocks where to cut."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import polars as pl
import pyarrow as pa

from hyperplane.collections.frames.sources import hive_partitions, partition_sizes, schemas, types
from hyperplane.collections.frames.sources.avro_decoder import SYNC, AvroDecoder, Header, header
from hyperplane.collections.frames.sources.byte_ranges import Span, SpanPart
from hyperplane.collections.frames.sources.column_mapping import Recipe, may_lose
from hyperplane.collections.frames.sources.filters import columns_of
from hyperplane.collections.frames.sources.footers import READERS
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.collections.frames.sources.samples import Sample
from hyperplane.errors import ReadError, check
from hyperplane.stores.places import File

#: Bytes of the first file that are decoded to learn how long they are in memory.
SAMPLE = 500_000

Found = tuple[File, Header]


def plan_files(files: Sequence[File], request: Request) -> Table:
    """Read the headers, and make a table of the files.

    Raises
    ------
    RequestError
        When files do not go together, or what is asked does not go with them.
    ReadError
        When a file has no sound header, unless it is to be skipped.
    """
    with ThreadPoolExecutor(min(READERS, len(files))) as pool:
        read = list(pool.map(_attempt, files))
    found = [one for one in read if not isinstance(one, ReadError)]
    request.tell([one for one in read if isinstance(one, ReadError)], len(found))
    shapes: dict[str, schemas.Shape] = {}
    faults = []
    for file, head in found:
        if head.schema in shapes:
            shapes[head.schema].urls.append(file.url)
            continue
        shapes[head.schema], wrong = schemas.shape(_arrow(head), request.decimals, file.url)
        faults += wrong
    check(faults)
    columns, faults = schemas.merged(list(shapes.values()), request.mixing)
    check(faults)
    keys, key_kinds, lacking = hive_partitions.keys([file.path for file, _ in found], columns)
    columns = {**columns, **key_kinds}
    filters, chosen = request.checked(columns, list(columns))
    looked_at = {name: columns[name] for name in columns_of(filters)}
    check(schemas.unreadable(shapes.values(), {**chosen, **looked_at}))
    density = _density(found, chosen)
    total = int(sum(file.size for file, _ in found) * density)
    aim = partition_sizes.target(total, request.partition_size)
    spans: list[Span] = []
    recipes: dict[tuple[str, hive_partitions.Keys], Recipe] = {}
    for file, head in found:
        fixed = keys.get(file.path, ())
        if (head.schema, fixed) not in recipes:
            recipes[head.schema, fixed] = _recipe(head, dict(fixed), chosen, looked_at)
        spans += _spans(file, head, recipes[head.schema, fixed], density, aim)
    groups = partition_sizes.joined(
        spans, [span.nbytes for span in spans], request.partition_size, request.files(spans)
    )
    parts = [SpanPart(tuple(group), filters, request.on_error) for group in groups]
    optional = _optional(found, chosen, key_kinds) | lacking.intersection(chosen)
    return Table(parts, chosen, optional)


def _attempt(file: File) -> Found | ReadError:
    try:
        with reading(Sample(file)):
            return file, header(file)
    except ReadError as error:
        return error


def _arrow(head: Header) -> pa.Schema:
    return pa.schema([(field.name, field.arrow) for field in head.fields])


def _density(found: Sequence[Found], chosen: dict[str, pl.DataType]) -> float:
    """Bytes in memory of the wanted columns, for a byte of the files."""
    file, head = max(found, key=lambda one: one[0].size)
    stop = min(file.size, head.length + SAMPLE)
    recipe = Recipe(tuple(chosen.items()))
    decoder = AvroDecoder(head)
    span = Span(file, head.length - SYNC, stop, decoder, recipe, 0)
    names = [field.name for field in head.fields if field.name in chosen]
    try:
        with reading(span):
            size = decoder.decoded(span, names).estimated_size()
    except ReadError:
        return 1.0  # the task that reads it will say what is wrong
    return max(0.01, float(size) / max(1, stop - head.length))


def _recipe(
    head: Header,
    fixed: dict[str, object],
    chosen: dict[str, pl.DataType],
    looked_at: dict[str, pl.DataType],
) -> Recipe:
    used = {**chosen, **looked_at}
    here = {field.name: types.of_arrow(field.arrow) for field in head.fields}
    cast = frozenset(name for name, kind in used.items() if here.get(name, kind) != kind)
    absent = {name: fixed.get(name) for name in used if name not in here}
    lossy = frozenset(name for name in cast if may_lose(here[name], used[name]))
    return Recipe(
        tuple(chosen.items()), tuple(looked_at.items()), cast, tuple(absent.items()), lossy=lossy
    )


def _spans(file: File, head: Header, recipe: Recipe, density: float, aim: float) -> list[Span]:
    start = head.length - SYNC
    count = max(1, round(file.size * density / aim + 0.4))
    ends = [start + round(i * (file.size - start) / count) for i in range(count + 1)]
    decoder = AvroDecoder(head)
    return [
        Span(file, begin, end, decoder, recipe, max(1, int((end - begin) * density)))
        for begin, end in pairwise(ends)
    ]


def _optional(
    found: Sequence[Found], chosen: dict[str, pl.DataType], key_kinds: dict[str, pl.DataType]
) -> set[str]:
    each = [{field.name: field.nullable for field in head.fields} for _, head in found]
    return {
        name
        for name in chosen
        if name not in key_kinds and any(fields.get(name, True) for fields in each)
    }
