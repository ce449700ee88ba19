"""Helpers of tests that measure files."""

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from hyperplane.calculator.measure import measure_files
from hyperplane.errors import RequestError
from hyperplane.formats.parquet.footer_size import decoded_size

ROWS = 30_000


def frame_of(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "name": random.choice(["alpha", "beta", "gamma"], rows),
            "x": random.normal(size=rows),
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), unit="s"),
        }
    )


FRAME = frame_of()


def in_memory(frame):
    return int(frame.memory_usage(deep=True).sum())


def size_of(path):
    return measure_files(str(path))[0]


def fault_of(path):
    with pytest.raises(RequestError) as caught:
        measure_files(str(path))
    [fault] = caught.value.faults
    assert fault.where == "data"
    return fault


def decoded_of(*paths):
    """Sum of the decoded sizes of Parquet footers."""
    return sum(decoded_size(pyarrow.parquet.read_metadata(path)) for path in paths)
