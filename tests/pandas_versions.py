"""Differences of pandas 2.3 and 3.0 from 3.1 that change results of hyperplane."""

from __future__ import annotations

import numpy as np
import pandas as pd
from packaging.version import Version

IS_PANDAS_2 = Version(pd.__version__) < Version("3")
IS_BEFORE_PANDAS_3_1 = Version(pd.__version__) < Version("3.1")

#: The type ``str`` of pandas 3. The text of Dask has it with pandas 2, too, where the name ``str``
#: is the type of objects, and a cast to it makes None a text.
TEXT = pd.StringDtype(na_value=np.nan)

#: Kinds of columns that text formats refuse with pandas 3.0: milliseconds in a time zone.
_ZONED = {"time ms UTC", "time ms Europe/Berlin", "time ms +05:45"}
REFUSED_AS_TEXT = _ZONED if IS_BEFORE_PANDAS_3_1 else set()


def read_csv(path):
    """Read a CSV file; the default parser of pandas 3.0 rounds some last digits wrongly."""
    return pd.read_csv(path, float_precision="round_trip" if IS_BEFORE_PANDAS_3_1 else None)
