"""From text files to parts: what CSV and JSON lines have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd
import polars as pl

from hyperplane.collections.frames.sources import hive_partitions, partition_sizes, samples, schemas
from hyperplane.collections.frames.sources.byte_ranges import Decoder, Span, SpanPart
from hyperplane.collections.frames.sources.column_mapping import Recipe
from hyperplane.collections.frames.sources.filters import Filters, columns_of, near
from hyperplane.collections.frames.sources.request import Request, Table
from hyperplane.errors import Fault, check
from hyperplane.stores.places import File

Kinds = dict[str, pl.DataType]
_DTYPES = "a pandas type: 'int64', 'Int64', 'float64', 'bool', 'boolean', 'str' or a shorter number"


@dataclass
class Content:
    """What is known of a file before it is read.

    Parameters
    ----------
    file : File
        The file.
    start : int
        Where its first record begins.
    names : tuple of str
        Its columns.
    density : float
        Bytes in memory for a byte of text.
    breaking : bool
        Whether records may go over lines.
    """

    file: File
    start: int
    names: tuple[str, ...]
    density: float = 1.0
    breaking: bool = False

    @property
    def memory(self) -> int:
        """Bytes in memory, about."""
        size = self.file.size * (samples.UNPACKED if self.file.packing else 1)
        return int(size * self.density)


@dataclass(frozen=True)
class TextOptions:
    """Arguments of ``read`` for text."""

    dtypes: Any = field(default_factory=dict)
    parse_dates: Any = None
    separator: str | None = None
    encoding: str = "utf-8"
    names: Sequence[str] | None = None
    multiline: bool = False
    na_values: Any = ()


def overrides(dtypes: Any, known: Mapping[str, Any]) -> tuple[Kinds, set[str], list[Fault]]:
    """Types that the caller sets, those of them that allow missing values, and what is wrong."""
    kinds: Kinds = {}
    optional: set[str] = set()
    if not isinstance(dtypes, Mapping):
        if _kind(dtypes) is None:
            allowed = f"a mapping of column to type, or one type: {_DTYPES}"
            return {}, set(), [Fault("dtypes", repr(dtypes)[:80], allowed)]
        dtypes = dict.fromkeys(known, dtypes)
    faults = []
    for name, asked in dtypes.items():
        if name not in known:
            faults.append(Fault("dtypes", repr(name), "a column of the files", near(name, known)))
            continue
        kind = _kind(asked)
        if kind is None:
            faults.append(
                Fault("dtypes", f"{name}: {asked!r}", _DTYPES, "use parse_dates for times")
            )
            continue
        kinds[name] = kind
        if pd.api.types.is_extension_array_dtype(pd.api.types.pandas_dtype(asked)):
            optional.add(name)
    return kinds, optional, faults


def full(asked: Kinds, optional: set[str]) -> tuple[str, ...]:
    """The columns to which the caller gives a type that has no missing values."""
    return tuple(
        name
        for name, kind in asked.items()
        if name not in optional and (kind.is_integer() or isinstance(kind, pl.Boolean))
    )


def of_pandas(dtypes: Any, names: Collection[str]) -> dict[str, Any]:
    """The types that the caller sets for some columns, where these types hold the same values.

    Other types of the same values, such as ``float64`` for ``Float64``, would do for all but what
    the caller does with them.
    """
    found = {}
    for name in names:
        dtype = pd.api.types.pandas_dtype(dtypes[name] if isinstance(dtypes, Mapping) else dtypes)
        text = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
        if text or isinstance(dtype, (pd.Float32Dtype, pd.Float64Dtype, pd.ArrowDtype)):
            found[name] = dtype
    return found


def _kind(asked: Any) -> pl.DataType | None:
    if asked is None:  # float64 for pandas
        return None
    try:
        dtype = pd.api.types.pandas_dtype(asked)
    except (TypeError, ValueError, SyntaxError):  # the last of text with thousands of digits
        return None
    if isinstance(dtype, pd.StringDtype):
        return pl.String()
    numpy: Any = getattr(dtype, "numpy_dtype", dtype)
    if getattr(numpy, "kind", "") not in "biuf" or numpy.itemsize > 8 or str(numpy) == "float16":
        return None
    name = "Boolean" if numpy.kind == "b" else numpy.name.title().replace("Ui", "UI")
    kind: pl.DataType = getattr(pl, name)()
    return kind


def table(
    contents: Sequence[Content],
    kinds: Mapping[str, pl.DataType],
    optional: set[str],
    decoder: Callable[[Content], Decoder],
    request: Request,
    declared: Mapping[str, Any],
) -> Table:
    """Cut and join files into parts."""
    keys, key_kinds, lacking = hive_partitions.keys([one.file.path for one in contents], kinds)
    every = {**kinds, **key_kinds}
    filters, chosen = request.checked(every, list(every))
    looked_at = {name: every[name] for name in columns_of(filters)}
    total = sum(content.memory for content in contents)
    aim = partition_sizes.target(total, request.partition_size)
    spans: list[Span] = []
    for content in contents:
        values = dict(keys.get(content.file.path, ()))
        used = {**chosen, **looked_at}
        fixed = tuple((name, values.get(name)) for name in used if name not in content.names)
        recipe = Recipe(tuple(chosen.items()), tuple(looked_at.items()), frozenset(), fixed)
        spans += _spans(content, decoder(content), recipe, aim)
    parts = _parts(spans, filters, request)
    absent = {n for n in chosen if n in kinds and any(n not in c.names for c in contents)}
    absent |= lacking.intersection(chosen)
    return Table(parts, chosen, optional | absent, declared=declared)


def _spans(content: Content, decoder: Decoder, recipe: Recipe, aim: float) -> list[Span]:
    file, memory = content.file, content.memory
    count = 1 if file.packing else max(1, round(memory / aim + 0.4))
    ends = (
        samples.cuts(file, content.start, count, content.breaking)
        if count > 1
        else [content.start, file.size]
    )
    share = memory / max(1, file.size - content.start)
    return [
        Span(file, start, stop, decoder, recipe, int((stop - start) * share))
        for start, stop in pairwise(ends)
    ] or [Span(file, content.start, content.start, decoder, recipe, 0)]


def _parts(spans: Sequence[Span], filters: Filters, request: Request) -> list[SpanPart]:
    sizes = [max(1, span.nbytes) for span in spans]
    groups = partition_sizes.joined(spans, sizes, request.partition_size, request.files(spans))
    return [SpanPart(tuple(group), filters, request.on_error) for group in groups]


def check_names(contents: Sequence[Content], kinds: Kinds, mixing: schemas.Mixing) -> None:
    """Raise all differences between the columns of files, unless these may differ."""
    by_names: dict[frozenset[str], list[str]] = {}
    for content in contents:
        by_names.setdefault(frozenset(content.names), []).append(content.file.url)
    shapes = [
        schemas.Shape({n: kinds[n] for n in kinds if n in names}, frozenset(), urls)
        for names, urls in by_names.items()
    ]
    check(schemas.merged(shapes, mixing)[1])
