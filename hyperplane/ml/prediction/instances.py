"""Rows of input files: JSON lines, CSV, Parquet and TFRecord."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from hyperplane.core.errors import HyperplaneError, ReadError
from hyperplane.ml.prediction.json_values import NumberOutOfRange, parse_json
from hyperplane.ml.prediction.predictors import Predictor, order_columns
from hyperplane.ml.prediction.rows import Rows, describe_refusal
from hyperplane.ml.prediction.tf_records import parse_example, read_records
from hyperplane.objectstore.locations import File

#: Minimum rows that are read at once.
READ_ROWS = 8192
_BLANK = object()
_ADVICE = "add them to the file, or predict with a model of the columns that it has"


class _MissingColumns(ValueError):
    """A table without columns of the model."""


def read_rows(
    file: File,
    data_format: str,
    batch_size: int,
    columns: Sequence[str] | None,
    predictor: Predictor,
    model_url: str,
) -> Iterator[Rows]:
    """Yield the rows of a file, whole batches at a time.

    Raises
    ------
    ReadError
        If the file cannot be read, or a table lacks a column of the model.
    """
    count = batch_size * -(-READ_ROWS // batch_size)
    try:
        with file.open() as opened:
            if data_format in ("json", "tf-record"):
                parse = parse_lines if data_format == "json" else _parse_examples
                items = opened if data_format == "json" else read_records(opened)
                yield from parse(items, count)
            else:
                read = _read_parquet if data_format == "parquet" else _read_csv
                yield from read(opened, count, columns, predictor)
    except (HyperplaneError, MemoryError):
        raise
    except _MissingColumns as error:
        raise ReadError(file.url, f"{error} {model_url}; {_ADVICE}") from None
    except Exception as error:  # each library raises its own exceptions
        problem = f"cannot be read as {data_format} ({describe_refusal(error)})"
        raise ReadError(file.url, problem) from error


def parse_lines(lines: Iterable[bytes], count: int) -> Iterator[Rows]:
    """Yield the instances of JSON lines; blank lines have a number and are no instances."""
    return _parse_items(lines, count, _parse_line, "the line is not JSON")


def _parse_items(
    items: Iterable[bytes], count: int, parse: Callable[[bytes], Any], problem: str
) -> Iterator[Rows]:
    iterator = enumerate(items)
    while chunk := list(itertools.islice(iterator, count)):
        numbers, values, errors = [], [], []
        for number, item in chunk:
            try:
                value = parse(item)
            except (ValueError, RecursionError) as error:
                known = isinstance(error, NumberOutOfRange)
                errors.append((number, (str(error) if known else f"{problem}: {error}")[:300]))
                continue
            if value is not _BLANK:
                numbers.append(number)
                values.append(value)
        yield Rows(numbers, values, errors)


def _parse_line(line: bytes) -> Any:
    return parse_json(line) if line.strip() else _BLANK


def _parse_examples(messages: Iterable[bytes], count: int) -> Iterator[Rows]:
    return _parse_items(messages, count, parse_example, "the record is not an Example")


def _read_csv(
    opened: Any, count: int, columns: Sequence[str] | None, predictor: Predictor
) -> Iterator[Rows]:
    # At once: the types of columns are those of all rows, not of some.
    try:
        frame = pd.read_csv(opened, low_memory=False)
    except pd.errors.EmptyDataError:
        return
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        # pandas takes the first values of such rows as an index, and shifts the others to wrong
        # columns; values 0, 1, 2 ... cannot be distinguished from no index.
        raise ValueError(f"its rows have more values than the {len(frame.columns)} columns")
    frame = _select_columns(frame.columns, columns, predictor, frame)
    for start in range(0, len(frame), count):
        stop = min(start + count, len(frame))
        yield Rows(range(start, stop), frame.iloc[start:stop])


def _read_parquet(
    opened: Any, count: int, columns: Sequence[str] | None, predictor: Predictor
) -> Iterator[Rows]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(opened)
    names = _select_columns(file.schema_arrow.names, columns, predictor)
    start = 0
    for batch in file.iter_batches(count, columns=list(dict.fromkeys(names))):
        frame = batch.to_pandas()[names]
        yield Rows(range(start, start + len(frame)), frame)
        start += len(frame)


def _select_columns(
    found: Iterable[Any], columns: Sequence[str] | None, predictor: Predictor, frame: Any = None
) -> Any:
    """Return the names of the columns of the model, or a dataframe of them.

    Raises
    ------
    _MissingColumns
        With the names of all missing columns.
    """
    names, missing = order_columns([str(name) for name in found], columns, predictor)
    if missing:
        shown = ", ".join(map(repr, missing))
        raise _MissingColumns(f"lacks the columns {shown} of the model")
    return names if frame is None else frame.set_axis(map(str, frame.columns), axis=1)[names]
