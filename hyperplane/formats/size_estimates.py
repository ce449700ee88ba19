"""Estimation of the size of files in memory from a small part of their bytes.

The size of text files is multiplied by the expansion of a sample: its size in memory, divided by
its size in the file.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hyperplane.core.units import format_bytes, plural
from hyperplane.formats.base import SizeEstimate
from hyperplane.objectstore.file_names import decompress
from hyperplane.objectstore.locations import File

#: Bytes of uncompressed text read from each sampled file.
SAMPLE = 1_000_000
#: Bytes decompressed after the sample to estimate the compression ratio. Decompressors read up to a
#: megabyte of text ahead, so a short sample would be inaccurate.
UNPACKED = 8_000_000
#: Bytes of a compressed file read at once: the measured compressed size is accurate to this.
STEP = 1024
#: Maximum number of files that are sampled; the result is scaled to all.
SAMPLED_FILES = 3


def sample_evenly(files: Sequence[File], count: int) -> list[File]:
    """Select at most ``count`` files, evenly spread over the list."""
    if len(files) <= count:
        return list(files)
    return [files[round(i * (len(files) - 1) / (count - 1))] for i in range(count)]


def scale_to_all(size: int, sampled: Sequence[File], files: Sequence[File]) -> int:
    """Scale the size of the files that were read to all files."""
    on_store = sum(file.size for file in sampled)
    everything = sum(file.size for file in files)
    return size if len(sampled) == len(files) else round(size * everything / max(1, on_store))


def estimate_text(
    files: Sequence[File], parse: Callable[[io.BytesIO], Any], label: str
) -> SizeEstimate:
    """Estimate the size of text files of one format.

    Parameters
    ----------
    files : sequence of File
        The files.
    parse : callable
        Parses a sample, the complete lines at the start of a file, to a pandas dataframe.
    label : str
        Name of the format in the description of the method.
    """
    in_memory = in_file = 0.0
    for file in sample_evenly(files, SAMPLED_FILES):
        sample, stored = _read_sample(file)
        if sample:
            frame = parse(io.BytesIO(sample))
            in_memory += float(frame.memory_usage(deep=True).sum())
            in_file += stored
    everything = sum(file.size for file in files)
    factor = in_memory / in_file if in_file else 1.0
    how = f"{plural(len(files), f'{label} file')} of {format_bytes(everything)} x {factor:.2f} "
    return SizeEstimate(round(everything * factor), how + "(expansion of a sample)")


def _read_sample(file: File) -> tuple[bytes, float]:
    """Return complete lines from the start of a file, and their size in the file."""
    with file.store.system.open(file.path, "rb") as raw:
        if file.compression:
            reader = _CountingReader(raw)
            with decompress(reader, file.compression) as opened:
                sample: bytes = opened.read(SAMPLE)
                length = len(sample) + len(opened.read(UNPACKED))
            ratio = min(reader.count, file.size) / max(1, length)
        else:
            sample, ratio = raw.read(SAMPLE), 1.0
    whole = sample if len(sample) < SAMPLE else sample[: sample.rfind(b"\n") + 1] or sample
    return whole, ratio * len(whole)


class _CountingReader(io.RawIOBase):
    """Binary file that reads at most STEP bytes at once and counts them."""

    def __init__(self, file: Any) -> None:
        self.file, self.count = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self.file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self.file.seek(offset, whence))

    def tell(self) -> int:
        return int(self.file.tell())

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.file.read(min(size, STEP) if size >= 0 else size)
        self.count += len(data)
        return data


def parse_csv_sample(sample: io.BytesIO) -> Any:
    """Return a pandas dataframe of the first lines of a CSV file."""
    import pandas as pd

    # The sniffer of pandas may split a single column at a letter.
    header = sample.getvalue().partition(b"\n")[0].decode(errors="replace")
    separator = max(",;\t|", key=header.count)
    read = functools.partial(pd.read_csv, sep=separator, on_bad_lines="skip")
    try:
        return read(sample)
    except pd.errors.ParserError:
        return read(io.BytesIO(_drop_incomplete_records(sample.getvalue())))


def _drop_incomplete_records(text: bytes) -> bytes:
    """Remove the last lines of CSV text that ends inside a quoted field of several lines."""
    end, odd = len(text), text.count(b'"') % 2
    while odd and end:
        start = text.rfind(b"\n", 0, end - 1) + 1
        odd ^= text.count(b'"', start, end) % 2
        end = start
    return text[:end]


def parse_json_sample(sample: io.BytesIO) -> Any:
    """Return a pandas dataframe of the first lines, or of the first items of an array."""
    import pandas as pd

    text = sample.getvalue().decode(errors="ignore").lstrip()
    if text.startswith("["):
        return pd.read_json(io.StringIO(f"[{text[1 : _find_items_end(text)]}]"))
    return pd.read_json(sample, lines=True)


def _find_items_end(text: str) -> int:
    """Return the end of the last complete item of a JSON array."""
    decode, between, end = json.JSONDecoder().raw_decode, re.compile(r"[\s,]*"), 1
    with suppress(ValueError):
        while match := between.match(text, end):
            _, end = decode(text, match.end())
    return end
