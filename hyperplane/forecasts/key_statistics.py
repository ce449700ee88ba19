"""Frequent and distinct values of key columns, read from their files by Polars.

A frequent key makes one output partition of a shuffle larger than the others. The number of
distinct keys limits the rows of a group-by, which a sample of few files does not show.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from hyperplane.collections.frames.helper_steps import GROUPING
from hyperplane.forecasts.records import KeyColumns, KeyStatistics
from hyperplane.forecasts.sample_plan import FEWEST, choose_positions

#: CPU seconds in which distinct keys are counted even if the job itself is short.
_LEAST_SECONDS = 0.5
#: Of so many files one is counted first, if counting all takes long; and the share of the keys that
#: were found up to which those of the other files are estimated.
_SHARES, _FEW_MORE = (64, 32, 16), 0.25
#: Name of the number of rows beside key columns of any name.
_ROWS = "__hyperplane_rows__"
#: Characters of a key in a report.
_SHOWN = 40


def measure_keys(keys: Iterable[KeyColumns], most_seconds: Callable[[int], float]) -> tuple[
    KeyStatistics, ...
]:  # fmt: skip
    """Examine keys; those whose files Polars cannot read are left out.

    Parameters
    ----------
    keys : iterable of KeyColumns
        Keys, with their files.
    most_seconds : callable
        Returns the CPU seconds that the distinct keys of a number of files may take.
    """
    found = []
    for key in keys:
        try:
            found.append(_measure(key, most_seconds(len(key.parts))))
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            continue
    return tuple(found)


def _measure(key: KeyColumns, most_seconds: float) -> KeyStatistics:
    positions = choose_positions(len(key.parts), FEWEST)
    parts = [key.parts[position] for position in positions]
    sampled = _scan(parts, key.columns)
    # Missing keys are no groups, and no rows of a join.
    counts = sampled.drop_nulls().group_by(key.columns).len(_ROWS)
    rows, first = pl.collect_all(
        [counts.select(pl.col(_ROWS).sum()), counts.top_k(1, by=_ROWS)], engine="streaming"
    )
    distinct = None
    if key.operation in GROUPING:
        began = time.process_time()
        _count_distinct(parts, key.columns)
        each = (time.process_time() - began) / len(parts)
        distinct = _count_all(key, each, max(most_seconds, _LEAST_SECONDS))
    total = rows.item() or 0
    values = first.row(0)[:-1] if first.height else ()
    shown = ", ".join(str(value)[:_SHOWN] for value in values)
    share = first[_ROWS][0] / total if total else 0.0
    return KeyStatistics(
        key.operation, key.names, distinct, shown, share, key.complete,
        receivers=key.receivers, is_divided=key.is_divided,
    )  # fmt: skip


def _count_all(key: KeyColumns, each: float, most_seconds: float) -> int | None:
    """Return the number of different keys of all files; None if counting takes too long.

    If it takes long, the keys of a part of the files are counted first. If they show that the other
    files have few more, these are estimated. ``each`` is the time of a file.
    """
    # In no order: files that belong together, such as those of one hour, follow each other.
    parts = random.Random(0).sample(key.parts, len(key.parts))  # noqa: S311 - nothing secret
    sizes = list(map(_find_size, parts))
    # A file that is much larger than the others may be the only one that has most keys.
    parts.insert(0, parts.pop(sizes.index(max(sizes))))
    takes_long = each * len(parts) > _LEAST_SECONDS
    counts: list[tuple[int, int]] = []
    for share in _SHARES:
        some = parts[: len(parts) // share]
        if not takes_long or len(some) < FEWEST or each * len(some) > most_seconds:
            break
        began = time.process_time()
        counts.append((len(some), _count_distinct(some, key.columns)))
        each = (time.process_time() - began) / len(some)
    if len(counts) == len(_SHARES):
        found, more = counts[-1][1], estimate_more(counts, len(parts))
        if more <= _FEW_MORE * found:
            return round(found + more)
    return _count_distinct(parts, key.columns) if each * len(parts) <= most_seconds else None


def estimate_more(counts: Sequence[tuple[int, int]], files: int) -> float:
    """Return how many more keys all files have than the last count, from three counts.

    Each file has fewer keys that no other one has, the more files there are. Their number is taken
    to fall by the same factor each time that the number of files doubles: it is 1 if each file has
    its own keys, less if keys are drawn from a distribution, and 0 if all have been found.

    Parameters
    ----------
    counts : sequence of (int, int)
        Numbers of files, and of their different keys. Each number is twice the one before.
    files : int
        Number of all files.

    Examples
    --------
    >>> estimate_more([(2, 20), (4, 40), (8, 80)], 32)
    240.0
    >>> estimate_more([(2, 20), (4, 30), (8, 30)], 32)
    0.0
    """
    (first, one), (second, two), (last, three) = counts
    before, rate = (two - one) / (second - first), max(0.0, (three - two) / (last - second))
    factor = min(1.0, rate / before) if before > 0 else 1.0
    more, known = 0.0, last
    while known < files:
        rate *= factor
        more += rate * (min(files, 2 * known) - known)
        known *= 2
    return more


def _find_size(part: Any) -> int:
    """Return the bytes of a local file or a partition; 0 if they are not known."""
    if isinstance(part, str):
        return Path(part).stat().st_size
    return int(getattr(part, "nbytes", None) or 0)


def _count_distinct(parts: Sequence[Any], columns: Sequence[str]) -> int:
    rows = _scan(parts, columns)
    # HyperLogLog counts hashes of several columns; of one column Polars takes them itself.
    column = pl.col(columns[0]) if len(columns) == 1 else pl.struct(columns).hash()
    return int(rows.select(column.approx_n_unique()).collect(engine="streaming").item())


def _scan(parts: Sequence[Any], columns: Sequence[str]) -> pl.LazyFrame:
    if isinstance(parts[0], str):
        return pl.scan_parquet(list(parts), glob=False).select(columns)
    rows: pl.LazyFrame = pl.concat([part.scan().select(columns) for part in parts])
    return rows
