"""What pandas 3.0 does otherwise than 3.1, which the answers of this package follow."""

from __future__ import annotations

import pandas as pd
from packaging.version import Version

IS_PANDAS_3_0 = Version(pd.__version__) < Version("3.1")


def read_csv(path):
    """Read a CSV file; the usual parser of pandas 3.0 is off by some of the last digits."""
    return pd.read_csv(path, float_precision="round_trip" if IS_PANDAS_3_0 else None)
