"""Encode objects as the bytes of files."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hyperplane.core.errors import DataError
from hyperplane.core.optional import need
from hyperplane.formats.avro.encoder import write_avro
from hyperplane.formats.csv.write import to_csv, to_json_lines
from hyperplane.formats.json_values import encode_lines, to_json
from hyperplane.formats.pandas_frames.mixed_kinds import find_mixed_kinds
from hyperplane.formats.pandas_frames.time_zones import check_zones
from hyperplane.formats.record_tables import build_table
from hyperplane.storage.part_schemas import serialize_schema

#: A fixed time stamp for zip members, so that equal models give equal bytes.
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_ID = re.compile(r'("__id__": )([0-9]+)')
_FILE = re.compile(r'("file": ")([0-9]+)(\.\w+")')


@dataclass(frozen=True)
class EncodedFile:
    """The bytes of one file.

    Parameters
    ----------
    data : bytes-like
        Content.
    rows : int or None
        Rows, records, or elements.
    schema : str
        Columns and types for the manifest; empty if the object is not a table.
    """

    data: Any
    rows: int | None = None
    schema: str = ""


def encode(obj: Any, kind: str, format: str, suffix: str) -> EncodedFile:  # noqa: A002
    """Return the bytes of a file that holds an object."""
    if kind == "table":
        return ENCODERS[format](obj)
    if kind == "bytes":
        return EncodedFile(bytes(obj))
    if kind == "text":
        return EncodedFile(obj.encode())
    if kind == "json":
        # Sorted, so that equal dicts give equal bytes.
        text = to_json(obj, "obj", indent=1, sort_keys=True)
        return EncodedFile(f"{text}\n".encode())
    if kind == "numpy":
        import numpy as np

        file = io.BytesIO()
        np.save(file, obj, allow_pickle=False)
        return EncodedFile(file.getvalue(), int(obj.shape[0]) if obj.ndim else 1)
    if kind == "figure":
        return EncodedFile(_encode_figure(obj, suffix))
    return EncodedFile(_encode_model(obj, format))


def _encode_figure(figure: Any, suffix: str) -> bytes:
    """Return a matplotlib figure as an image file."""
    from matplotlib import rc_context

    file = io.BytesIO()
    # Without creation date and random ids, so that equal figures give equal bytes.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with rc_context({"svg.hashsalt": "hyperplane"}):
        figure.savefig(file, format=suffix.lstrip("."), metadata=metadata)
    return file.getvalue()


def _encode_model(model: Any, format: str) -> bytes:  # noqa: A002
    """Return a fitted model as a skops or joblib file."""
    if format == "skops":
        return _normalize_skops(need("skops.io", "ml").dumps(model))
    file = io.BytesIO()
    need("joblib", "ml").dump(model, file)
    return file.getvalue()


def _normalize_skops(archive: bytes) -> bytes:
    """Return a skops file without time stamps and memory addresses, for reproducible bytes."""
    numbers: dict[str, int] = {}

    def renumber(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[2], len(numbers) + 1)
        return "".join([match[1], str(number), *match.groups()[2:]])

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as original, zipfile.ZipFile(out, "w") as normalized:
        schema = _FILE.sub(renumber, _ID.sub(renumber, original.read("schema.json").decode()))
        files = {name: original.read(name) for name in original.namelist()}
        files["schema.json"] = schema.encode()
        for name, data in files.items():
            stem, dot, end = name.partition(".")
            known = f"{numbers[stem]}{dot}{end}" if stem in numbers else name
            normalized.writestr(zipfile.ZipInfo(known, _FIXED_TIME), data)
    return out.getvalue()


def _to_pandas(table: Any) -> Any:
    """Return any table as a pandas dataframe."""
    if hasattr(table, "to_pandas"):  # Polars and Arrow
        return table.to_pandas()
    return table.to_frame() if hasattr(table, "to_frame") else table


def _to_arrow(table: Any, form: str, *, index: bool | None = None) -> Any:
    """Return any table as an Arrow table; errors name the column."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    if type(table).__module__.startswith("polars"):
        return _polars_to_arrow(table, form)
    frame = _to_pandas(table)
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.SparseDtype):
            frame = frame.copy(deep=False)
            frame.isetitem(place, frame.iloc[:, place].sparse.to_dense())
        elif dtype == "object":
            _check_kinds(frame.iloc[:, place], form)
    check_zones(frame, form)
    with _name_bad_column(frame, form):
        return pa.Table.from_pandas(frame, preserve_index=index)


def _polars_to_arrow(table: Any, form: str) -> Any:
    """Return a Polars table as an Arrow table, which has no 128-bit integers."""
    import pyarrow as pa

    columns = {}
    for name in table.columns:
        try:
            columns[name] = table.get_column(name).to_arrow()
        except pa.ArrowException as error:
            wrong = f"{form} does not support {table.schema[name]}; convert it first with cast()"
            raise DataError(name, wrong) from error
    return pa.table(columns)


def _check_kinds(column: Any, form: str) -> None:
    """Raise DataError if a column of Python objects has values of several kinds."""
    kinds = find_mixed_kinds(column)
    if kinds:
        advice = f"convert it first, for example with df[{column.name!r}].astype(str)"
        wrong = f"{form} requires values of one type, and it holds {' and '.join(kinds)}"
        raise DataError(str(column.name), f"{wrong}; {advice}")


def _decode_categories(table: Any, kinds: Callable[[Any], bool]) -> Any:
    """Replace categorical columns whose value type satisfies ``kinds`` by their values."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and kinds(field.type.value_type):
            values = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.with_type(values.type), values)
    return table


@contextmanager
def _name_bad_column(frame: Any, form: str) -> Iterator[None]:
    """Raise conversion errors of this block as a DataError that names the column."""
    import pyarrow as pa

    odd = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        yield
    except odd as error:
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except odd as wrong:
                needs = f"{form} requires values of one type, such as numbers, text or times"
                advice = f"convert it with df[{name!r}].astype(str) ({_one_line(wrong)})"
                raise DataError(str(name), f"{needs}; {advice}") from error
        raise


def _one_line(error: BaseException) -> str:
    """Return the message of an Arrow error on one line, shortened."""
    return " ".join(str(error).split())[:200]


def _encode_parquet(table: Any) -> EncodedFile:
    """Return a table as a Parquet file with page checksums."""
    import pyarrow as pa
    from pyarrow import parquet

    # Parquet restores only categories of text; others come back as values.
    arrow = _decode_categories(_to_arrow(table, "Parquet"), lambda kind: not _is_text(kind))
    out = pa.BufferOutputStream()
    # With page checksums hyperplane.load reports corrupted pages instead of wrong values.
    try:
        parquet.write_table(arrow, out, write_page_checksum=True)
    except pa.ArrowException as error:
        for name in arrow.column_names:
            try:
                parquet.write_table(arrow.select([name]), pa.BufferOutputStream())
            except pa.ArrowException as wrong:
                message = f"Parquet does not support it ({_one_line(wrong)}); convert or drop it"
                raise DataError(name, message) from error
        raise
    return EncodedFile(memoryview(out.getvalue()), arrow.num_rows, serialize_schema(arrow))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _encode_avro(table: Any) -> EncodedFile:
    """Return a table as an Avro file."""
    arrow = _decode_categories(_to_arrow(table, "Avro"), lambda kind: True)
    return EncodedFile(write_avro(arrow), arrow.num_rows, serialize_schema(arrow))


def _to_text_table(table: Any, form: str) -> Any:
    """Return an Arrow table for text formats, index first unless it is only row numbers."""
    import pyarrow as pa

    if isinstance(table, pa.Table) or type(table).__module__.startswith("polars"):
        return _decode_categories(_to_arrow(table, form), lambda kind: True)
    frame = _to_pandas(table)
    has_index = _is_index_kept(frame)
    arrow = _decode_categories(_to_arrow(frame, form, index=has_index), lambda kind: True)
    levels = frame.index.nlevels if has_index else 0
    names = arrow.column_names
    return arrow.select([*names[len(names) - levels :], *names[: len(names) - levels]])


def _csv_encoder(separator: str, form: str) -> Callable[[Any], EncodedFile]:
    """Return an encoder for CSV with a separator."""

    def write(table: Any) -> EncodedFile:
        arrow = _to_text_table(table, form)
        return EncodedFile(to_csv(arrow, separator), arrow.num_rows, serialize_schema(arrow))

    return write


def _is_index_kept(frame: Any) -> bool:
    """Return whether text holds the index: it has a name, or is not integers."""
    from pandas.api.types import is_integer_dtype

    for name in frame.index.names:
        if name is not None and name in frame.columns:
            raise DataError(str(name), "is also a name of the index; rename one of them")
    return frame.index.name is not None or not is_integer_dtype(frame.index.dtype)


def _encode_json_lines(table: Any) -> EncodedFile:
    """Return a table as JSON lines."""
    arrow = _to_text_table(table, "JSON")
    return EncodedFile(to_json_lines(arrow), arrow.num_rows, serialize_schema(arrow))


ENCODERS: Mapping[str, Callable[[Any], EncodedFile]] = {
    "parquet": _encode_parquet,
    "avro": _encode_avro,
    "csv": _csv_encoder(",", "CSV"),
    "tsv": _csv_encoder("\t", "TSV"),
    "jsonl": _encode_json_lines,
}


def encode_records(items: Any, format: str) -> EncodedFile:  # noqa: A002
    """Return the items of a bag partition as a file.

    Raises
    ------
    WrongType
        If the format does not support an item; the message names the item.
    """
    records = list(items)
    if format not in ("parquet", "avro"):
        return EncodedFile(encode_lines(records, format), len(records))
    return replace(ENCODERS[format](build_table(records, format)), schema="")
