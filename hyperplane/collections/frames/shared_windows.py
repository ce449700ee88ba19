"""Overlap of the time ranges of partitions, by the statistics of the files.

A window that lies within one partition is completed there; only windows that may have rows in other
partitions are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from hyperplane.collections.frames.time_bins import TimeWindows
from hyperplane.formats.partitions import ScannablePartition

#: First and last time, in microseconds since 1970 in UTC.
TimeRange = tuple[int, int]
#: Maximum overlapping partitions; with more, the data is not sorted by time.
_MAX_NEIGHBORS = 64


def find_overlapping_ranges(
    partitions: Sequence[ScannablePartition], windows: TimeWindows
) -> list[list[TimeRange] | None]:
    """Return, per partition, the time ranges of others that may share windows; None if unknown."""
    ranges = [_get_time_range(partition, windows.time) for partition in partitions]
    if any(each is None for each in ranges):
        return [None] * len(partitions)
    bounds = np.array(ranges, dtype="int64").reshape(-1, 2)
    distance = windows.max_width // 1000 + 1
    overlapping: list[list[TimeRange] | None] = []
    for number, (first, last) in enumerate(bounds):
        overlaps = (bounds[:, 0] <= last + distance) & (bounds[:, 1] >= first - distance)
        overlaps[number] = False
        others = np.flatnonzero(overlaps)
        overlapping.append(
            [(int(a), int(b)) for a, b in bounds[others]] if len(others) <= _MAX_NEIGHBORS else None
        )
    return overlapping


def _get_time_range(partition: ScannablePartition, column: str) -> TimeRange | None:
    bounds = partition.bounds(column)
    if bounds is None:
        return None
    first, last = (_to_microseconds(bound) for bound in bounds)
    return None if first is None or last is None else (first, last + 1)


def _to_microseconds(bound: Any) -> int | None:
    stamp: Any = pd.Timestamp(bound)
    if stamp is pd.NaT:
        return None
    if stamp.tz is not None:
        stamp = stamp.tz_convert("UTC")
    return int(stamp.as_unit("us")._value)
