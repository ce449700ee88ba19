"""Parse a sample of a CSV file of unknown layout, to estimate the size of the file."""

from __future__ import annotations

import functools
import io
from typing import Any


def parse_sample(sample: io.BytesIO) -> Any:
    """Return a pandas dataframe of the first lines of a CSV file."""
    import pandas as pd

    # The sniffer of pandas may split a single column at a letter.
    header = sample.getvalue().partition(b"\n")[0].decode(errors="replace")
    separator = max(",;\t|", key=header.count)
    read = functools.partial(pd.read_csv, sep=separator, on_bad_lines="skip")
    try:
        return read(sample)
    except pd.errors.ParserError:
        return read(io.BytesIO(_whole_records(sample.getvalue())))


def _whole_records(text: bytes) -> bytes:
    """Remove the last lines of CSV text that ends inside a quoted field of several lines."""
    end, odd = len(text), text.count(b'"') % 2
    while odd and end:
        start = text.rfind(b"\n", 0, end - 1) + 1
        odd ^= text.count(b'"', start, end) % 2
        end = start
    return text[:end]
