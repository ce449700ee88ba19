"""Read the footers of ORC files: schemas, numbers of rows and stripes, and sizes in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import orc

from hyperplane.core.errors import ReadError
from hyperplane.core.units import format_bytes, plural
from hyperplane.formats.base import SizeEstimate
from hyperplane.formats.file_changes import check_local_size, check_opened_size
from hyperplane.formats.orc.write import read_recorded_schema, restore_types
from hyperplane.formats.reader import DAMAGE, READER_THREADS, FileUrls, translate_read_errors
from hyperplane.formats.size_estimates import sample_evenly, scale_to_all
from hyperplane.objectstore.locations import File

#: Maximum number of columns that are read to estimate the width of text and lists.
SAMPLED_COLUMNS = 32
#: Assumed bytes of a value that cannot be sampled.
ASSUMED_WIDTH = 16
#: Maximum number of footers that are read for an estimate; the result is scaled to all files.
SAMPLED_FOOTERS = 256

#: Errors of Arrow for files that have no valid footer.
_OTHER_FORMAT = ("Not an ORC file", "File size too small")


@dataclass(frozen=True)
class OrcFooter:
    """The footer of one ORC file.

    Parameters
    ----------
    file : File
        The file.
    schema : pyarrow.Schema
        Its columns.
    rows, stripes : int
        Number of rows and of stripes. pyarrow does not return the rows of each stripe.
    """

    file: File
    schema: pa.Schema
    rows: int
    stripes: int


def read_footers(files: Sequence[File]) -> tuple[list[OrcFooter], list[ReadError]]:
    """Return the footers of the files, and an error for each file that has no valid one."""
    with ThreadPoolExecutor(min(READER_THREADS, max(1, len(files)))) as pool:
        results = list(pool.map(_try_read, files))
    footers = [result for result in results if isinstance(result, OrcFooter)]
    return footers, [result for result in results if isinstance(result, ReadError)]


def _try_read(file: File) -> OrcFooter | ReadError:
    try:
        with translate_read_errors(FileUrls((file.url,))):
            return _read_footer(file)
    except ReadError as error:
        if any(text in str(error) for text in _OTHER_FORMAT):
            advice = "pass format= if it has another format, or copy it again"
            return ReadError(file.url, f"not an ORC file, or an incomplete one; {advice}")
        return error


def _read_footer(file: File) -> OrcFooter:
    with open_orc(file) as opened:
        schema = read_schema(opened)
        _check_names(schema)
        return OrcFooter(file, schema, opened.nrows, opened.nstripes)


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeError if a name is damaged, also in structs: pyarrow decodes names late."""
    for field in fields:
        _ = field.name
        _check_names(field.type.field(number) for number in range(field.type.num_fields))


@contextmanager
def open_orc(file: File) -> Iterator[orc.ORCFile]:
    """Open an ORC file of any file system."""
    check_local_size(file)
    with _open_bytes(file) as opened:
        check_opened_size(file, opened)
        yield orc.ORCFile(opened)


def _open_bytes(file: File) -> Any:
    # Not a memory map, which ends the process if the file is truncated meanwhile.
    return pa.OSFile(file.path) if file.store.local else file.store.system.open(file.path, "rb")


def read_schema(opened: orc.ORCFile) -> pa.Schema:
    """Return the schema that :func:`hyperplane.save` has recorded, or that of the file."""
    schema = opened.schema
    recorded = read_recorded_schema(schema)
    return schema if recorded is None else recorded


def read_stripe(opened: orc.ORCFile, number: int, names: Collection[str]) -> pa.Table:
    """Return some columns of a stripe, with the types of :func:`read_schema`."""
    batch = opened.read_stripe(number, columns=list(names))
    # pyarrow takes the column "a.b" for the field b of a column a, if there is one.
    if set(batch.schema.names) != set(names):
        batch = opened.read_stripe(number)
    table = pa.Table.from_batches([batch]).select(list(names))
    schema = read_schema(opened)
    selected = pa.schema([schema.field(name) for name in names])
    return table if table.schema.equals(selected) else restore_types(table, selected)


def find_fixed_width(kind: pa.DataType) -> int | None:
    """Return the bytes of a value in memory, or None if they depend on the value.

    Examples
    --------
    >>> find_fixed_width(pa.int16()), find_fixed_width(pa.bool_()), find_fixed_width(pa.string())
    (2, 1, None)
    """
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return None


def estimate_row_size(footers: Sequence[OrcFooter], names: Collection[str]) -> float:
    """Estimate the bytes in memory of some columns of a row, from stripes of one file."""
    largest = max(footers, key=lambda footer: footer.rows)
    chosen = [field for field in largest.schema if field.name in names]
    widths = {field.name: find_fixed_width(field.type) for field in chosen}
    fixed = sum(width for width in widths.values() if width is not None)
    variable = [name for name, width in widths.items() if width is None]
    if not variable or not largest.rows:
        return max(1.0, fixed)
    sampled = variable[:SAMPLED_COLUMNS]
    return fixed + _sample_width(largest.file, sampled) * len(variable) / len(sampled)


def _sample_width(file: File, names: list[str]) -> float:
    """Return the bytes in memory of some columns of a row, in three stripes of a file."""
    rows = nbytes = 0
    try:
        with open_orc(file) as opened:
            last = opened.nstripes - 1
            for number in sorted({0, last // 2, last}):
                table = read_stripe(opened, number, names)
                rows += table.num_rows
                nbytes += table.nbytes
    except DAMAGE:
        return float(ASSUMED_WIDTH * len(names))  # the task that reads the file raises the error
    return nbytes / max(1, rows)


def estimate_files(files: Sequence[File]) -> SizeEstimate:
    """Estimate the size of ORC files from some footers, and from stripes of one file."""
    sampled = sample_evenly(files, SAMPLED_FOOTERS)
    footers, errors = read_footers(sampled)
    if errors:
        raise errors[0]
    width = estimate_row_size(footers, footers[0].schema.names)
    total = scale_to_all(round(sum(footer.rows for footer in footers) * width), sampled, files)
    how = f"footers of {plural(len(sampled), 'ORC file')} and stripes of one, "
    return SizeEstimate(total, f"{how}{format_bytes(total)} in memory")
