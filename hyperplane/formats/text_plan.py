"""Plan partitions of text files: the common steps for CSV and JSON lines."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd
import polars as pl

from hyperplane.core.errors import Fault, check
from hyperplane.formats import hive_partitions, partition_sizes, schemas, text_samples
from hyperplane.formats.byte_ranges import (
    ByteRange,
    ByteRangeDecoder,
    ByteRangePartition,
)
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.file_changes import ANY_HEAD, HeadChecksum
from hyperplane.formats.filters import (
    Filters,
    describe_columns,
    list_filter_columns,
    suggest_similar,
)
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.objectstore.locations import File

Kinds = dict[str, pl.DataType]
_DTYPES = (
    "a pandas type: 'int64', 'Int64', 'float64', 'bool', 'boolean', 'str', or a narrower integer "
    "or float type"
)


@dataclass
class TextFile:
    """A text file, as inferred from samples.

    Parameters
    ----------
    file : File
        The file.
    start : int
        Offset of its first record.
    names : tuple of str
        Its columns.
    density : float
        Ratio of bytes in memory to bytes of text.
    multiline : bool
        Whether quoted values may contain line ends.
    head : HeadChecksum
        Checksum of its first bytes.
    """

    file: File
    start: int
    names: tuple[str, ...]
    density: float = 1.0
    multiline: bool = False
    head: HeadChecksum = ANY_HEAD

    @property
    def memory(self) -> int:
        """Estimated bytes in memory."""
        size = self.file.size * (text_samples.COMPRESSION_RATIO if self.file.compression else 1)
        return int(size * self.density)


@dataclass(frozen=True)
class TextOptions:
    """Arguments of ``read`` that apply to text files only."""

    dtypes: Any = field(default_factory=dict)
    parse_dates: Any = None
    separator: str | None = None
    encoding: str = "utf-8"
    names: Sequence[str] | None = None
    multiline: bool = False
    na_values: Any = ()

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> TextOptions:
        """Return the options; raise a RequestError that lists all invalid values.

        ``dtypes``, ``parse_dates`` and ``na_values`` are checked later, with the columns of the
        files.
        """
        checks: dict[str, tuple[Callable[[Any], bool], str]] = {
            "separator": (_is_one_ascii, "one ASCII character"),
            "names": (_are_unique_names, "a list of unique names"),
            "multiline": (lambda v: isinstance(v, bool), "True or False"),
        }
        faults = [
            Fault(name, repr(options[name])[:80], allowed)
            for name, (is_valid, allowed) in checks.items()
            if name in options and not is_valid(options[name])
        ]
        encoding, encoding_faults = _check_encoding(options.get("encoding", cls.encoding))
        check([*faults, *encoding_faults])
        return cls(**{**options, "encoding": encoding})


def _is_one_ascii(separator: Any) -> bool:
    return isinstance(separator, str) and len(separator) == 1 and separator.isascii()


def _check_encoding(encoding: Any) -> tuple[str, list[Fault]]:
    """Return the encoding, utf-8 for utf-8-sig, and its faults."""
    allowed = "an encoding that includes ASCII, such as 'latin-1'"
    try:
        if codecs.lookup(encoding).name == "utf-8-sig":
            return "utf-8", []  # a byte order mark is skipped with every encoding
        if "\n,".encode(encoding) == b"\n,":
            return encoding, []
        advice = "convert the files to utf-8"
    except LookupError:
        advice = "Python knows no encoding of this name"
    except (TypeError, ValueError):
        advice = ""
    return "", [Fault("encoding", repr(encoding)[:80], allowed, advice)]


def _are_unique_names(names: Any) -> bool:
    listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return listed and 0 < len(set(names)) == len(names)


def parse_dtypes(dtypes: Any, known: Mapping[str, Any]) -> tuple[Kinds, set[str], list[Fault]]:
    """Parse ``dtypes`` into types by column, the nullable columns among them, and faults."""
    kinds: Kinds = {}
    optional: set[str] = set()
    if not isinstance(dtypes, Mapping):
        if _to_polars_type(dtypes) is None:
            allowed = f"a mapping of column to type, or one type: {_DTYPES}"
            return {}, set(), [Fault("dtypes", repr(dtypes)[:80], allowed)]
        dtypes = dict.fromkeys(known, dtypes)
    faults = []
    for name, declared in dtypes.items():
        if name not in known:
            faults.append(
                Fault("dtypes", repr(name), describe_columns(known), suggest_similar(name, known))
            )
            continue
        kind = _to_polars_type(declared)
        if kind is None:
            faults.append(
                Fault("dtypes", f"{name}: {declared!r}", _DTYPES, "use parse_dates for times")
            )
            continue
        kinds[name] = kind
        if pd.api.types.is_extension_array_dtype(pd.api.types.pandas_dtype(declared)):
            optional.add(name)
    return kinds, optional, faults


def find_non_nullable(declared: Kinds, optional: set[str]) -> tuple[str, ...]:
    """Return the columns for which the caller set a dtype that cannot hold missing values."""
    return tuple(
        name
        for name, kind in declared.items()
        if name not in optional and (kind.is_integer() or isinstance(kind, pl.Boolean))
    )


def find_pandas_dtypes(dtypes: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the dtypes set by the caller that differ from the default for the same values.

    For example ``Float64``, whose values could also be ``float64``, but which behaves differently.
    """
    pandas_dtypes = {}
    for name in names:
        dtype = pd.api.types.pandas_dtype(dtypes[name] if isinstance(dtypes, Mapping) else dtypes)
        text = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
        if text or isinstance(dtype, (pd.Float32Dtype, pd.Float64Dtype, pd.ArrowDtype)):
            pandas_dtypes[name] = dtype
    return pandas_dtypes


def _to_polars_type(declared: Any) -> pl.DataType | None:
    if declared is None:  # pandas would take None for float64
        return None
    try:
        dtype = pd.api.types.pandas_dtype(declared)
    except (TypeError, ValueError, SyntaxError):  # SyntaxError for text with thousands of digits
        return None
    if isinstance(dtype, pd.StringDtype):
        return pl.String()
    numpy: Any = getattr(dtype, "numpy_dtype", dtype)
    if getattr(numpy, "kind", "") not in "biuf" or numpy.itemsize > 8 or str(numpy) == "float16":
        return None
    name = "Boolean" if numpy.kind == "b" else numpy.name.title().replace("Ui", "UI")
    kind: pl.DataType = getattr(pl, name)()
    return kind


def make_read_plan(
    text_files: Sequence[TextFile],
    kinds: Mapping[str, pl.DataType],
    optional: set[str],
    decoder: Callable[[TextFile], ByteRangeDecoder],
    request: ReadRequest,
    pandas_dtypes: Mapping[str, Any],
    has_nan: bool = True,
) -> ReadPlan:
    """Divide and join files into partitions.

    ``has_nan`` is whether the decoder may return NaN for missing values.
    """
    keys, key_types, partial_keys = hive_partitions.parse_hive_keys(
        [text_file.file.path for text_file in text_files], kinds
    )
    columns = {**kinds, **key_types}
    filters, chosen = request.resolve(columns, list(columns))
    filter_schema = {name: columns[name] for name in list_filter_columns(filters)}
    total = sum(text_file.memory for text_file in text_files)
    target_size = partition_sizes.choose_target_size(total, request.partition_size)
    byte_ranges: list[ByteRange] = []
    for text_file in text_files:
        values = dict(keys.get(text_file.file.path, ()))
        used = {**chosen, **filter_schema}
        constants = tuple((name, values.get(name)) for name in used if name not in text_file.names)
        mapping = ColumnMapping(
            tuple(chosen.items()),
            tuple(filter_schema.items()),
            constants=constants,
            any_column=next(iter(text_file.names), None),
            has_nan=has_nan,
        )
        byte_ranges += _split_file(text_file, decoder(text_file), mapping, target_size)
    parts = _make_partitions(byte_ranges, filters, request)
    absent = {
        name
        for name in chosen
        if name in kinds and any(name not in text_file.names for text_file in text_files)
    }
    absent |= partial_keys.intersection(chosen)
    return ReadPlan(parts, chosen, optional | absent, pandas_dtypes=pandas_dtypes)


def _split_file(
    text_file: TextFile, decoder: ByteRangeDecoder, mapping: ColumnMapping, target_size: float
) -> list[ByteRange]:
    file, memory = text_file.file, text_file.memory
    count = 1 if file.compression else max(1, round(memory / target_size + 0.4))
    offsets = (
        text_samples.find_split_offsets(file, text_file.start, count, text_file.multiline)
        if count > 1
        else [text_file.start, file.size]
    )
    share = memory / max(1, file.size - text_file.start)
    return [
        ByteRange(
            file, start, stop, decoder, mapping, int((stop - start) * share), head=text_file.head
        )
        for start, stop in pairwise(offsets)
    ] or [ByteRange(file, text_file.start, text_file.start, decoder, mapping, 0)]


def _make_partitions(
    byte_ranges: Sequence[ByteRange], filters: Filters, request: ReadRequest
) -> list[ByteRangePartition]:
    sizes = [max(1, byte_range.nbytes) for byte_range in byte_ranges]
    groups = partition_sizes.group_neighbors(
        byte_ranges, sizes, request.partition_size, request.files(byte_ranges)
    )
    return [ByteRangePartition(tuple(group), filters, request.on_error) for group in groups]


def check_same_columns(
    text_files: Sequence[TextFile], kinds: Kinds, schema_mode: schemas.SchemaMode
) -> None:
    """Raise RequestError with all differences between the columns of files, unless allowed."""
    by_names: dict[frozenset[str], list[str]] = {}
    for text_file in text_files:
        by_names.setdefault(frozenset(text_file.names), []).append(text_file.file.url)
    file_schemas = [
        schemas.FileSchema({n: kinds[n] for n in kinds if n in names}, frozenset(), urls)
        for names, urls in by_names.items()
    ]
    check(schemas.merge_schemas(file_schemas, schema_mode)[1])
