"""Time bins lie within one window each, and are no shorter than necessary."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scale import combinations

from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.time_bins import BIN, DAY, parse_windows

HOUR = 3600 * 10**9


def like(dtype):
    return pd.DataFrame({"time": pd.Series(dtype=dtype)})


@pytest.mark.parametrize(
    ("dtype", "every", "width", "exact"),
    [
        ("datetime64[ns]", "1h", HOUR, True),
        ("datetime64[us]", "15min", HOUR // 4, True),
        ("datetime64[us]", "45min", HOUR * 3 // 4, True),
        ("datetime64[us]", "7h", HOUR, False),
        ("datetime64[us]", "1D", DAY, True),
        ("datetime64[us]", "2D", DAY, False),
        ("datetime64[us]", "W", DAY, False),
        ("datetime64[us, Europe/Berlin]", "1h", HOUR, True),
        ("datetime64[us, Europe/Berlin]", "1D", DAY, True),
        ("datetime64[us, Asia/Kolkata]", "1h", HOUR // 2, False),
        ("datetime64[us, Asia/Kathmandu]", "1h", HOUR // 4, False),
        ("datetime64[us, Asia/Kathmandu]", "15min", HOUR // 4, True),
        ("datetime64[us, UTC+02:00]", "1h", HOUR, True),
    ],
)
def test_a_common_window_is_one_bin(dtype, every, width, exact):
    result = parse_windows(like(dtype), "time", every, "right", "right")
    assert (result.bin_width, result.exact) == (width, exact)


@pytest.mark.parametrize("closed", ["left", "right"])
@pytest.mark.parametrize(
    ("every", "zone"),
    combinations(
        ["15min", "1h", "7h", "1D", "3D", "W", "ME", "90s"],
        [None, "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"],
    ),
)
def test_no_edge_of_a_window_divides_a_bin(zone, every, closed):
    rng = np.random.default_rng(5)
    stamps = pd.date_range("2024-03-01", "2024-04-15", freq="15min")
    stamps = stamps.append(stamps[rng.integers(0, len(stamps), 500)] + pd.Timedelta("1us"))
    stamps = stamps.as_unit("us")
    if zone is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(zone)
    frame = pd.DataFrame({"time": stamps})
    how = parse_windows(frame, "time", every, closed, "left")
    bins = kernel.add_bins(pl.from_pandas(frame).lazy(), how).collect().get_column(BIN)
    for begin in (0, 1000, 4001):
        later = frame.iloc[begin:]
        grouper = pd.Grouper(key="time", freq=every, closed=closed, label="left")
        window = later.groupby(grouper).ngroup().reindex(later.index)  # ngroup() is sorted by time
        each = window.groupby(bins.to_numpy()[begin:]).nunique()
        assert (each == 1).all()


def test_no_window_is_longer_than_the_maximum_width():
    for every in ("W", "ME", "QE", "YE", "SME", "B"):
        edges = pd.date_range("1999-12-31", periods=60, freq=every)
        longest = pd.Timedelta(
            parse_windows(like("datetime64[us]"), "time", every, None, None).max_width
        )
        assert (edges[1:] - edges[:-1]).max() < longest
