"""Restore texts of CSV files that pandas reads as missing values, such as "NA" in quotes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from hyperplane.formats.csv.missing_values import PANDAS_MISSING
from hyperplane.formats.text_columns import TEXT, read_in_blocks

if TYPE_CHECKING:
    import pandas as pd

#: Notations of missing values that no program puts in quotes unless they are text.
_NAMED_MISSING = pa.array([text for text in PANDAS_MISSING if text], TEXT)


def restore_quoted_texts(frame: pd.DataFrame, data: bytes, separator: str) -> pd.DataFrame:
    r"""Set texts in quotes that pandas read as missing values; their columns become text.

    Empty quotes in a column of numbers are a missing value, as other programs write it. Programs
    that quote every text, or every value, also quote missing values: a file with quotes around a
    value that does not need them is left as pandas read it.

    Examples
    --------
    >>> import io, pandas as pd
    >>> data = b'a,b\n"NA",1\nNA,2\n'
    >>> restore_quoted_texts(pd.read_csv(io.BytesIO(data)), data, ",")["a"].tolist()
    ['NA', nan]
    >>> data = b'a,b\n"",1\n5.5,2\n'
    >>> restore_quoted_texts(pd.read_csv(io.BytesIO(data)), data, ",")["a"].tolist()
    [nan, 5.5]
    """
    import pandas as pd

    quoted_missing, needless = _compile_patterns(separator)
    if quoted_missing.search(data) is None or needless.search(data) is not None:
        return frame
    try:
        texts = _read_texts(data, separator, frame.shape[1])
    except (pa.ArrowException, ValueError):  # irregular rows, which pandas accepts
        return frame
    if texts.num_rows != len(frame):
        return frame
    for position, column in enumerate(texts.columns):
        present = frame.iloc[:, position].dropna()
        is_text = present.empty or pd.api.types.infer_dtype(present) == "string"
        if not is_text and not pc.any(pc.is_in(column, _NAMED_MISSING)).as_py():
            continue
        if texts.num_columns == 1:  # the only notation of a missing value, as lines are not empty
            column = pc.if_else(pc.equal(column, ""), None, column)
        if column.null_count < int(frame.iloc[:, position].isna().sum()):
            values = [float("nan") if value is None else value for value in column.to_pylist()]
            frame.isetitem(position, pd.Series(values).array)
    return frame


def _compile_patterns(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a quoted missing value, and of another value with needless quotes."""
    edge = re.escape(separator.encode()) + rb"\r\n"
    # A lookbehind after the quote is many times faster than matching the preceding byte first.
    opening, closing = rb'"(?<![^%b]")' % edge, rb'"(?![^%b])' % edge
    missing = rb"(?:%b)" % b"|".join(re.escape(text.encode()) for text in PANDAS_MISSING)
    # Blanks alone need quotes in a file of one column, whose line pandas would skip.
    needed = rb"(?:%b|[ \t]+)" % missing
    return (
        re.compile(opening + missing + closing),
        re.compile(rb'%b(?!%b")[^"%b]*%b' % (opening, needed, edge, closing)),
    )


def _read_texts(data: bytes, separator: str, count: int) -> pa.Table:
    """Return all columns as text, with nulls for missing values that are not in quotes."""
    names = [str(position) for position in range(count)]
    return read_in_blocks(
        lambda block: csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=block, column_names=names),
            parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, TEXT),
                null_values=PANDAS_MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ),
        data,
    ).slice(1)  # without the header, whose names may not be unique
