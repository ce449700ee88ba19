"""A share of many files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call
from hyperplane.shards.identity import Shard, resolve_shard, row_range
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
    """A shard's share of files; all shards together have each file once.

    The files are put in natural order, ``part-2`` before ``part-10``, whatever order the store or
    the list has, and are divided into neighbours: the shares one after the other are the whole.

    Parameters
    ----------
    urls : str, path, or list of these
        Files, globs, folders (all files in them), or URLs that fsspec opens.
    n_machines, idx : int, optional
        How many shards there are, and the number of this one, from 0; :func:`shard` says it when
        they are not given.
    by : {"count", "bytes"}
        Equal numbers of files, the first shares one longer, as ``numpy.array_split`` makes them;
        or about equal bytes: a file goes to the share in which its middle byte lies, so that no
        share is farther from the mean than the size of the largest file.
    frozen : str or path, optional
        A file, or URL, that keeps the listing: the first shard writes it, all others read it.
        Without it each shard lists for itself, and a file that comes while they start moves the
        shares: some files are then read twice, and others by nobody.
    storage_options : dict, optional
        For fsspec. They are never shown.

    Returns
    -------
    list of str
        Absolute paths, or URLs; empty if there are fewer files than shards.

    Raises
    ------
    RequestError
        With everything that is wrong: no such files, a number out of range, a listing of others.

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
    first, last = _range_by_bytes(sizes, share) if by == "bytes" else row_range(share, len(files))
    return [address for address, _ in files[first:last]]


def _range_by_bytes(sizes: Sequence[int], share: Shard) -> tuple[int, int]:
    total = sum(sizes)
    if not total:
        return row_range(share, len(sizes))
    owners, before = [], 0
    for size in sizes:
        middle = 2 * before + size  # twice, to be whole
        owners.append(min(share.n - 1, middle * share.n // (2 * total)))
        before += size
    first = sum(owner < share.idx for owner in owners)
    return first, first + owners.count(share.idx)
