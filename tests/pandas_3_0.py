"""Differences of pandas 3.0 from 3.1 that change results of hyperplane."""

from __future__ import annotations

import pandas as pd
from packaging.version import Version

IS_PANDAS_3_0 = Version(pd.__version__) < Version("3.1")

#: Kinds of columns that text formats refuse with pandas 3.0: milliseconds in a time zone.
_ZONED = {"time ms UTC", "time ms Europe/Berlin", "time ms +05:45"}
REFUSED_AS_TEXT = _ZONED if IS_PANDAS_3_0 else set()


def read_csv(path):
    """Read a CSV file; the default parser of pandas 3.0 rounds some last digits wrongly."""
    return pd.read_csv(path, float_precision="round_trip" if IS_PANDAS_3_0 else None)
