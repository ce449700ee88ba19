"""The share of many files that one shard processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call
from hyperplane.formats.partition_sizes import find_shard_bounds
from hyperplane.shards.identity import Shard, resolve_shard
from hyperplane.shards.listing_snapshot import list_files, read_or_create_snapshot


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
        A file or URL for the listing: the first shard writes it, all others read it. Without it
        each shard lists the files itself, and a file that appears while the shards start shifts
        the shares: some files are then processed twice and others never.
    storage_options : dict, optional
        Options of the fsspec file system. Messages never show them.

    Returns
    -------
    list of str
        Absolute paths or URLs; may be empty if there are fewer files than shards.

    Raises
    ------
    RequestError
        With every fault: no such files, an index out of range, a listing made of other URLs.

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
    share, faults = resolve_shard(idx, n_machines, ("idx", "n_machines"))
    if not isinstance(by, str) or by not in ("count", "bytes"):
        faults.append(Fault("by", repr(by)[:80], "'count' or 'bytes'"))
    check(faults)
    if frozen is None:
        files = list_files(urls, storage_options, sized=by == "bytes")
    else:
        files = read_or_create_snapshot(urls, frozen, storage_options)
    sizes = [size for _, size in files]
    first, last = (
        _range_by_bytes(sizes, share) if by == "bytes" else find_shard_bounds(*share, len(files))
    )
    return [address for address, _ in files[first:last]]


def _range_by_bytes(sizes: Sequence[int], share: Shard) -> tuple[int, int]:
    """Return the first file of a share and the one after its last, by stored bytes."""
    total = sum(sizes)
    if not total:
        return find_shard_bounds(*share, len(sizes))
    owners, before = [], 0
    for size in sizes:
        middle = 2 * before + size  # doubled, to stay an integer
        owners.append(min(share.n - 1, middle * share.n // (2 * total)))
        before += size
    first = sum(owner < share.idx for owner in owners)
    return first, first + owners.count(share.idx)
