"""Random frames of all kinds of columns in random partitions, for the property tests."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_versions
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from hyperplane.dataframe import read

# The explain phase of hypothesis takes longer than the search.
QUICK = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=set(Phase) - {Phase.explain},
)

TEXTS = ["a", "b", "", "ä", "日本", "a b", "Z"]
DAY = 86_400 * 10**9


def arrow(kind):
    return pd.ArrowDtype(kind)


# kind -> (values, type)
NUMBERS = {
    "int64": ([-3, 0, 1, 2, 7, 2**40], "int64"),
    "int8": ([-128, -1, 0, 1, 100, 127], "int8"),
    "uint8": ([0, 1, 200, 255], "uint8"),
    "uint64": ([0, 1, 9, 2**40], "uint64"),
    "float64": ([np.nan, 0.0, -0.0, 1.5, -2.25, 1e10, 0.1], "float64"),
    "infinite": ([np.nan, np.inf, -np.inf, 0.0, 2.5], "float64"),
    "float32": ([np.nan, 0.0, 1.5, -2.25, 0.1], "float32"),
    "Int64": ([pd.NA, 0, 1, -5, 2**40], "Int64"),
    "UInt8": ([pd.NA, 0, 1, 255], "UInt8"),
    "Float64": ([pd.NA, 0.0, 1.5, -2.25], "Float64"),
    "boolean": ([pd.NA, True, False], "boolean"),
    "bool": ([True, False], "bool"),
    "arrow int": ([None, 1, 2, -7], arrow(pa.int64())),
    "arrow float": ([None, 1.5, 2.0, -7.25], arrow(pa.float64())),
}
TEXT = {
    "str": ([*TEXTS, None], pandas_versions.TEXT),
    "object": ([*TEXTS, None], object),
    "string": ([*TEXTS, pd.NA], "string"),
    "string[pyarrow]": ([*TEXTS, pd.NA], "string[pyarrow]"),
    "arrow text": ([*TEXTS, None], arrow(pa.string())),
}
CATEGORIES = {
    "category": ([*TEXTS, None], pd.CategoricalDtype(["b", *(t for t in TEXTS if t != "b"), "?"])),
    "ordered": ([*TEXTS, None], pd.CategoricalDtype([*TEXTS[::-1], "?"], ordered=True)),
    "category of int": ([3, 1, 2, None], pd.CategoricalDtype([3, 2, 1])),
}
TIMES = {
    "datetime": (
        [pd.NaT, *pd.to_datetime(["2024-01-01 00:00", "1969-12-31 23:59"])],
        "datetime64[us]",
    ),
    "zoned": (
        [pd.NaT, *pd.to_datetime(["2024-01-01 00:00", "2024-03-31 01:30"]).tz_localize("UTC")],
        "datetime64[ns, Europe/Berlin]",
    ),
    "timedelta": ([pd.NaT, pd.Timedelta("1s"), pd.Timedelta("-3D")], "timedelta64[us]"),
}
KINDS = NUMBERS | TEXT | CATEGORIES | TIMES


def series(values, dtype):
    """Return a column; text and categories are converted from objects, which keep None."""
    return pd.Series(values, dtype=object).astype(dtype) if len(values) else pd.Series(dtype=dtype)


@st.composite
def column(draw, kind, rows):
    """Draw a column of a kind; sometimes with missing values only."""
    values, dtype = KINDS[kind]
    pool = values
    if any(pd.isna(value) for value in values) and draw(st.integers(0, 7)) == 0:
        pool = [value for value in values if pd.isna(value)]
    chosen = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    return series(chosen, dtype)


ZONES = [
    None,
    None,
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "+02:00",
]
UNITS = ["ns", "us", "ms", "s"]
#: Frequency -> maximum distance of times in nanoseconds, since pandas makes a row per window.
FREQUENCIES = {
    "1ms": 2 * 10**9,
    "90s": DAY,
    "15min": 20 * DAY,
    "45min": 20 * DAY,
    "1h": 40 * DAY,
    "7h": 200 * DAY,
    "1D": 3000 * DAY,
    "2D": 3000 * DAY,
    "W": 9000 * DAY,
    "MS": 9000 * DAY,
    "ME": 9000 * DAY,
    "QE": 9000 * DAY,
    "SME": 3000 * DAY,
    "B": 3000 * DAY,
}
ANCHORS = [
    "2024-01-01",
    "2024-03-31 00:30",  # clocks go forward in Berlin at 01:00 UTC
    "2024-10-27 00:30",  # and back
    "2024-03-10 06:30",  # New York
    "2024-11-03 05:30",
    "1969-12-31 20:00",
    "1903-05-05 12:34:56",
    "2024-02-29 23:59:59",
]
STEPS = [0, 1, 60, 900, 3600, 5400, 6 * 3600, 25_200, 86_400, 7 * 86_400, 31 * 86_400]


@st.composite
def times(draw, rows, every, zones=tuple(ZONES), units=tuple(UNITS)):
    """Draw unsorted times around an anchor, many of them on edges of windows, and NaT."""
    zone, unit = draw(st.sampled_from(zones)), draw(st.sampled_from(units))
    reach = FREQUENCIES[every]
    anchor = pd.Timestamp(draw(st.sampled_from(ANCHORS))).as_unit("ns")._value
    if draw(st.booleans()):
        anchor -= anchor % DAY
    step = st.sampled_from([second * 10**9 for second in STEPS if second * 10**9 <= reach // 4])
    near = st.tuples(step, st.integers(-4, 4), st.sampled_from([0, 0, 0, 1, -1, 10**6, -(10**6)]))
    offset = near.map(lambda parts: parts[0] * parts[1] + parts[2])
    if draw(st.integers(0, 3)) == 0:
        offset |= st.integers(-reach // 2, reach // 2)
    one = st.one_of(offset, offset, offset, offset, st.none())
    chosen = draw(st.lists(one, min_size=rows, max_size=rows))
    if draw(st.integers(0, 15)) == 0:
        chosen = [None] * rows
    values = pd.Series(
        [pd.NaT if value is None else pd.Timestamp(anchor + value) for value in chosen],
        dtype="datetime64[ns]",
    ).dt.as_unit(unit)
    return values if zone is None else values.dt.tz_localize("UTC").dt.tz_convert(zone)


@st.composite
def frames(draw, every=None, kinds=tuple(KINDS), keys=0, values=1, most=40, **of_times):
    """Draw a frame with the columns time (if ``every`` is set), k0, k1, ..., v0, v1, ..."""
    rows = draw(st.one_of(st.integers(0, 3), st.integers(0, most)))
    columns = {} if every is None else {"time": draw(times(rows, every, **of_times))}
    for number in range(keys):
        columns[f"k{number}"] = draw(column(draw(st.sampled_from(sorted(KINDS))), rows))
    for number in range(values):
        columns[f"v{number}"] = draw(column(draw(st.sampled_from(sorted(kinds))), rows))
    frame = pd.DataFrame(columns)
    if draw(st.booleans()):
        frame.index = pd.Index(np.arange(rows) // 2 * 3, name="row")  # each label twice
    return frame


def same(part):
    return part


def cut(frame, places):
    """Return a Dask dataframe of a pandas frame, divided at some rows, with unchanged types."""
    edges = [0, *sorted(places), len(frame)]
    pieces = [frame.iloc[a:b] for a, b in pairwise(edges)]
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(same, pieces, meta=frame.iloc[:0])


class Files:
    """Writer of Parquet files in temporary folders, which are deleted when it is closed."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="hp-"))
        self.number = 0

    def parquet(self, frame, places, row_group):
        """Write a frame to files divided at ``places``, and return their collection."""
        self.number += 1
        folder = self.root / str(self.number)
        folder.mkdir()
        edges = [0, *sorted(places), len(frame)]
        schema = pa.Schema.from_pandas(frame, preserve_index=False)
        for number, (a, b) in enumerate(pairwise(edges)):
            table = pa.Table.from_pandas(frame.iloc[a:b], schema=schema, preserve_index=False)
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group)
        return read(folder, partition_size=1)

    def close(self):
        shutil.rmtree(self.root)


@contextmanager
def open_files(keep_objects=False):
    """Yield a :class:`Files`; meanwhile Dask computes in this thread.

    With ``keep_objects`` Dask does not convert columns of objects to text.
    """
    config = {"scheduler": "sync"} | ({"dataframe.convert-string": False} if keep_objects else {})
    files = Files()
    try:
        with dask.config.set(config):
            yield files
    finally:
        files.close()


@st.composite
def places(draw, frame, most=5):
    """Draw the rows at which to divide a frame; repeated rows give empty partitions."""
    number = draw(st.one_of(st.integers(0, most), st.sampled_from([0, 19, 39])))
    return draw(st.lists(st.integers(0, len(frame)), min_size=number, max_size=number))


@st.composite
def in_partitions(draw, frame, files=None):
    """Draw a collection of a frame, of pandas partitions or read from files."""
    way = draw(
        st.sampled_from(["cut", "from_pandas", "parquet"] if files else ["cut", "from_pandas"])
    )
    if way == "from_pandas" and len(frame):
        return dd.from_pandas(frame, npartitions=draw(st.integers(1, 9)), sort=False)
    if way == "parquet":
        return files.parquet(frame, draw(places(frame)), draw(st.integers(1, 9)))
    return cut(frame, draw(places(frame)))


def functions_of(dtype):
    """Return the aggregation functions of a type."""
    every = ["count", "size", "nunique", "first", "last"]
    kinds = pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return every
    every += ["min", "max"]
    if kinds.is_timedelta64_dtype(dtype):
        return [*every, "sum"]
    if kinds.is_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype):
        return [*every, "sum", "mean", "std", "var", "median"]
    return every


@st.composite
def aggregations(draw, frame):
    """Draw an ``agg`` argument for the columns v0, v1, ..."""
    agg = {}
    for name in [name for name in frame.columns if name[0] == "v"]:
        some = st.sampled_from(functions_of(frame[name].dtype))
        agg[name] = draw(st.one_of(some, st.lists(some, min_size=1, max_size=3, unique=True)))
    return agg
