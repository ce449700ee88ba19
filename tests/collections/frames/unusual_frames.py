"""Collections of unusual but valid columns, with right and wrong metas, for the fuzz tests."""

from __future__ import annotations

import datetime
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import cached_property
from itertools import pairwise

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_versions
import pyarrow as pa
from frame_strategies import arrow, same
from hypothesis import strategies as st

NAN, INF = np.nan, np.inf


def stamps(*texts, zone=None):
    """Return times in a zone; None is a missing time."""
    times = [pd.NaT if text is None else pd.Timestamp(text) for text in texts]
    return [
        t if zone is None or t is pd.NaT else t.tz_localize("UTC").tz_convert(zone) for t in times
    ]


#: Within a few days around a daylight saving change in Berlin: pandas makes a row per window.
TIMES = (None, "2024-03-30", "2024-03-31 01:30", "2024-03-30 23:59:59", "2024-04-01 12:00:01")
SPANS = [pd.NaT, pd.Timedelta("1s"), pd.Timedelta("-3D"), pd.Timedelta("90min")]
WHOLE = [-3, 0, 1, 2, 7]
BIG = [0, 1, 2**53 + 1, 2**53, 2**62 + 3, -(2**53) - 1]
HUGE = [0, 1, 2**53 + 1, 2**63 + 5, 2**64 - 1]
FRACTIONS = [NAN, 0.0, -0.0, 1.5, -2.25, 2.0, INF, -INF]
TEXT = ["a", "b", "", "ä", "1", "*"]

#: Kind -> (values, type). Values are converted from objects if the type supports that.
NUMBERS = {
    "int64": (BIG, "int64"),
    "int8": ([-128, -1, 0, 1, 127], "int8"),
    "int32": ([-(2**31), -1, 0, 1, 2**31 - 1], "int32"),
    "uint8": ([0, 1, 255], "uint8"),
    "uint64": (HUGE, "uint64"),
    "float64": (FRACTIONS, "float64"),
    "float32": ([*FRACTIONS, 0.1, 2.0**24], "float32"),
    "float16": ([NAN, 0.0, -0.0, 1.5, 2048.0, INF], "float16"),
    "Int64": ([pd.NA, *BIG], "Int64"),
    "Int8": ([pd.NA, 0, 1, -128], "Int8"),
    "UInt64": ([pd.NA, *HUGE], "UInt64"),
    "Float64": ([pd.NA, 0.0, -0.0, 1.5, INF], "Float64"),
    "Float32": ([pd.NA, 0.0, 1.5, 0.1], "Float32"),
    "boolean": ([pd.NA, True, False], "boolean"),
    "bool": ([True, False], "bool"),
    "arrow bool": ([None, True, False], arrow(pa.bool_())),
    "arrow int64": ([None, *BIG], arrow(pa.int64())),
    "arrow uint64": ([None, *HUGE], arrow(pa.uint64())),
    "arrow int8": ([None, 1, -128], arrow(pa.int8())),
    "arrow double": ([None, 0.0, -0.0, 1.5, 2.0, INF, -INF], arrow(pa.float64())),
    "arrow float": ([None, 0.0, -0.0, 1.5, 0.1], arrow(pa.float32())),
    "arrow half": ([None, 0.0, 1.5, 2.0], arrow(pa.float16())),
    "decimal": (
        [None, Decimal("1.25"), Decimal("0.00"), Decimal("-3.10")],
        arrow(pa.decimal128(10, 2)),
    ),
    "decimal 38": ([None, Decimal("1.0000000001"), Decimal(2)], arrow(pa.decimal128(38, 10))),
}
TEXTS = {
    "str": ([*TEXT, None], pandas_versions.TEXT),
    "object": ([*TEXT, None], object),
    "string": ([*TEXT, pd.NA], "string"),
    "string[pyarrow]": ([*TEXT, pd.NA], "string[pyarrow]"),
    "arrow text": ([*TEXT, None], arrow(pa.string())),
    "arrow large text": ([*TEXT, None], arrow(pa.large_string())),
    "arrow bytes": ([b"a", b"\xff", b"", None], arrow(pa.binary())),
}
MOMENTS = {
    **{f"time {unit}": (stamps(*TIMES), f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")},
    "nanoseconds": (
        [pd.NaT, pd.Timestamp(1), pd.Timestamp(2), pd.Timestamp(1500)],
        "datetime64[ns]",
    ),
    "far": (stamps(None, "1400-01-01", "3000-01-01"), "datetime64[s]"),
    **{
        f"zoned {zone} {unit}": (stamps(*TIMES, zone=zone), f"datetime64[{unit}, {zone}]")
        for zone, unit in (
            ("UTC", "ns"),
            ("Europe/Berlin", "us"),
            ("America/New_York", "s"),
            ("+05:45", "us"),
            ("-03:30", "ns"),
        )
    },
    "arrow time": (stamps(*TIMES), arrow(pa.timestamp("us"))),
    "arrow time s": (stamps(*TIMES), arrow(pa.timestamp("s"))),
    "arrow zoned": (
        stamps(*TIMES, zone="Europe/Berlin"),
        arrow(pa.timestamp("ns", "Europe/Berlin")),
    ),
    "arrow offset": (stamps(*TIMES, zone="UTC"), arrow(pa.timestamp("us", "+05:45"))),
    **{f"span {unit}": (SPANS, f"timedelta64[{unit}]") for unit in ("s", "ms", "us", "ns")},
    "span of ns": ([pd.NaT, pd.Timedelta(1), pd.Timedelta(1001)], "timedelta64[ns]"),
    "arrow span": (SPANS, arrow(pa.duration("ms"))),
    "arrow date": (
        [None, datetime.date(2024, 1, 1), datetime.date(1960, 2, 29)],
        arrow(pa.date32()),
    ),
    "arrow clock": ([None, datetime.time(1, 2, 3), datetime.time(0)], arrow(pa.time64("us"))),
    "months": ([pd.NaT, pd.Period("2024-01", "M"), pd.Period("1969-12", "M")], "period[M]"),
    "days": ([pd.NaT, pd.Period("2024-01-01", "D"), pd.Period("1969-12-31", "D")], "period[D]"),
}
CATEGORIES = {
    "category": ([*TEXT, None], pd.CategoricalDtype(["b", *(t for t in TEXT if t != "b"), "?"])),
    "letters": (["a", "b", None], pd.CategoricalDtype(["a", "b"])),
    "letters too": (["b", "c", None], pd.CategoricalDtype(["c", "b"])),
    "ordered": (["a", "b", None], pd.CategoricalDtype(["b", "a", "?"], ordered=True)),
    "category of int": ([3, 1, 2, None], pd.CategoricalDtype([3, 2, 1, 9])),
    "category of float": ([1.5, 2.0, None], pd.CategoricalDtype([2.0, 1.5])),
    "category of bool": ([True, False, None], pd.CategoricalDtype([True, False])),
    "category of times": (
        stamps("2024-01-01", "2024-01-02"),
        pd.CategoricalDtype(pd.DatetimeIndex(["2024-01-02", "2024-01-01"])),
    ),
}
OBJECTS = {
    "dates": ([datetime.date(2024, 1, 1), datetime.date(1960, 2, 29), None], object),
    "datetimes": ([datetime.datetime(2024, 1, 1, 1), datetime.datetime(1960, 2, 29), None], object),
    "objects of ns": ([pd.Timestamp(1), pd.Timestamp(2), None], object),
    "spans of ns": ([pd.Timedelta(1), pd.Timedelta(2), None], object),
    "decimals": ([Decimal("1.50"), Decimal("2.25"), Decimal(3), None], object),
    "bytes": ([b"a", b"\xff", None], object),
    "whole objects": ([1, 2, 2**53 + 1, None], object),
    "number objects": ([1, 2.5, 2.0, None], object),
    "huge objects": ([2**63 + 5, 1, None], object),
    "true objects": ([True, False, None], object),
    "none": ([None], object),
    "arrow null": ([None], arrow(pa.null())),
}
#: Kinds that helpers may refuse, at least as keys: Arrow or Polars lack the type or its order.
REFUSED = {
    "mixed": ([1, "a", None], object),
    "bool and int": ([True, 2, 0], object),
    "enormous": ([2**64, 2**70, 1], object),
    "lists": ([[1], [1, 2], None], object),
    "dicts": ([{"a": 1}, {"a": 2}, {"b": "x"}], object),
    "arrow list": ([[1], [1, 2], [], None], arrow(pa.list_(pa.int64()))),
    "arrow struct": (
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        arrow(pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ),
    "complex": ([1j, 2.0], "complex128"),
    "sparse": ([0, 1, 2], pd.SparseDtype("int64")),
    "sparse float": ([0.0, 1.5, NAN], pd.SparseDtype("float64")),
    "interval": (list(pd.interval_range(0, 3)), pd.interval_range(0, 3).dtype),
    "cut": (
        list(pd.interval_range(0, 3)),
        pd.CategoricalDtype(pd.interval_range(0, 3), ordered=True),
    ),
    "category of months": (
        [pd.Period("2024-01", "M"), None],
        pd.CategoricalDtype(pd.period_range("2024-01", periods=2, freq="M")),
    ),
    "mixed category": (["a", 1, None], pd.CategoricalDtype(["a", 1])),
    "decimal 50": ([Decimal("1.25"), None], arrow(pa.decimal256(50, 2))),
    "objects": ([pd.Interval(0, 1), (1, 2), frozenset([1])], object),
}
SUPPORTED = NUMBERS | TEXTS | MOMENTS | CATEGORIES | OBJECTS
KINDS = SUPPORTED | REFUSED

#: Types that the partitions of a column alternate between if its meta is wrong.
FAMILIES = [
    ["int64", "float64", "int8", "Int64", "Float64", "float32", "arrow double", "arrow int64"],
    ["int64", "uint64", "uint8", "Int64", "UInt64", "arrow uint64"],
    ["bool", "boolean", "arrow bool", "true objects"],
    ["bool", "boolean", "arrow bool", "true objects", "int8", "Int8", "float64", "whole objects"],
    ["decimal", "decimal 38", "decimals"],
    ["str", "object", "string", "arrow text", "category", "letters", "letters too", "none"],
    ["time s", "time ms", "time us", "time ns", "nanoseconds", "far", "arrow time"],
    ["zoned UTC ns", "zoned Europe/Berlin us", "zoned +05:45 us", "time ns", "arrow zoned"],
    ["span s", "span ms", "span of ns", "span ns", "arrow span"],
    ["letters", "letters too", "ordered", "category"],
    ["category of int", "int64", "Int64", "category of float"],
    ["months", "days", "int64", "time ns"],
    ["whole objects", "number objects", "int64", "float64", "none"],
    ["arrow list", "lists"],
    sorted(KINDS),
]
NAMES = ["v", "*", "", "^x$", "^.*$", "a b", "ä", "count", "len", "index", "literal", "self"]


def series(values, dtype):
    """Return a column of a type, converted from objects, which distinguish None from 'None'."""
    if isinstance(dtype, pd.SparseDtype):
        return pd.Series(pd.arrays.SparseArray(values, dtype=dtype) if values else [], dtype=dtype)
    if not values:
        return pd.Series([], dtype=dtype)
    if dtype is object:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return pd.Series(array, dtype=object)
    if isinstance(dtype, pd.ArrowDtype):
        if pa.types.is_temporal(dtype.pyarrow_dtype):
            plain = [None if value is None or value is pd.NaT else value for value in values]
            return pd.Series(pd.array(plain, dtype=dtype))
        return pd.Series(pd.array(pa.array(values, dtype.pyarrow_dtype), dtype=dtype))
    return pd.Series(values, dtype=object).astype(dtype)


@dataclass
class Column:
    """A column in partitions, and its declared type."""

    name: str
    kinds: list[str]
    parts: list[pd.Series]
    declared: object

    @property
    def has_right_meta(self):
        """Whether all partitions have the declared type."""
        return all(part.dtype == self.declared for part in self.parts)

    @property
    def may_be_refused(self):
        """Whether a helper may raise an error for this column."""
        return not self.has_right_meta or any(kind in REFUSED for kind in self.kinds)


@dataclass
class Case:
    """A collection and the same rows as one pandas frame."""

    columns: list[Column]
    shuffled: bool
    rows: int
    df: dd.DataFrame = field(init=False)

    def __post_init__(self):
        parts = []
        for number in range(len(self.columns[0].parts)):
            part = pd.DataFrame({column.name: column.parts[number] for column in self.columns})
            part.index = np.arange(len(part)) // 2 * 3 + number  # an index that must not matter
            parts.append(part[part.columns[::-1]] if self.shuffled and number % 2 else part)
        self.parts = parts
        self.meta = pd.DataFrame(
            {column.name: pd.Series([], dtype=column.declared) for column in self.columns}
        )
        # Dask gives frames with equal blocks the same token, whichever columns the blocks are.
        label = f"case-{uuid.uuid4().hex}"
        with dask.config.set({"dataframe.convert-string": False}):
            self.df = dd.from_map(same, parts, meta=self.meta, label=label)

    @property
    def has_right_meta(self):
        """Whether the meta is right."""
        return all(column.has_right_meta for column in self.columns)

    @property
    def may_be_refused(self):
        """Whether an error of hyperplane is allowed."""
        return any(column.may_be_refused for column in self.columns)

    @cached_property
    def whole(self):
        """Return the rows as one frame, in types that represent all values of all partitions."""
        return pd.DataFrame({column.name: joined(column.parts) for column in self.columns})

    def keyed(self, names):
        """Return the rows with keys that pandas distinguishes, see `make_booleans_distinct`."""
        rows = self.whole
        for name in names:
            if has_booleans_and_numbers(rows[name]):
                rows = rows.assign(**{name: make_booleans_distinct(rows[name])})
        return rows

    def __repr__(self):
        shown = [
            f"{c.name!r}: {c.declared} <- {[(str(p.dtype), p.tolist()) for p in c.parts]}"
            for c in self.columns
        ]
        return f"Case({'; '.join(shown)})"


def joined(parts):
    """Concatenate partitions with pandas, as objects if that would lose digits."""
    filled = [part for part in parts if len(part)] or parts[:1]
    # pandas takes 0.0 and -0.0 for two groups in Arrow columns only.
    filled = [
        (part + 0.0).astype(part.dtype) if is_arrow_float(part.dtype) else part for part in filled
    ]
    # pandas converts Arrow integers with missing values to floats to find equal rows.
    filled = [nullable_int(part) if is_arrow_int(part.dtype) else part for part in filled]
    types = {part.dtype for part in filled}
    if len(types) == 1:
        return pd.concat(filled, ignore_index=True)
    values = [value for part in filled for value in part.astype(object)]
    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in filled):
        with suppress(TypeError):  # categories of one type
            return pd.Series(pd.api.types.union_categoricals(filled, ignore_order=True))
    try:
        result = pd.concat(
            [
                p.astype(p.cat.categories.dtype) if isinstance(p.dtype, pd.CategoricalDtype) else p
                for p in filled
            ],
            ignore_index=True,
        )
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        result = series(values, object)
        return result.where(result.notna(), None)
    same_values = all(
        (pd.api.types.is_scalar(a) and pd.isna(a)) or normal(a) == normal(b)
        for a, b in zip(values, result.astype(object), strict=True)
    )
    if not same_values:
        result = series(values, object)
    # pandas takes two kinds of missing objects for two values.
    return result.where(result.notna(), None) if result.dtype == object else result


class DistinctBoolean(Enum):
    """A boolean that is not equal to any number."""

    NO = False
    YES = True

    def __str__(self):
        return str(self.value)


def is_boolean(value):
    return isinstance(value, (bool, np.bool_))


def has_booleans_and_numbers(column):
    """Return whether a column has booleans and other values, which may be 1 and 0."""
    known = [is_boolean(value) for value in column.astype(object) if normal(value) is not None]
    return any(known) and not all(known)


def make_booleans_distinct(column):
    """Return a column as objects whose booleans equal no number: for pandas True equals 1."""
    values = [
        DistinctBoolean(bool(value)) if is_boolean(value) else value
        for value in column.astype(object)
    ]
    return series(values, object).set_axis(column.index)


def is_arrow_int(dtype):
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_integer(dtype.pyarrow_dtype)


def nullable_int(part):
    name = part.dtype.numpy_dtype.name.replace("u", "U").replace("int", "Int")
    # A direct cast of an Arrow column with missing values goes through floats.
    return pd.Series(pd.array(part.astype(object).tolist(), dtype=name), index=part.index)


def is_arrow_float(dtype):
    return isinstance(dtype, pd.ArrowDtype) and dtype.pyarrow_dtype in (pa.float32(), pa.float64())


def normal(value):
    """Return the Python value, equal for equal values of one kind; None if missing.

    Booleans are equal to no number; whole numbers, floats and decimals are to each other, if
    they are the same to the last digit: of two types the wider one holds both.
    """
    if isinstance(value, (list, np.ndarray)):
        return tuple(normal(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, normal(each)) for key, each in sorted(value.items()))
    if isinstance(value, (tuple, frozenset)):
        return value
    if value is None or pd.isna(value):
        return None
    if is_boolean(value):
        return DistinctBoolean(bool(value))
    if isinstance(value, np.generic):
        value = value.item() if not isinstance(value, (np.datetime64, np.timedelta64)) else value
    if isinstance(value, (datetime.datetime, np.datetime64)):
        at = pd.Timestamp(value)
        ticks = at._value * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[at.unit]
        return ("naive" if at.tz is None else "zoned", ticks)
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        span = pd.Timedelta(value)
        return ("span", span._value * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[span.unit])
    return value


@st.composite
def columns(draw, name, sizes, may_be_wrong=True, kinds=None):
    """Draw a column in partitions."""
    kinds = kinds or sorted(KINDS)
    method = (
        draw(
            st.sampled_from(["right meta", "right meta", "wrong meta", "family", "family", "other"])
        )
        if may_be_wrong
        else "right meta"
    )
    if method == "family":
        family = draw(st.sampled_from(FAMILIES))
        each = [draw(st.sampled_from(family)) for _ in sizes]
        declared = KINDS[draw(st.sampled_from(family))][1]
    elif method == "wrong meta":
        family = draw(st.sampled_from(FAMILIES))
        each = [draw(st.sampled_from(family))] * len(sizes)
        declared = KINDS[draw(st.sampled_from(family))][1]
    else:
        each = [draw(st.sampled_from(kinds))] * len(sizes)
        declared = KINDS[each[0]][1]
        if method == "other":
            declared = KINDS[draw(st.sampled_from(sorted(KINDS)))][1]
    return draw(column_of(name, each, sizes, declared))


@st.composite
def column_of(draw, name, kinds, sizes, declared):
    """Draw a column whose partitions have these kinds."""
    parts = []
    for kind, size in zip(kinds, sizes, strict=True):
        values, dtype = KINDS[kind]
        chosen = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
        parts.append(series(chosen, dtype))
    return Column(name, kinds, parts, pd.Series([], dtype=declared).dtype)


@st.composite
def sizes(draw, most=12, parts=4):
    """Draw the number of rows of each partition; 0 and 1 are included."""
    rows = draw(st.integers(0, most))
    cuts = draw(st.lists(st.integers(0, rows), max_size=parts - 1))
    return [b - a for a, b in pairwise([0, *sorted(cuts), rows])]


@st.composite
def cases(draw, count, may_be_wrong=True, first=None, **how):
    """Draw a case with ``count`` columns, with special or plain names."""
    each, count = draw(sizes()), draw(count)
    may_be_wrong = may_be_wrong and draw(st.integers(0, 7)) > 0
    if draw(st.integers(0, 3)) == 0:
        names = draw(st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True))
    else:
        names = ["k", "v", "w", "x", "y"][:count]
    drawn = [draw(first(names[0], each, may_be_wrong))] if first is not None else []
    drawn += [draw(columns(name, each, may_be_wrong, **how)) for name in names[len(drawn) :]]
    return Case(drawn, may_be_wrong and draw(st.integers(0, 4)) == 0, sum(each))
