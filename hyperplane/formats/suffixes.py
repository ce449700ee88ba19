"""File formats of dataframes, by suffix."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.flags import is_one_of
from hyperplane.objectstore import file_names
from hyperplane.objectstore.locations import File

FORMATS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".avro": "avro",
}


def format_of(files: Sequence[File], asked: str | None, urls: Any = None) -> str:
    """Return the common format of the files, or the ``format`` argument if it is given.

    Parameters
    ----------
    files : sequence of File
        At least one file.
    asked : str, optional
        The argument ``format``.
    urls : str, path or iterable of these, optional
        The argument from which the files were listed, for messages.

    Raises
    ------
    RequestError
        When a suffix is unknown or the files have different formats.
    """
    known = sorted(set(FORMATS.values()))
    if asked is None:
        advice = "or set format= to 'parquet', 'csv', 'jsonl' or 'avro'"
        return file_names.detect_format(files, FORMATS, advice, urls)
    if not is_one_of(asked, known):
        close = difflib.get_close_matches(str(asked), known, n=1)
        advice = f"did you mean {close[0]!r}?" if close else ""
        raise RequestError(
            [Fault("format", repr(asked)[:80], f"one of {', '.join(known)}", advice)]
        )
    return asked
