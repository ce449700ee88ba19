"""``Grouping``: keys, time windows and aggregations of a group-by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from hyperplane.collections.frames.aggregates import Aggregation
from hyperplane.collections.frames.time_bins import BIN, TimeWindows
from hyperplane.formats.pandas_frames.column_names import escape, escape_all, escape_columns


@dataclass(frozen=True)
class Grouping:
    """Keys, time windows and aggregations of one call; column names are escaped."""

    #: Empty, with the types of the columns that are used.
    like: pd.DataFrame
    #: Key columns.
    by: tuple[str, ...]
    #: Time windows in addition to the keys.
    windows: TimeWindows | None
    aggregation: Aggregation

    @classmethod
    def from_columns(
        cls,
        like: pd.DataFrame,
        by: Sequence[str],
        windows: TimeWindows | None,
        aggregation: Aggregation,
    ) -> Grouping:
        """Build a grouping from the column names of pandas."""
        if windows is not None:
            windows = replace(windows, time=escape(windows.time))
        return cls(escape_columns(like), tuple(escape_all(by)), windows, aggregation.escape_names())

    @property
    def keys(self) -> list[str]:
        """Key columns of the partial tables."""
        return [*self.by, *([BIN] if self.windows else [])]

    @property
    def exact_keys(self) -> list[str]:
        """Keys whose values each belong to exactly one group of the result."""
        return [*self.by, *([BIN] if self.windows and self.windows.exact else [])]
