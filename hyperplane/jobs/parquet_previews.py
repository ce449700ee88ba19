"""Program that prints the first rows of a Parquet file, within limits of memory.

It is started by :mod:`hyperplane.jobs.parquet_process`, and imports no module of this package.

Ten rows of a column may take any memory: a list has any number of values, a page any size, and a
value of a dictionary may be repeated. Only columns without nested values are read, one after the
other, and only if what is stored of them in the row groups of the first rows is small. The sizes
are those in the footer of the file. For a file that misstates them, the process has a limit.
"""

from __future__ import annotations

import io
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, BinaryIO

if __name__ == "__main__":
    # Half of the time of the start; pyarrow needs neither it nor pandas for what is done here.
    sys.modules["numpy"] = None  # type: ignore[assignment]

import pyarrow as pa
import pyarrow.parquet as pq

#: Largest footer of a file: in memory, it takes about ten times as much.
_FOOTER_BYTES = 8_000_000
#: Most row groups that are looked at, of which some may be empty.
_MOST_GROUPS = 20
#: Most uncompressed bytes of a column in the row groups of the first rows, and of its values where
#: each may be repeated in memory.
_COLUMN_BYTES, _REPEATED_BYTES = 32_000_000, 3_000_000
#: Encodings of texts that pyarrow 26 does not read into a dictionary; DuckDB and parquet-mr write
#: them in version 2 of the format.
_DELTA_ENCODINGS = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})


def main() -> None:
    """Print the first rows of the file that is the standard input, as JSON."""
    rows, columns, length, memory, seconds = map(int, sys.argv[1:])
    try:
        _set_limits(memory, seconds)
        with open(0, "rb", closefd=False) as file:
            answer = read_first_rows(file, rows, columns, length)
    except Exception as error:  # noqa: BLE001 - what damaged files raise depends on their content
        answer = {"error": type(error).__name__}
    sys.stdout.write(json.dumps(answer))


def _set_limits(memory: int, seconds: int) -> None:
    """Limit the memory beyond that of the imported modules, on Linux, and the processor time."""
    _lower_limit(resource.RLIMIT_CORE, 0)
    # Of two equal limits the kernel obeys the hard one, with SIGKILL, as for a lack of memory.
    _lower_limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        _lower_limit(resource.RLIMIT_AS, used + memory)


def _lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit; one of the system that is lower remains, as it cannot be raised."""
    hard = soft if hard is None else hard
    present = resource.getrlimit(kind)[1]
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(kind, (soft, hard))


def read_first_rows(file: BinaryIO, rows: int, columns: int, length: int) -> dict[str, Any]:
    """Return the first rows of the first columns of a file, with cells cut after a length.

    The fields are those of :class:`hyperplane.jobs.parquet_process.FirstRows`.

    Raises
    ------
    ValueError
        If the description of the table in the file is too large.
    pyarrow.ArrowException, OSError
        If the file is damaged.
    """
    _check_footer(file)
    metadata = pq.read_metadata(file)
    groups = _choose_groups(metadata, rows)
    small = _find_small_columns(metadata, groups)
    # Values of a dictionary are not repeated in memory.
    texts = [path for path, as_dictionary in small.items() if as_dictionary]
    # With buffers, pages are read one after the other instead of whole columns.
    with pq.ParquetFile(
        file, metadata=metadata, read_dictionary=texts, buffer_size=65_536, pre_buffer=False
    ) as opened:
        schema = metadata.schema.to_arrow_schema()
        count = min(rows, sum(metadata.row_group(number).num_rows for number in groups))
        shown = [
            _show_column(opened, groups, field, count, length)
            if field.name in small
            else [f"({field.type})"[:length]] * count
            for field in list(schema)[:columns]
        ]
    return {
        "names": schema.names[:columns], "columns": shown, "row_count": metadata.num_rows,
        "column_count": len(schema),
    }  # fmt: skip


def _check_footer(file: BinaryIO) -> None:
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - 8))
    if int.from_bytes(file.read(4), "little") > _FOOTER_BYTES:
        raise ValueError("the description of the table is too large")
    file.seek(0)


def _choose_groups(metadata: Any, rows: int) -> list[int]:
    """Return the numbers of the row groups with the first rows."""
    chosen: list[int] = []
    for number in range(min(metadata.num_row_groups, _MOST_GROUPS)):
        if rows <= 0:
            break
        count = metadata.row_group(number).num_rows
        if count:
            chosen.append(number)
        rows -= count
    return chosen


def _find_small_columns(metadata: Any, groups: Sequence[int]) -> dict[str, bool]:
    """Return columns without nested values of which little is stored.

    The value of a column is whether it is to be read as a dictionary.
    """
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    counts = Counter(leaf.path for leaf in leaves)
    # The reader takes the name of a column also for the parent of one with a dot in its name.
    for leaf in leaves:
        parts = leaf.path.split(".")
        counts.update(".".join(parts[:end]) for end in range(1, len(parts)))
    small, chosen = {}, [metadata.row_group(group) for group in groups]
    for number, leaf in enumerate(leaves):
        is_flat = leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
        if is_flat and counts[leaf.path] == 1:
            encodings = {each for group in chosen for each in group.column(number).encodings}
            if _is_small(chosen, number, leaf, encodings):
                is_text = leaf.physical_type == "BYTE_ARRAY"
                small[leaf.path] = is_text and not encodings & _DELTA_ENCODINGS
    return small


def _is_small(groups: Sequence[Any], number: int, leaf: Any, encodings: AbstractSet[str]) -> bool:
    """Whether the values of a column in some row groups are few and small."""
    if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and leaf.length > _REPEATED_BYTES:
        return False
    chunks = [group.column(number) for group in groups]
    if any(chunk.num_values != group.num_rows for chunk, group in zip(chunks, groups, strict=True)):
        return False
    # A value with DELTA_BYTE_ARRAY may repeat the previous one; a dictionary may have pages with
    # other encodings after it, and is then not read as one.
    delta = encodings & _DELTA_ENCODINGS
    has_dictionary = any("DICT" in each for each in encodings)
    repeats = "DELTA_BYTE_ARRAY" in delta or (bool(delta) and has_dictionary)
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    return bool(size <= (_REPEATED_BYTES if repeats else _COLUMN_BYTES))


def _show_column(file: Any, groups: Sequence[int], field: Any, rows: int, length: int) -> list[str]:
    """Return the first cells of a column, or that none of its values can be read."""
    try:
        return list(_read_column(file, groups, field.name, rows, length))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - such as an encoding that pyarrow does not support
        return [f"({field.type}, not readable)"[:length]] * rows


def _read_column(
    file: Any, groups: Sequence[int], name: str, rows: int, length: int
) -> Iterator[str]:
    """Yield the first cells of a column as text."""
    if not rows:
        return
    for batch in file.iter_batches(rows, row_groups=groups, columns=[name], use_threads=False):
        values = batch.column(0).slice(0, rows)
        rows -= len(values)
        if not isinstance(values, pa.DictionaryArray):
            yield from (_format_cell(value, length) for value in values)
        else:  # each value of a dictionary once, as it may be large
            indices = values.indices.to_pylist()
            texts: dict[int | None, str] = {
                index: _format_cell(values.dictionary[index], length)
                for index in set(indices) - {None}
            }
            yield from (texts.get(index, "") for index in indices)
        if rows <= 0:
            return


def _format_cell(value: Any, length: int) -> str:
    """Return a value as text, of which only the beginning is copied if it is long."""
    if not value.is_valid:
        return ""
    kind = value.type
    try:
        if getattr(kind, "unit", "") == "ns":  # Python has microseconds
            value = value.cast(_to_microseconds(kind), safe=False)
        cell = value.as_py()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - such as a date after the year 9999, or no text of UTF-8
        return f"({kind}, not readable)"[:length]
    cell = cell[: length + 1] if isinstance(cell, str | bytes) else cell
    return "" if cell is None else str(cell)


def _to_microseconds(kind: Any) -> Any:
    """Return a type of times in nanoseconds with microseconds instead."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")


if __name__ == "__main__":
    main()
