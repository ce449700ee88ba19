"""The share of many files that one shard processes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import is_iterable
from hyperplane.formats.partition_sizes import find_shard_bounds
from hyperplane.objectstore import listing
from hyperplane.objectstore.redaction import redact_url
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.shards.current_shard import Shard, resolve_shard

#: A file's address and its size in bytes.
ListedFile = tuple[str, int]


@check_call
def shard_files(
    urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    n_machines: int | None = None,
    idx: int | None = None,
    *,
    by: Literal["count", "bytes"] = "count",
    frozen: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return a shard's share of files; all shards together have each file once.

    The files are sorted in natural order, ``part-2`` before ``part-10``, and divided into
    contiguous shares: concatenated by index, the shares are the whole list.

    Parameters
    ----------
    urls : str, path, or list of these
        Files, globs, folders (all files in them), or URLs that fsspec opens.
    n_machines, idx : int, optional
        The number of shards, and the index of this one, from 0; those of :func:`shard` if
        omitted.
    by : {"count", "bytes"}
        ``"count"``: equal numbers of files, as ``numpy.array_split`` divides them, so that the
        first shares may have one more. ``"bytes"``: about equal bytes; a file belongs to the
        share in which its middle byte lies, so that no share differs from the mean by more than
        the size of the largest file.
    frozen : str or path, optional
        A file or URL for the listing: the shard that starts first writes it, all others
        read it. Without it each shard lists the files itself, and a file that is created while the
        shards start shifts the shares, so that some files are processed twice and others never.
    storage_options : dict, optional
        Options of the fsspec file system. Messages never show them.

    Returns
    -------
    list of str
        Absolute paths or URLs; may be empty if there are fewer files than shards.

    Raises
    ------
    RequestError
        With every fault, such as missing files, an index out of range, or a listing of other
        URLs in ``frozen``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(11):
    ...     _ = (folder / f"part-{number}.csv").write_text("a")
    >>> [Path(file).name for file in shard_files(folder / "*.csv", n_machines=4, idx=3)]
    ['part-9.csv', 'part-10.csv']
    """
    shard, faults = resolve_shard(idx, n_machines, ("idx", "n_machines"))
    if not isinstance(by, str) or by not in ("count", "bytes"):
        faults.append(Fault("by", repr(by)[:80], "'count' or 'bytes'"))
    check(faults)
    if frozen is None:
        files = _list_files(urls, storage_options, sized=by == "bytes")
    else:
        files = _read_or_create_snapshot(urls, frozen, storage_options)
    sizes = [size for _, size in files]
    first, last = (
        _find_bounds_by_bytes(sizes, shard)
        if by == "bytes"
        else find_shard_bounds(*shard, len(files))
    )
    return [address for address, _ in files[first:last]]


def _find_bounds_by_bytes(sizes: Sequence[int], shard: Shard) -> tuple[int, int]:
    """Return the number of a shard's first file and of the first one after it, by stored bytes."""
    total = sum(sizes)
    if not total:
        return find_shard_bounds(*shard, len(sizes))
    owners, before = [], 0
    for size in sizes:
        middle = 2 * before + size  # doubled, to stay an integer
        owners.append(min(shard.n - 1, middle * shard.n // (2 * total)))
        before += size
    first = sum(owner < shard.idx for owner in owners)
    return first, first + owners.count(shard.idx)


def _list_files(urls: Any, options: Mapping[str, Any] | None, *, sized: bool) -> list[ListedFile]:
    """List files in natural order, regardless of the order of the listing or of ``urls``."""
    files = listing.find_files(urls, options, sized=sized)
    # Names that differ only in leading zeros are equal in natural order.
    files.sort(key=lambda file: (listing.natural_sort_key(file.address), file.address))
    return [(file.address, file.size) for file in files]


def _read_or_create_snapshot(
    urls: Any, frozen: str | os.PathLike[str], options: Mapping[str, Any] | None
) -> list[ListedFile]:
    """Return the listing in the snapshot; create the snapshot if there is none yet.

    Raises
    ------
    RequestError
        If the snapshot lists other URLs, or the file is not a snapshot.
    """
    target = resolve_target(frozen, options)
    store_files = StoreFiles(target.store)
    data = store_files.get(target.path)
    if data is None:
        files = _list_files(urls, options, sized=True)
        snapshot = json.dumps({"asked": _format_urls(urls), "files": files}, indent=1).encode()
        try:
            store_files.put_new(target.path, snapshot)
            data = snapshot
        except FileExistsError:  # another shard wrote it first
            data = store_files.get(target.path) or b""
    return _parse_snapshot(data, urls, target.url)


def _format_urls(urls: Any) -> list[str]:
    """Return URLs as text; with a snapshot nothing else looks at their types."""
    is_list = is_iterable(urls) and not isinstance(urls, (str, os.PathLike))
    names = urls if is_list else [urls]
    return [
        os.fsdecode(name) if isinstance(name, (str, os.PathLike)) else repr(name) for name in names
    ]


def _parse_snapshot(data: bytes, urls: Any, snapshot_url: str) -> list[ListedFile]:
    """Parse a snapshot, and check that it lists the same URLs."""
    advice = "use a new file for each run"
    try:
        document = json.loads(data)
        snapshot_urls, files = list(document["asked"]), _parse_files(document["files"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = "a listing written by shard_files, or a new file name"
        raise RequestError([Fault("frozen", snapshot_url, allowed, advice)]) from error
    if snapshot_urls != _format_urls(urls):
        listed = ", ".join(map(redact_url, snapshot_urls))[:200]
        allowed = f"a listing of the same urls; it lists {listed}"
        raise RequestError([Fault("frozen", snapshot_url, allowed, advice)])
    return files


def _parse_files(files: Sequence[Sequence[Any]]) -> list[ListedFile]:
    return [(str(address), int(size)) for address, size in files]
