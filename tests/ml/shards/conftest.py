"""A small table, and shards of it."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest

from hyperplane.ml import XShards


@pytest.fixture
def frame():
    return pd.DataFrame(
        {"city": list("abcabcab"), "price": [4, 1, 7, 1, 5, 9, 2, 6], "rate": np.arange(8) / 4}
    )


@pytest.fixture
def shards(frame):
    return XShards.partition(frame, num_shards=3)


@pytest.fixture
def compute_here():
    """Compute in the thread of the test."""
    with dask.config.set(scheduler="synchronous"):
        yield
