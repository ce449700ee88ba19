"""``read_records`` and ``bad_records``: bags of the records of text files."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from os import PathLike
from typing import Any

from dask.bag import Bag
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from hyperplane.collections.bags import files
from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.graph import BagSource, get_bag_source, make_lazy_task, read_bag
from hyperplane.collections.bags.lines import read_chunks
from hyperplane.collections.bags.records import (
    BadLine,
    LineCounter,
    ReadSettings,
    parse_lines,
    read_partition,
)
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import advise_on_size, parse_bytes


@check_call
def read_records(
    urls: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the name that pandas and fsspec give it
    blocksize: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    encoding: str = "utf-8",
    limit: float = 0.01,
) -> Bag:
    r"""Read JSON lines or text files as a bag of records.

    Large files are divided at line ends and small ones joined, so that partitions have similar
    sizes; a compressed file (``.gz``, ``.bz2``, ``.xz``, ``.zst``, ``.lz4``, ``.zip``) cannot be
    divided. The order is that of the URLs, and within a glob or folder the natural order of the
    names: ``part-2`` before ``part-10``. Blank lines of JSON files are skipped; in text files
    each line is a record, without its line end.

    A line that cannot be decoded, is not JSON, or is not a JSON object is *bad*: it is left out,
    and a :class:`~hyperplane.errors.BadLinesWarning` gives the number of bad lines at the end of
    each partition; warnings of workers reach the client. If ``limit`` is exceeded, the
    computation raises :class:`~hyperplane.errors.BadLines`. :func:`bad_records` returns all bad
    lines.

    Parameters
    ----------
    urls : str, path or list of them
        Files, globs, folders, or fsspec URLs; all on one file system. Each file is read once.
    format : {"json", "text"}, optional
        By default inferred from the suffix: ``.jsonl``, ``.ndjson`` and ``.json`` are JSON with
        one object per line; ``.txt``, ``.text`` and ``.log`` are text.
    blocksize : int or str, optional
        Bytes of text in a partition, as a number or as text such as ``"64MB"``, which is 64·10^6
        bytes. By default four partitions for each thread of the cluster, but at least 8 MB and at
        most 64 MB.
    storage_options : mapping, optional
        Options of the fsspec file system, such as credentials. They and secrets in URLs never
        appear in messages.
    encoding : str
        Encoding of the text, in which a line end must be the single byte 0x0A.
    limit : float
        Maximum fraction of bad lines in a partition, from 0 to 1. Unless it is 0, up to ten bad
        lines are always allowed if they are at most half of the lines.

    Returns
    -------
    dask.bag.Bag
        Mappings for JSON, text otherwise.

    Raises
    ------
    RequestError
        With every URL that matches no file, and every invalid argument.
    BadLines
        When it is computed, if bad lines exceed ``limit``. It has ``file``, ``line``, ``bad`` and
        ``lines``.
    ReadError
        When it is computed, if a file is damaged or was deleted. It has ``url``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    >>> read_records(folder / "*.jsonl").compute(scheduler="sync")
    [{'n': 1}, {'n': 2}]
    """
    size, name, faults = _check_settings(format, blocksize, encoding, limit)
    try:
        found_files, kind = files.find_files(urls, storage_options, format)
    except RequestError as error:
        raise RequestError([*faults, *error.faults]) from error.__cause__
    check(faults)
    parts = files.split_into_partitions(found_files, size)
    store = found_files[0].store
    settings = ReadSettings(store.system, kind, name, float(limit))
    stamps = [(file.path, file.size, file.stamp) for file in found_files]
    token = tokenize(stamps, parts, kind, name, limit, store)
    return read_bag("read-records", _records, BagSource(settings, parts, token=token))


def _records(settings: ReadSettings, part: BagPartition, *_: Any) -> Iterator[Any]:
    return read_partition(settings, part)


def _check_settings(
    kind: Any, blocksize: Any, encoding: Any, limit: Any
) -> tuple[int | None, str, list[Fault]]:
    """Return the block size in bytes, the canonical name of the encoding, and faults."""
    faults = []
    if not is_one_of(kind, (None, "json", "text")):
        faults.append(Fault("format", repr(kind)[:80], "'json' or 'text'"))
    size = None
    if blocksize is not None:
        try:
            size = parse_bytes(blocksize) if isinstance(blocksize, str) else int(blocksize)
        except (OverflowError, TypeError, ValueError):
            size = 0
        if size < 1 or isinstance(blocksize, bool):
            allowed = "a size such as '64MB', or a number of bytes"
            advice = advise_on_size(str(blocksize))
            faults.append(Fault("blocksize", repr(blocksize)[:80], allowed, advice))
    try:
        # A byte order mark is skipped with every encoding.
        name = codecs.lookup(encoding).name.replace("utf-8-sig", "utf-8")
        usable = "\n".encode(name) == b"\n"
    except (LookupError, TypeError, ValueError):
        name, usable = "", False
    if not usable:
        allowed = "an encoding in which a line end is one byte, such as utf-8, cp1252 or shift_jis"
        faults.append(Fault("encoding", repr(encoding), allowed, "convert the files to utf-8"))
    if isinstance(limit, bool) or not isinstance(limit, Real) or not _is_fraction(limit):
        faults.append(Fault("limit", repr(limit), "a fraction from 0 to 1, such as 0.01"))
    return size, name, faults


def _is_fraction(number: Any) -> bool:
    return bool(0 <= number <= 1)


@check_call
def bad_records(bag: Bag) -> Bag:
    r"""Return all bad lines that :func:`read_records` leaves out.

    The result is lazy. Computing it reads the files again; files that are divided into several
    partitions are read twice, to count lines.

    Parameters
    ----------
    bag : dask.bag.Bag
        From :func:`read_records`, or from :func:`select` with a mapping as ``where``,
        applied directly to that.

    Returns
    -------
    dask.bag.Bag
        Mappings with ``file``, ``line`` (from 1), ``text`` and ``reason``.

    Raises
    ------
    RequestError
        If the bag was not read directly from files.
    ReadError
        When it is computed, if a file is damaged or was deleted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = file.write_text('{"n": 1}\n{"n": \n')
    >>> for bad in bad_records(read_records(file)).compute(scheduler="sync"):
    ...     print(bad["line"], bad["text"], bad["reason"])
    2 {"n":  not JSON (Expecting value: line 1 column 6 (char 5))
    """
    source = get_bag_source(bag) if isinstance(bag, Bag) else None
    if source is None:
        given = f"a {type(bag).__name__} that was not read directly from files"
        raise RequestError(
            [
                Fault(
                    "bag",
                    given,
                    "a bag from hyperplane.bag.read_records, or from select with a mapping as "
                    "where, applied directly to it",
                )
            ]
        )
    token = tokenize(source.token)
    name, count = f"bad-records-{token}", f"count-lines-{token}"
    tasks: dict[Any, Any] = {}
    for i, part in enumerate(source.parts):
        lines_before: Any = 0
        if part[0].start:
            # A divided file occupies consecutive partitions, without other files.
            previous = source.parts[i - 1]
            lines_before_previous = TaskRef((count, i - 1)) if previous[0].start else 0
            tasks[count, i] = Task(
                (count, i), _count_lines, source.settings, previous, lines_before_previous
            )
            lines_before = TaskRef((count, i))
        tasks[name, i] = make_lazy_task(
            (name, i), _read_bad_lines, source.settings, part, lines_before
        )
    return Bag(HighLevelGraph.from_collections(name, tasks), name, len(source.parts))


def _count_lines(settings: ReadSettings, part: BagPartition, lines_before: int) -> int:
    """Return the number of lines of a file up to the end of a byte range."""
    lines = sum(chunk.count(b"\n") for _, chunk in read_chunks(settings.store, part[0]))
    return lines_before + lines


class _BadLineCollector(LineCounter):
    """A line counter that collects all bad lines and does not warn."""

    def __init__(self, settings: ReadSettings, part: BagPartition) -> None:
        super().__init__(settings, part)
        self.all: list[BadLine] = []

    def add(self, bad: BadLine) -> None:
        self.all.append(bad)


def _read_bad_lines(
    settings: ReadSettings, part: BagPartition, lines_before: int
) -> Iterator[dict[str, Any]]:
    """Yield the bad lines of a partition; ``lines_before`` are those before it in its file."""
    counter = _BadLineCollector(settings, part)
    for byte_range in part:
        line = 1 + (lines_before if byte_range.start else 0)
        for offset, chunk in read_chunks(settings.store, byte_range):
            for _ in parse_lines(settings, byte_range, offset, chunk, counter):
                pass  # good records
            for bad in counter.all:
                yield {
                    "file": byte_range.name,
                    "line": line + bad.after,
                    "text": bad.text,
                    "reason": bad.reason,
                }
            counter.all.clear()
            line += chunk.count(b"\n")
