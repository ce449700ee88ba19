"""From objects to the bytes of files."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hyperplane.errors import DataError
from hyperplane.optional import need
from hyperplane.storage.avro import write_avro
from hyperplane.storage.object_columns import find_mixed_kinds
from hyperplane.storage.part_schemas import serialize_schema
from hyperplane.storage.record_tables import build_table
from hyperplane.storage.text_formats import encode_lines, to_json
from hyperplane.storage.text_tables import to_csv, to_json_lines
from hyperplane.storage.time_zones import check_zones

#: Any time that a zip file can hold, the same for all.
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
_ID = re.compile(r'("__id__": )([0-9]+)')
_FILE = re.compile(r'("file": ")([0-9]+)(\.\w+")')


@dataclass(frozen=True)
class EncodedFile:
    """The bytes of one file.

    Parameters
    ----------
    data : bytes-like
        All of it.
    rows : int or None
        Rows, records or elements.
    schema : str
        Columns and types that come back, for the manifest; empty for what is no table.
    """

    data: Any
    rows: int | None = None
    schema: str = ""


def encode(obj: Any, kind: str, format: str, suffix: str) -> EncodedFile:  # noqa: A002
    """The bytes of a file that holds an object."""
    if kind == "table":
        return ENCODERS[format](obj)
    if kind == "bytes":
        return EncodedFile(bytes(obj))
    if kind == "text":
        return EncodedFile(obj.encode())
    if kind == "json":
        # Sorted, so that equal content is equal text.
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
    from matplotlib import rc_context

    file = io.BytesIO()
    # Without the time of day and drawn names in it, so that the same figure is the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with rc_context({"svg.hashsalt": "hyperplane"}):
        figure.savefig(file, format=suffix.lstrip("."), metadata=metadata)
    return file.getvalue()


def _encode_model(model: Any, format: str) -> bytes:  # noqa: A002
    if format == "skops":
        return _normalize_skops(need("skops.io", "ml").dumps(model))
    file = io.BytesIO()
    need("joblib", "ml").dump(model, file)
    return file.getvalue()


def _normalize_skops(made: bytes) -> bytes:
    """A file of skops without the time of day and the places in memory that it names things by."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        number = numbers.setdefault(found[2], len(numbers) + 1)
        return "".join([found[1], str(number), *found.groups()[2:]])

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made)) as had, zipfile.ZipFile(out, "w") as settled:
        schema = _FILE.sub(numbered, _ID.sub(numbered, had.read("schema.json").decode()))
        files = {name: had.read(name) for name in had.namelist()}
        files["schema.json"] = schema.encode()
        for name, data in files.items():
            stem, dot, end = name.partition(".")
            known = f"{numbers[stem]}{dot}{end}" if stem in numbers else name
            settled.writestr(zipfile.ZipInfo(known, _FIXED_TIME), data)
    return out.getvalue()


def _to_pandas(table: Any) -> Any:
    if hasattr(table, "to_pandas"):  # of Polars or Arrow
        return table.to_pandas()
    return table.to_frame() if hasattr(table, "to_frame") else table


def _to_arrow(table: Any, form: str, *, index: bool | None = None) -> Any:
    """A table of Arrow; the error of a column that it has no type for names it."""
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
    """A table of Polars, whose whole numbers of 128 bits Arrow lacks."""
    import pyarrow as pa

    columns = {}
    for name in table.columns:
        try:
            columns[name] = table.get_column(name).to_arrow()
        except pa.ArrowException as error:
            wrong = f"{form} has no form for {table.schema[name]}; convert it first, as with cast"
            raise DataError(name, wrong) from error
    return pa.table(columns)


def _check_kinds(column: Any, form: str) -> None:
    found = find_mixed_kinds(column)
    if found:
        advice = f"convert them first, as with df[{column.name!r}].astype(str)"
        said = f"{form} needs values of one type, and it holds {' and '.join(found)}"
        raise DataError(str(column.name), f"{said}; {advice}")


def _decode_categories(table: Any, kinds: Callable[[Any], bool]) -> Any:
    """A table in which columns of categories are their values, if the values are of some type."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and kinds(field.type.value_type):
            values = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.with_type(values.type), values)
    return table


@contextmanager
def _name_bad_column(frame: Any, form: str) -> Iterator[None]:
    """Have the error of a column that Arrow has no type for name it."""
    import pyarrow as pa

    odd = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        yield
    except odd as error:
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except odd as wrong:
                said = f"{form} needs values of one type, as numbers, text and times"
                advice = (
                    f"convert them first, as with df[{name!r}].astype(str) ({_one_line(wrong)})"
                )
                raise DataError(str(name), f"{said}; {advice}") from error
        raise


def _one_line(error: BaseException) -> str:
    """What an error of Arrow says, on one line."""
    return " ".join(str(error).split())[:200]


def _encode_parquet(table: Any) -> EncodedFile:
    import pyarrow as pa
    from pyarrow import parquet

    # Of other categories than text Parquet gives back the values.
    arrow = _decode_categories(_to_arrow(table, "Parquet"), lambda kind: not _is_text(kind))
    out = pa.BufferOutputStream()
    # A bit that flips on the way is an error for who reads with hyperplane.load, not other data.
    try:
        parquet.write_table(arrow, out, write_page_checksum=True)
    except pa.ArrowException as error:
        for name in arrow.column_names:
            try:
                parquet.write_table(arrow.select([name]), pa.BufferOutputStream())
            except pa.ArrowException as wrong:
                advice = f"Parquet has no form for it ({_one_line(wrong)}); convert or drop it"
                raise DataError(name, advice) from error
        raise
    return EncodedFile(memoryview(out.getvalue()), arrow.num_rows, serialize_schema(arrow))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _encode_avro(table: Any) -> EncodedFile:
    arrow = _decode_categories(_to_arrow(table, "Avro"), lambda kind: True)
    return EncodedFile(write_avro(arrow), arrow.num_rows, serialize_schema(arrow))


def _to_text_table(table: Any, form: str) -> Any:
    """A table of Arrow for text; the index comes first, if it is more than numbers of rows."""
    import pyarrow as pa

    if isinstance(table, pa.Table) or type(table).__module__.startswith("polars"):
        return _decode_categories(_to_arrow(table, form), lambda kind: True)
    frame = _to_pandas(table)
    kept = _is_index_kept(frame)
    arrow = _decode_categories(_to_arrow(frame, form, index=kept), lambda kind: True)
    levels = frame.index.nlevels if kept else 0
    names = arrow.column_names
    return arrow.select([*names[len(names) - levels :], *names[: len(names) - levels]])


def _csv_encoder(separator: str, form: str) -> Callable[[Any], EncodedFile]:
    def write(table: Any) -> EncodedFile:
        arrow = _to_text_table(table, form)
        return EncodedFile(to_csv(arrow, separator), arrow.num_rows, serialize_schema(arrow))

    return write


def _is_index_kept(frame: Any) -> bool:
    """Whether text is to hold the index: it has a name, or is more than the numbers of the rows."""
    from pandas.api.types import is_integer_dtype

    for name in frame.index.names:
        if name is not None and name in frame.columns:
            raise DataError(str(name), "is a name of the index, too; rename one of them")
    return frame.index.name is not None or not is_integer_dtype(frame.index.dtype)


def _encode_json_lines(table: Any) -> EncodedFile:
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
    """The items of a partition of a bag.

    Raises
    ------
    WrongType
        When the format has no form for an item; it names the item and what is wrong inside.
    """
    held = list(items)
    if format not in ("parquet", "avro"):
        return EncodedFile(encode_lines(held, format), len(held))
    return replace(ENCODERS[format](build_table(held, format)), schema="")
