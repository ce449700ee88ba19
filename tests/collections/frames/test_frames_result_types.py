"""Types, index and names of results: those of plain Dask, or documented exceptions.

The page is ``docs/explanation/dataframe-kernels.md``, section "Exact, and where it differs".
"""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from frame_strategies import arrow, functions_of
from pandas_versions import IS_BEFORE_PANDAS_3_1, IS_PANDAS_2
from scale import scaled

from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    join,
    sort_values,
    to_datetime,
    top_n_per_group,
    value_counts,
    window_agg,
    window_counts,
)

TIMES = pd.Series(
    pd.to_datetime(["2024-01-01 10:00", "2024-01-02 11:00", "2024-01-01 10:00", "2024-01-03 00:00"])
)
SPANS = pd.Series(pd.to_timedelta([3, 1, 3, 2], unit="s"))
DATES = [datetime.date(2024, 1, day) for day in (1, 2, 1, 3)]
AMOUNTS = [Decimal("1.5"), Decimal("2.5"), Decimal("1.5"), Decimal("3.5")]
LETTERS = list("baba")


def zoned(unit, zone):
    return TIMES.dt.as_unit(unit).dt.tz_localize(zone)


#: Four rows of each type, none missing; the second half only at the full scale.
COLUMNS = {
    **{
        kind: pd.Series([3, 1, 3, 2]).astype(kind)
        for kind in ("int64", "uint64", "Int64", "float64", "float32", "float16", "Float64")
    },
    "double[pyarrow]": pd.Series([3.0, 1, 3, 2], dtype=arrow(pa.float64())),
    "bool": pd.Series([True, False, True, True]),
    "boolean": pd.Series([True, False, True, True], dtype="boolean"),
    "bool[pyarrow]": pd.Series([True, False, True, True], dtype=arrow(pa.bool_())),
    "str": pd.Series(LETTERS, dtype="str"),
    "string[python]": pd.Series(LETTERS, dtype="string[python]"),
    "string[pyarrow]": pd.Series(LETTERS, dtype="string[pyarrow]"),
    "text[pyarrow]": pd.Series(LETTERS, dtype=arrow(pa.string())),
    "category": pd.Series(LETTERS, dtype=pd.CategoricalDtype(["b", "a", "c"])),
    "time s": TIMES.dt.as_unit("s"),
    "UTC ms": zoned("ms", "UTC"),
    "New York us": zoned("us", "America/New_York"),
    "Berlin ns": zoned("ns", "Europe/Berlin"),
    "date[pyarrow]": pd.Series(DATES, dtype=arrow(pa.date32())),
    "span ms": SPANS.dt.as_unit("ms"),
    "decimal": pd.Series(AMOUNTS, dtype=arrow(pa.decimal128(10, 2))),
    "object of text": pd.Series(LETTERS, dtype=object),
    "object of decimals": pd.Series(AMOUNTS, dtype=object),
    "period": pd.Series(pd.PeriodIndex(["2024-01", "2024-02", "2024-01", "2024-03"], freq="M")),
}
MORE = {
    **{kind: pd.Series([3, 1, 3, 2]).astype(kind) for kind in ("int8", "UInt8", "Float32")},
    "int64[pyarrow]": pd.Series([3, 1, 3, 2], dtype=arrow(pa.int64())),
    "float[pyarrow]": pd.Series([3.0, 1, 3, 2], dtype=arrow(pa.float32())),
    "ordered": pd.Series(LETTERS, dtype=pd.CategoricalDtype(["b", "a"], ordered=True)),
    "category of int": pd.Series([2, 1, 2, 1], dtype=pd.CategoricalDtype([2, 1, 3])),
    **{f"time {unit}": TIMES.dt.as_unit(unit) for unit in ("ms", "us", "ns")},
    "offset us": zoned("us", "+05:45"),
    "timestamp[pyarrow]": TIMES.astype(arrow(pa.timestamp("us"))),
    **{f"span {unit}": SPANS.dt.as_unit(unit) for unit in ("s", "us", "ns")},
    "duration[pyarrow]": SPANS.astype(arrow(pa.duration("ms"))),
    "object of int": pd.Series([3, 1, 3, 2], dtype=object),
    "date64[pyarrow]": pd.Series(DATES, dtype=arrow(pa.date64())),
    "object of dates": pd.Series(DATES, dtype=object),
}
COLUMNS = scaled(COLUMNS, COLUMNS | MORE)
WHOLE = pd.DataFrame(
    {
        "k": [1, 2, 1, 2],
        "t": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-02"]),
        **COLUMNS,
    }
)


@pytest.fixture(autouse=True)
def _synchronous():
    with (
        dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def parts(frame, count=2):
    return dd.from_pandas(frame, npartitions=count, sort=False)


def schema(result):
    """Return the types and names of a result; all indexes of row numbers are equal."""
    index = result.index
    levels = index.levels if isinstance(index, pd.MultiIndex) else [index]
    kind = pd.Index if isinstance(index, pd.RangeIndex) else type(index)
    columns = (
        (result.dtype, result.name)
        if isinstance(result, pd.Series)
        else (dict(result.dtypes), list(result.columns.names), result.columns.dtype)
    )
    return (*columns, kind, [level.dtype for level in levels], list(index.names))


def answers(result, dask_own, in_pandas):
    """Return the schemas of our result and of plain Dask's, or pandas' if Dask fails."""
    output = result()
    computed = output.compute()
    try:
        want = dask_own().compute()
    except Exception:  # noqa: BLE001 - Dask raises many types of errors
        want = in_pandas()
    return output, schema(computed), schema(want)


#: Calls that both Dask and pandas refuse.
NO_ORACLE = {("float16", "group_agg, key"), ("float16", "join"), ("float16", "window_counts")}
DAY = pd.Grouper(key="t", freq="1D")
ROWS = {"k": ["sum"]}


def calls(name):
    """Return helper -> calls of hyperplane, Dask and pandas, with a column as values and as key."""
    frame = WHOLE[["k", "t", name]].rename(columns={name: "v"})
    df, functions = parts(frame), functions_of(frame["v"].dtype)
    if IS_BEFORE_PANDAS_3_1 and name == "decimal":
        functions = [each for each in functions if each not in ("std", "var")]  # it has none
    one = parts(frame, 1)  # one partition takes Dask half the time of two
    of_dask = {
        "v": [each for each in functions if each != "nunique"]
    }  # not supported by Dask's agg
    right = frame[["v"]].drop_duplicates().assign(r=True)
    both = df, parts(right, 1)
    day = {"closed": "left", "label": "left"}
    calls_by_helper = {
        "group_agg": (
            lambda: group_agg(df, "k", of_dask),
            lambda: one.groupby("k").agg(of_dask),
            lambda: frame.groupby("k").agg(of_dask),
        ),
        "group_agg, key": (
            lambda: group_agg(df, "v", ROWS),
            lambda: one.groupby("v", observed=True).agg(ROWS),
            lambda: frame.groupby("v", observed=True).agg(ROWS),
        ),
        "value_counts": (
            lambda: value_counts(df, "v"),
            lambda: one["v"].value_counts(),
            lambda: frame["v"].value_counts(),
        ),
        "value_counts, shares": (
            lambda: value_counts(df, "v", normalize=True),
            lambda: one["v"].value_counts(normalize=True),
            lambda: frame["v"].value_counts(normalize=True),
        ),
        "join": (
            lambda: join(*both, "v"),
            lambda: one.merge(both[1], on="v"),
            lambda: frame.merge(right, on="v"),
        ),
        "window_agg": (
            lambda: window_agg(df, "t", "1D", of_dask, **day),
            lambda: None,
            lambda: frame.groupby(DAY).agg(of_dask),
        ),
        "window_counts": (
            lambda: window_counts(df, "t", "1D", "v", **day),
            lambda: None,
            lambda: pd.get_dummies(frame[["t", "v"]], columns=["v"]).groupby(DAY).sum(),
        ),
    }
    # Arrow times are kept, as documented; Dask converts them to NumPy times.
    if frame["v"].dtype.kind == "M" and not isinstance(frame["v"].dtype, pd.ArrowDtype):
        calls_by_helper["to_datetime"] = (
            lambda: to_datetime(df, "v"),
            lambda: one.assign(v=dd.to_datetime(one["v"])),
            lambda: None,
        )
        calls_by_helper["to_datetime, UTC"] = (
            lambda: to_datetime(df, "v", utc=True),
            lambda: one.assign(v=dd.to_datetime(one["v"], utc=True)),
            lambda: None,
        )
    return calls_by_helper


#: Functions with other result types, as documented: (columns, helpers).
COMPUTED = {("v", function) for function in ("mean", "std", "var")}
DOCUMENTED = {
    "float16": COMPUTED | {("v", "sum"), ("v", "median")},
    "float32": COMPUTED,
    "Float32": COMPUTED,
    "float[pyarrow]": COMPUTED,
    "decimal": {("v", "mean"), *([("v", "median")] if IS_PANDAS_2 else [])},
}


def compared(name, helper, result):
    """Return a schema without the types that are documented exceptions."""
    if helper in ("group_agg", "window_agg"):
        return (
            {c: kind for c, kind in result[0].items() if c not in DOCUMENTED.get(name, ())},
            *result[1:],
        )
    return result


@pytest.mark.parametrize("name", COLUMNS)
def test_helpers_return_what_dask_returns(name):
    wrong = []
    turn = list(COLUMNS).index(name)
    for number, (helper, (result, dask_own, in_pandas)) in enumerate(calls(name).items()):
        # At small scale each type is tested with every second helper.
        if (name, helper) in NO_ORACLE or (number + turn) % scaled(2, 1):
            continue
        output, got, want = answers(result, dask_own, in_pandas)
        if compared(name, helper, got) != compared(name, helper, want):
            wrong.append(f"{helper} of {name}:\n  {got}\n  {want}")
        # The declared type of objects does not determine the type of the result.
        if hasattr(output, "_meta") and "object" not in name and schema(output._meta) != got:
            wrong.append(f"{helper} of {name}, declared:\n  {schema(output._meta)}\n  {got}")
    assert not wrong, "\n".join(wrong)


def test_other_columns_keep_their_types():
    right = WHOLE.rename(columns=lambda name: f"right {name}").rename(columns={"right k": "k"})
    df, other = parts(WHOLE), parts(right[:1], 1)
    for result in (
        drop_duplicates(df, "t"),
        sort_values(df, "k"),
        top_n_per_group(df, "k", "t", 1),
        join(df, other, "k"),
    ):
        kinds = {**dict(WHOLE.dtypes), **dict(right.dtypes)}
        for computed in (result._meta, result.compute()):
            assert {name: kinds[name] for name in result.columns} == dict(computed.dtypes)
            assert computed.columns.dtype == WHOLE.columns.dtype


def test_after_a_left_join_only_integers_become_nullable():
    names = ["int64", "bool", "float64", "str", "time s"]
    right = WHOLE[["k", *names]][:1]
    result = join(parts(WHOLE[["k"]]), parts(right, 1), "k", "left").compute()
    kinds = {**dict(right.dtypes), "int64": pd.Int64Dtype(), "bool": pd.BooleanDtype()}
    assert dict(result.dtypes) == kinds
