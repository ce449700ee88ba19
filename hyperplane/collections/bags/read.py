"""``read_records`` and ``bad_records``."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from os import PathLike
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.bag import Bag
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from hyperplane.collections.bags import files
from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.graph import BagSource, get_bag_source, lazy_task, read_bag
from hyperplane.collections.bags.lines import chunks
from hyperplane.collections.bags.records import (
    BadLine,
    LineCounter,
    ReadSettings,
    parse_lines,
    read_partition,
)
from hyperplane.collections.flags import is_one_of
from hyperplane.errors import Fault, RequestError, check
from hyperplane.public_calls import check_call
from hyperplane.units import parse_bytes


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
    r"""A bag of the records of JSON lines or text files.

    Large files are cut at line ends, small ones are joined, so that partitions are of about one
    size; a packed file (``.gz``, ``.bz2``, ``.xz``, ``.zst``, ``.lz4``, ``.zip``) cannot be cut.
    The order is that of the URLs, and within a glob or folder the natural one of the names:
    ``part-2`` before ``part-10``. Blank lines of JSON are no records and are passed over; of text
    each line is a record, without its line end.

    A line that is not of the encoding, not JSON or no JSON object is *bad*: it is left out, and a
    :class:`~hyperplane.errors.BadLinesWarning` counts the bad lines of each partition when that
    has been read to its end; it reaches the client from any worker. More of them than ``limit``
    allows end the compute with :class:`~hyperplane.errors.BadLines`. :func:`bad_records` gives
    all of them.

    Parameters
    ----------
    urls : str, path or list of them
        Files, globs, folders, or URLs that fsspec opens; all on one store. Each file is read once.
    format : {"json", "text"}, optional
        By default what the names say: ``.jsonl``, ``.ndjson`` and ``.json`` are JSON with one
        object a line; ``.txt``, ``.text`` and ``.log`` are text.
    blocksize : int or str, optional
        Bytes of text in a partition, such as ``"64MB"``. By default what makes four partitions
        for each thread of the cluster, but no fewer than 8 MB and no more than 64 MB.
    storage_options : mapping, optional
        For the file system of the URLs.
    encoding : str
        Of the text; a line end must be the one byte 0x0A in it.
    limit : float
        The share of a partition's lines that may be bad, from 0 to 1. Unless it is 0, ten bad
        lines pass whatever their share, if they are no more than half of the lines.

    Returns
    -------
    dask.bag.Bag
        Of mappings, or of text.

    Raises
    ------
    RequestError
        With every URL that names no file, and every argument that cannot be.

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
        files_found, kind = files.find_files(urls, storage_options, format)
    except RequestError as error:
        raise RequestError([*faults, *error.faults]) from error.__cause__
    check(faults)
    parts = files.split_into_partitions(files_found, size)
    store = files_found[0].store
    settings = ReadSettings(store.system, kind, name, float(limit))
    stamps = [(file.path, file.size, file.stamp) for file in files_found]
    token = tokenize(stamps, parts, kind, name, limit, store)
    return read_bag("read-records", _records, BagSource(settings, parts, token=token))


def _records(settings: ReadSettings, part: BagPartition, *_: Any) -> Iterator[Any]:
    return read_partition(settings, part)


def _check_settings(
    kind: Any, blocksize: Any, encoding: Any, limit: Any
) -> tuple[int | None, str, list[Fault]]:
    """Block size in bytes, name of the encoding, and what is wrong with the arguments."""
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
            faults.append(Fault("blocksize", repr(blocksize)[:80], allowed))
    try:
        name = codecs.lookup(encoding).name
        usable = "\n".encode(encoding) == b"\n"
    except (LookupError, TypeError, ValueError):
        name, usable = "", False
    if not usable:
        allowed = "an encoding in which a line end is one byte, such as utf-8, cp1252 or shift_jis"
        faults.append(Fault("encoding", repr(encoding), allowed, "convert the files to utf-8"))
    if isinstance(limit, bool) or not isinstance(limit, Real) or not _is_share(limit):
        faults.append(Fault("limit", repr(limit), "a share from 0 to 1, such as 0.01"))
    return size, name.replace("utf-8-sig", "utf-8"), faults


def _is_share(number: Any) -> bool:
    return bool(0 <= number <= 1)


@check_call
def bad_records(bag: Bag) -> Bag:
    r"""The lines that :func:`read_records` leaves out, whatever their number.

    Lazy; to compute it reads the files again, and those that are cut into several partitions
    twice, to count their lines.

    Parameters
    ----------
    bag : dask.bag.Bag
        From :func:`read_records`, or from :func:`select` straight after it.

    Returns
    -------
    dask.bag.Bag
        Of mappings: ``file``, ``line`` (from 1), ``text`` and ``reason``.

    Raises
    ------
    RequestError
        When the bag does not come straight from files.

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
        asked = f"a {type(bag).__name__} that does not come straight from files"
        raise RequestError([Fault("bag", asked, "what read_records gave")])
    token = tokenize(source.token)
    name, count = f"bad-records-{token}", f"count-lines-{token}"
    tasks: dict[Any, Any] = {}
    for i, part in enumerate(source.parts):
        before: Any = 0
        if part[0].start:
            # A file that is cut fills its partitions alone, one after the other.
            above = TaskRef((count, i - 1)) if source.parts[i - 1][0].start else 0
            tasks[count, i] = Task(
                (count, i), _count_lines_before, source.settings, source.parts[i - 1], above
            )
            before = TaskRef((count, i))
        tasks[name, i] = lazy_task((name, i), _read_bad_lines, source.settings, part, before)
    return Bag(HighLevelGraph.from_collections(name, tasks), name, len(source.parts))


def _count_lines_before(settings: ReadSettings, part: BagPartition, above: int) -> int:
    """Lines of a file up to the end of a part of it."""
    return above + sum(chunk.count(b"\n") for _, chunk in chunks(settings.store, part[0]))


class _BadLineCollector(LineCounter):
    """A tally that keeps all bad lines, and warns of none."""

    def __init__(self, settings: ReadSettings, part: BagPartition) -> None:
        super().__init__(settings, part)
        self.all: list[BadLine] = []

    def add(self, bad: BadLine) -> None:
        self.all.append(bad)


def _read_bad_lines(
    settings: ReadSettings, part: BagPartition, before: int
) -> Iterator[dict[str, Any]]:
    counter = _BadLineCollector(settings, part)
    for span in part:
        line = 1 + (before if span.start else 0)
        for place, chunk in chunks(settings.store, span):
            for _ in parse_lines(settings, span, place, chunk, counter):
                pass  # the good ones
            for bad in counter.all:
                text, reason = bad.text, bad.reason
                yield {"file": span.path, "line": line + bad.after, "text": text, "reason": reason}
            counter.all.clear()
            line += chunk.count(b"\n")
