"""Random tables with every kind of column, and values normalized for comparison."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

# Hypothesis takes longer to explain a failure than to find it.
QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.explain},
)

TEXTS = [
    "a",
    "b",
    "",
    " a",
    "NA",
    "null",
    "007",
    "1",
    "1.50",
    "true",
    'q"',
    "x,y",
    "ü\u2028",
    "1_000",
]
BREAKS = ["two\nlines", "\r", "tab\t", "-", "2024-01-01"]
INSTANTS = [0, 1, -1, 86_400, 1_711_846_800, 951_782_400, 4_102_444_800]
CLOCKS = [dt.time(1, 2, 3, 4), dt.time(0), dt.time(23, 59, 59, 999_999)]
DAYS = [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
MONEY = [decimal.Decimal("1.50"), decimal.Decimal("-99.99"), decimal.Decimal("0.00")]
#: Beyond 2**53 float64 does not represent every integer.
ODD = 2**53 + 1


def arrow(kind):
    return pd.ArrowDtype(kind)


def times(unit, zone):
    """Return values and type of a datetime column."""
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [second * ticks + (ticks > 1) * extra for second in INSTANTS for extra in (0, 1)]
    stamps = pd.DatetimeIndex(np.array(values, f"datetime64[{unit}]"))
    if zone:
        stamps = stamps.tz_localize("UTC").tz_convert(zone)
    return [pd.NaT, *stamps], stamps.dtype


def spans(unit):
    """Return values and type of a duration column."""
    values = np.array([0, 1, -1, 7, 86_400, 10**9], f"timedelta64[{unit}]")
    return [pd.NaT, *pd.TimedeltaIndex(values)], np.dtype(f"timedelta64[{unit}]")


# kind -> (values, type)
KINDS = {
    "int64": ([-3, 0, 1, 7, ODD, -(2**63), 2**63 - 1], "int64"),
    "int8": ([-128, 0, 1, 127], "int8"),
    "uint16": ([0, 65_535], "uint16"),
    "uint64": ([0, 1, ODD, 2**64 - 1], "uint64"),
    "float64": ([math.nan, 0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, 1 / 3, 123456789.123], "float64"),
    "infinite": ([math.nan, math.inf, -math.inf, 2.5], "float64"),
    "float32": ([math.nan, 0.1, -0.0, 3e38, 1.0], "float32"),
    "float16": ([math.nan, 0.1, -0.0, 1.0, 65504.0], "float16"),
    "Int64": ([pd.NA, 0, ODD, -(2**63)], "Int64"),
    "UInt64": ([pd.NA, 0, 2**64 - 1], "UInt64"),
    "Int8": ([pd.NA, -128, 1], "Int8"),
    "Float64": ([pd.NA, -0.0, 0.1, 1.0], "Float64"),
    "bool": ([True, False], "bool"),
    "boolean": ([pd.NA, True, False], "boolean"),
    "arrow int": ([None, 1, ODD], arrow(pa.int64())),
    "arrow double": ([None, 1.0, 0.1], arrow(pa.float64())),
    "arrow bool": ([None, True, False], arrow(pa.bool_())),
    "arrow decimal": ([None, *MONEY], arrow(pa.decimal128(9, 2))),
    "arrow date": ([None, *DAYS], arrow(pa.date32())),
    "arrow time": ([None, *CLOCKS], arrow(pa.time64("us"))),
    "arrow text": ([None, *TEXTS], arrow(pa.string())),
    "arrow binary": ([None, b"", b"\x00\xff"], arrow(pa.binary())),
    "arrow words": ([None, *TEXTS[:3]], arrow(pa.dictionary(pa.int8(), pa.string()))),
    "arrow list": ([None, [], [1, None, 2]], arrow(pa.list_(pa.int64()))),
    "str": ([None, *TEXTS, *BREAKS], "str"),
    "string": ([pd.NA, *TEXTS], "string"),
    "object text": ([None, *TEXTS], object),
    "object int": ([None, 1, ODD], object),
    "object bool": ([None, True, False], object),
    "object nothing": ([None], object),
    "mixed": ([None, 1, "a", 2.5, True], object),
    "dates": ([None, *DAYS], object),
    "clocks": ([None, *CLOCKS], object),
    "money": ([None, *MONEY], object),
    "bytes": ([None, b"a", b""], object),
    "list": ([None, [], [1, 2], [None]], object),
    "list of text": ([None, ["a", ""], []], object),
    "record": ([None, {"a": 1, "b": "x"}, {"a": ODD, "b": None}], object),
    "drifting record": ([{"a": 1}, {"a": 2, "b": "x"}, {"c": [1]}], object),
    "category": ([None, *TEXTS[:5]], "category"),
    "ordered": ([None, "b", "a"], pd.CategoricalDtype(["b", "a", "?"], ordered=True)),
    "category of int": ([3, ODD, None], pd.CategoricalDtype([ODD, 3, 2])),
    "period": ([pd.NaT, pd.Period("2024-02", "M"), pd.Period("1969-12", "M")], "period[M]"),
    "week": ([pd.NaT, pd.Period("2024-02-01", "W-SUN")], "period[W-SUN]"),
    "interval": ([pd.Interval(0, 1), pd.Interval(1, 2)], "interval[int64, right]"),
    "complex": ([1 + 2j], "complex128"),
    "sparse": ([0, 5], "Sparse[int64]"),
}
for _unit in ("s", "ms", "us", "ns"):
    KINDS[f"timedelta {_unit}"] = spans(_unit)
    for _zone in (None, "UTC", "Europe/Berlin", "+05:45"):
        KINDS[f"time {_unit} {_zone}"] = times(_unit, _zone)

NAMES = ["a", "b b", "1", "", "*", "^x$", "ü", "x.y", 'q"', "a,b", "__index_level_0__", "at_time"]


def series(values, dtype):
    """Return a column built from objects, which distinguishes None from 'None'."""
    held = np.empty(len(values), dtype=object)
    held[:] = values
    column = pd.Series(held, dtype=object)
    if dtype is object:
        return column
    if str(dtype).startswith("Sparse"):
        return column.astype("int64").astype(dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return pd.Series(pd.array(list(values), dtype=dtype))
    return column.astype(dtype)


@st.composite
def parts(draw, kinds=tuple(KINDS), names=tuple(NAMES), drift=True, most=4, columns=3):
    """Draw frames with the same columns, and the kind of each column in each frame."""
    rows = draw(st.lists(st.integers(0, 4), min_size=1, max_size=most))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=columns, unique=True))
    kind = {name: draw(st.sampled_from(kinds)) for name in chosen}
    drifts = {name for name in chosen if drift and draw(st.integers(0, 2)) == 0}
    frames, used = [], []
    for count in rows:
        here = {
            name: draw(st.sampled_from(kinds)) if name in drifts and draw(st.booleans()) else one
            for name, one in kind.items()
        }
        columns_here = {}
        for name, one in here.items():
            values, dtype = KINDS[one]
            picked = draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))
            columns_here[name] = series(picked, dtype)
        frames.append(pd.DataFrame(columns_here))
        used.append(here)
    return frames, used


def plain(value):
    """Return a value in a form that is equal only for equal values."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return ("list", tuple(plain(one) for one in value))
    if isinstance(value, dict):
        held = {key: plain(one) for key, one in value.items()}
        return ("record", tuple(sorted((key, one) for key, one in held.items() if one)))
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return ("truth", bool(value))
    if isinstance(value, (int, np.integer)):
        return ("number", int(value))
    if isinstance(value, (float, np.floating)):
        return _number(value)
    if isinstance(value, (complex, np.complexfloating)):
        return ("complex", complex(value))
    if isinstance(value, pd.Timestamp):
        ticks = value.tz_convert("UTC").tz_localize(None) if value.tz else value
        return ("instant" if value.tz else "time", _ticks(ticks))
    if isinstance(value, dt.datetime):
        return plain(pd.Timestamp(value))
    if isinstance(value, pd.Timedelta):
        return ("span", _ticks(value))
    if isinstance(value, dt.timedelta):
        return plain(pd.Timedelta(value))
    if isinstance(value, decimal.Decimal):
        return ("decimal", value.normalize() + 0)
    if isinstance(value, (dt.date, dt.time)):
        return (type(value).__name__, value.isoformat())
    if isinstance(value, pd.Period):
        return ("period", str(value), value.freqstr)
    return (type(value).__name__, value)


#: In this order, as bool is a subclass of int.
_KINDS = [(bool, np.bool_), (int, np.integer), (float, np.floating)]


def _number(value):
    exact = float(value)
    if math.isnan(exact):
        return None
    if math.isinf(exact) or (exact == 0 and math.copysign(1, exact) < 0):
        return ("number", str(exact))
    return ("number", int(exact) if exact.is_integer() else exact)


def _ticks(value):
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[value.unit]
    return int(value.asm8.astype("int64")) * scale


def same_kinds(held, expected):
    """Return whether integers stay integers and floats floats, unless a column has both."""
    wanted = _kinds(expected)
    return len(wanted) != 1 or _kinds(held) <= wanted


def _kinds(values):
    """Return which of integers, floats, and other values occur."""
    known = (value for value in values if plain(value) is not None)
    return {next((kind for kind in _KINDS if isinstance(value, kind)), None) for value in known}


def raw(frames, name):
    """Return the values of a column of several frames unchanged."""
    # Not with astype(object), which converts integers in Arrow structs to floats.
    return [value for frame in frames for value in frame[name].tolist()]


def values_of(frames, name):
    """Return the normalized values of a column of several frames."""
    return [plain(value) for value in raw(frames, name)]
