"""Which stretches of time a part shares with others, by the files' own statistics.

A window that lies whole in one part is finished there; only what others may also have is exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from hyperplane.collections.frames.partitions import Part
from hyperplane.collections.frames.time_bins import Windows

#: First and last instant, in microseconds since 1970, in UTC.
Span = tuple[int, int]
#: Neighbours beyond which looking at each is not worth it: the data is in no order of time.
_MOST_NEIGHBOURS = 64


def shared_spans(parts: Sequence[Part], windows: Windows) -> list[list[Span] | None]:
    """For each part the spans of the others that come near it; None where they are not known."""
    found = [_span(part, windows.time) for part in parts]
    if any(span is None for span in found):
        return [None] * len(parts)
    spans = np.array(found, dtype="int64").reshape(-1, 2)
    reach = windows.reach // 1000 + 1
    near: list[list[Span] | None] = []
    for number, (first, last) in enumerate(spans):
        meets = (spans[:, 0] <= last + reach) & (spans[:, 1] >= first - reach)
        meets[number] = False
        others = np.flatnonzero(meets)
        near.append(
            [(int(a), int(b)) for a, b in spans[others]]
            if len(others) <= _MOST_NEIGHBOURS
            else None
        )
    return near


def _span(part: Part, column: str) -> Span | None:
    bounds = part.bounds(column)
    if bounds is None:
        return None
    first, last = (_microseconds(bound) for bound in bounds)
    return None if first is None or last is None else (first, last + 1)


def _microseconds(bound: Any) -> int | None:
    stamp: Any = pd.Timestamp(bound)
    if stamp is pd.NaT:
        return None
    if stamp.tz is not None:
        stamp = stamp.tz_convert("UTC")
    return int(stamp.as_unit("us")._value)
