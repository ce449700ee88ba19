"""Estimation of the uncompressed size of files from a small part of their bytes.

Parquet footers and Zarr metadata contain the size. Of CSV and JSON files, a sample is read and its
size in memory is compared with its size in the file.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need
from hyperplane.core.units import format_bytes, plural
from hyperplane.formats.parquet.footer_size import decoded_size
from hyperplane.objectstore import listing
from hyperplane.objectstore.file_names import DAMAGE_ERRORS, decompress, detect_format
from hyperplane.objectstore.locations import File, Location
from hyperplane.objectstore.reachability import has_answered, monitor_request
from hyperplane.objectstore.redaction import describe_error, redact_url

#: Bytes of uncompressed text read from each sampled file.
SAMPLE = 1_000_000
#: Bytes decompressed after the sample to estimate the compression ratio. Decompressors read up to a
#: megabyte of text ahead, so a short sample would be inaccurate.
UNPACKED = 8_000_000
#: Bytes of a compressed file read at once, which is the accuracy of their count.
STEP = 1024
#: Largest number of text files and of Parquet footers that are read; the result is scaled to all.
SAMPLED_FILES = 3
SAMPLED_FOOTERS = 256

_FORMATS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".zarr": "zarr",
}
#: RecursionError: JSON may nest lists more deeply than Python's decoder supports.
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGE_ERRORS, RecursionError)
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def measure_files(urls: str | Sequence[str]) -> tuple[int, str]:
    """Uncompressed size in bytes of files given by path, glob or URL, and how it was measured.

    Raises a RequestError if there are no files, or none of a supported format.
    """
    try:
        zarrs, files = _find_files([urls] if isinstance(urls, str) else urls)
        kind = detect_format(files, _FORMATS, urls=urls) if files else ""
    except RequestError as error:
        or_else = "a size such as '100GB', or "
        faults = [replace(f, where="data", allowed=or_else + f.allowed) for f in error.faults]
        raise RequestError(faults) from None
    try:
        return _MEASURES[kind](files) if files else _measure_zarr(zarrs)
    except _UNREADABLE as error:
        allowed = f"readable files ({describe_error(error)})"
        asked = redact_url(urls) if isinstance(urls, str) else list(map(redact_url, urls))
        raise RequestError([Fault("data", repr(asked)[:200], allowed)]) from error


def _find_files(urls: Sequence[str]) -> tuple[list[str], list[File]]:
    """Return the URLs of Zarr stores, or else the files, that URLs name."""
    stores = {url: _find_zarr_stores(url) for url in urls}
    others = [url for url in urls if not stores[url]]
    zarrs = list(dict.fromkeys(store for found in stores.values() for store in found))
    if zarrs and others:
        asked = f"{redact_url(zarrs[0])!r}, which is Zarr, and {redact_url(others[0])!r}"
        raise RequestError([Fault("urls", asked, "data of one format")])
    return zarrs, listing.find_files(others) if others else []


def _find_zarr_stores(url: str) -> list[str]:
    """URLs of the Zarr stores that one URL names; empty if it names files."""
    location = listing.resolve_location(url)
    if not listing.is_glob(location.path):
        return [url] if _is_zarr(location) else []
    locations = listing.find_entries(url)
    with ThreadPoolExecutor(listing.MAX_THREADS) as pool:
        answers = list(pool.map(_is_zarr, locations))
    zarrs = [location for location, is_zarr in zip(locations, answers, strict=True) if is_zarr]
    others = [location for location, is_zarr in zip(locations, answers, strict=True) if not is_zarr]
    if zarrs and others:
        folder = not isinstance(others[0], File)
        which = ", a folder without the metadata of a Zarr store" if folder else ""
        asked = f"{zarrs[0].url!r}, which is Zarr, and {others[0].url!r}{which}"
        advice = "leave it out of the glob" if folder else "use a glob such as *.zarr"
        raise RequestError([Fault("urls", asked, "files of one format", advice)])
    return [location.address for location in zarrs]


def _is_zarr(location: Location) -> bool:
    if isinstance(location, File):
        return False
    url = location.address
    for mark in _ZARR_MARKS:
        try:
            with monitor_request(location.store, url):
                location.store.system.info(f"{location.path.rstrip('/')}/{mark}")
            return True
        except Exception:  # noqa: BLE001 - each file system raises its own
            if not has_answered(location.store, url):
                return False  # the listing raises the error
    return False


def _sample_evenly(found: Sequence[File], count: int) -> list[File]:
    """Select at most ``count`` files, evenly spread over the list."""
    if len(found) <= count:
        return list(found)
    return [found[round(i * (len(found) - 1) / (count - 1))] for i in range(count)]


def _measure_parquet(found: Sequence[File]) -> tuple[int, str]:
    from pyarrow import parquet

    def in_memory(file: File) -> int:
        with file.store.system.open(file.path, "rb") as opened:
            return decoded_size(parquet.ParquetFile(opened).metadata)

    read = _sample_evenly(found, SAMPLED_FOOTERS)
    with ThreadPoolExecutor(max_workers=min(16, len(read))) as pool:
        sizes = list(pool.map(in_memory, read))
    total = _scale_to_all(sum(sizes), read, found)
    return total, f"footers of {plural(len(read), 'Parquet file')}, {format_bytes(total)} in memory"


def _scale_to_all(size: int, read: Sequence[File], found: Sequence[File]) -> int:
    """Scale the size of the files that were read to all files."""
    on_store = sum(file.size for file in read)
    everything = sum(file.size for file in found)
    return size if len(read) == len(found) else round(size * everything / max(1, on_store))


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


def _text_measure(
    reader: Callable[[io.BytesIO], Any], name: str
) -> Callable[[Sequence[File]], tuple[int, str]]:
    def measured(found: Sequence[File]) -> tuple[int, str]:
        in_memory = in_file = 0.0
        for file in _sample_evenly(found, SAMPLED_FILES):
            sample, stored = _read_sample(file)
            if sample:
                frame = reader(io.BytesIO(sample))
                in_memory += float(frame.memory_usage(deep=True).sum())
                in_file += stored
        everything = sum(file.size for file in found)
        factor = in_memory / in_file if in_file else 1.0
        how = f"{plural(len(found), f'{name} file')} of {format_bytes(everything)} x {factor:.2f} "
        return round(everything * factor), how + "(expansion of a sample)"

    return measured


def _read_sample(file: File) -> tuple[bytes, float]:
    """Complete lines from the start of a file, and their size in the file."""
    with file.store.system.open(file.path, "rb") as raw:
        if file.compression:
            counting = _CountingReader(raw)
            with decompress(counting, file.compression) as opened:
                sample: bytes = opened.read(SAMPLE)
                length = len(sample) + len(opened.read(UNPACKED))
            packing = min(counting.count, file.size) / max(1, length)
        else:
            sample, packing = raw.read(SAMPLE), 1.0
    whole = sample if len(sample) < SAMPLE else sample[: sample.rfind(b"\n") + 1] or sample
    return whole, packing * len(whole)


def _read_csv(sample: io.BytesIO) -> Any:
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


def _read_json(sample: io.BytesIO) -> Any:
    import pandas as pd

    text = sample.getvalue().decode(errors="ignore").lstrip()
    if text.startswith("["):
        return pd.read_json(io.StringIO(f"[{text[1 : _end_of_items(text)]}]"))
    return pd.read_json(sample, lines=True)


def _end_of_items(text: str) -> int:
    """End of the last complete item of a JSON array; the sample may stop inside the next."""
    decode, between, end = json.JSONDecoder().raw_decode, re.compile(r"[\s,]*"), 1
    with suppress(ValueError):
        while found := between.match(text, end):
            _, end = decode(text, found.end())
    return end


def _measure_zarr(urls: Sequence[str]) -> tuple[int, str]:
    zarr = need("zarr", "array")
    nodes = [zarr.open(url, mode="r") for url in urls]
    arrays = [
        array
        for node in nodes
        for array in ([node] if hasattr(node, "shape") else _arrays_in(node))
    ]
    total = sum(int(array.nbytes) for array in arrays)
    return total, f"metadata of {plural(len(arrays), 'Zarr array')}, {format_bytes(total)}"


def _measure_zipped_zarr(found: Sequence[File]) -> tuple[int, str]:
    return _measure_zarr(
        [f"zip::{file.store.system.unstrip_protocol(file.path)}" for file in found]
    )


def _arrays_in(group: Any) -> list[Any]:
    return [node for _, node in group.members(max_depth=None) if hasattr(node, "shape")]


_MEASURES: dict[str, Callable[[Sequence[File]], tuple[int, str]]] = {
    "parquet": _measure_parquet,
    "csv": _text_measure(_read_csv, "CSV"),
    "json": _text_measure(_read_json, "JSON"),
    "zarr": _measure_zipped_zarr,
}
