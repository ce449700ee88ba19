"""Filters select the same rows as pandas, with and without pruning by statistics."""

from __future__ import annotations

import datetime as dt
import decimal

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.errors import RequestError

NAN = float("nan")
VALUES = {
    "n": (pa.int64(), st.integers(-3, 3)),
    "x": (pa.float64(), st.sampled_from([-1.0, 0.0, 0.5, 2.0, NAN, float("inf")])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ä"])),
    "t": (
        pa.timestamp("ms"),
        st.sampled_from([dt.datetime(2024, 1, day, 12) for day in (1, 2, 3)]),
    ),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.decimal128(5, 2), st.sampled_from([decimal.Decimal(i) / 20 for i in range(5)])),
}
GIVEN = {**{name: values for name, (_, values) in VALUES.items()}}
GIVEN["x"] = st.sampled_from([-1.0, 0.0, 0.5, 2, float("inf")])
GIVEN["d"] = st.sampled_from([0.0, 0.05, 0.1, 0.2])
COMPARISONS = ["==", "=", "!=", "<", "<=", ">", ">="]


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@st.composite
def conditions(draw: st.DrawFn) -> tuple:
    name = draw(st.sampled_from(sorted(GIVEN)))
    if draw(st.booleans()):
        return name, draw(st.sampled_from(COMPARISONS)), draw(GIVEN[name])
    values = draw(st.lists(GIVEN[name], max_size=3))
    return name, draw(st.sampled_from(["in", "not in"])), values


@settings(max_examples=scaled(24, 120), suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.lists(
        st.fixed_dictionaries({n: st.none() | v for n, (_, v) in VALUES.items()}),
        min_size=1,
        max_size=20,
    ),
    filters=st.lists(conditions(), min_size=1, max_size=3)
    | st.lists(st.lists(conditions(), min_size=1, max_size=2), min_size=1, max_size=3),
    groups=st.integers(1, 5),
)
def test_filters_keep_the_rows_that_pandas_keeps(tmp_path_factory, rows, filters, groups):
    path = tmp_path_factory.mktemp("f") / "a.parquet"
    schema = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
    table = pa.Table.from_pylist(rows, schema).append_column("row", pa.array(range(len(rows))))
    parquet.write_table(table, path, row_group_size=groups)
    # pyarrow prunes 0.0 for "in [0.0]", because the statistics contain -0.0.
    plain = path.with_name("plain.parquet")
    parquet.write_table(table, plain, write_statistics=False)
    theirs = pd.read_parquet(plain, filters=as_pyarrow(filters)).row.to_list()
    assert read(path, columns=["row"], filters=filters).compute().row.to_list() == theirs


def as_pyarrow(filters: list) -> list:
    """Return values for pyarrow, which finds decimals only in lists of decimals."""

    def convert(condition: tuple) -> tuple:
        name, op, value = condition
        if name == "d" and isinstance(value, list):
            value = [decimal.Decimal(str(v)).quantize(decimal.Decimal("0.01")) for v in value]
        if name == "x" and isinstance(value, list):
            value = [float(v) for v in value]
        if isinstance(value, list):
            value = pa.array(value, VALUES[name][0])
        return name, op, value

    if isinstance(filters[0], tuple):
        return [convert(condition) for condition in filters]
    return [[convert(condition) for condition in group] for group in filters]


@pytest.fixture
def path(tmp_path):
    times = pd.date_range("2024-01-01", periods=6, freq="D")
    frame = pd.DataFrame(
        {
            "n": pd.array([1, 2, 3, None, 5, 6], "Int64"),
            "x": [1.0, np.nan, 3.0, 4.0, 5.0, 6.0],
            "t": times,
            "z": times.tz_localize("Europe/Berlin"),
            "s": list("abcdef"),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=2)
    return tmp_path / "a.parquet"


@pytest.mark.parametrize(
    ("condition", "expected_rows"),
    [
        (("n", "is null"), [3]),
        (("n", "not null", None), [0, 1, 2, 4, 5]),
        (("x", "is null"), [1]),
        (("t", ">=", "2024-01-05"), [4, 5]),
        (("t", "==", dt.date(2024, 1, 2)), [1]),
        (("t", "==", pd.Timestamp("2024-01-02 00:00:00.000000001")), []),
        (("t", "!=", pd.Timestamp("2024-01-02 00:00:00.000000001")), [0, 1, 2, 3, 4, 5]),
        (("t", "<", pd.Timestamp("2024-01-02 00:00:00.000000001")), [0, 1]),
        (("t", ">=", pd.Timestamp("2024-01-02 00:00:00.000000001")), [2, 3, 4, 5]),
        (("t", "<", "9999-01-01"), [0, 1, 2, 3, 4, 5]),
        (("z", "==", pd.Timestamp("2024-01-01 23:00", tz="UTC")), [1]),
        (("n", ">", 2.5), [2, 4, 5]),
        (("n", "in", np.array([1, 6])), [0, 5]),
        (("s", "in", {"a", "f"}), [0, 5]),
    ],
)
def test_a_condition_selects_its_rows(path, condition, expected_rows):
    whole = pd.read_parquet(path)
    df = read(path, filters=[condition]).compute()
    assert df.t.to_list() == whole.t[expected_rows].to_list()


def test_row_groups_without_matching_rows_are_pruned(path):
    (part,) = read(path, filters=[("n", ">", 5)]).expr.iterables[0]
    assert part.rows == 2
    (part,) = read(path, filters=[[("n", "<", 2)], [("s", "==", "f")]]).expr.iterables[0]
    assert part.rows == 4
    assert [piece.groups for piece in part.pieces] == [(0,), (2,)]


@pytest.mark.parametrize(
    "filters",
    [
        [("n", ">", "a")],
        [("n", ">", True)],
        [("n", "==", None)],
        [("x", "==", NAN)],
        [("s", "in", "abc")],
        [("s", "==", 1)],
        [("t", ">", 5)],
        [("t", ">", "no time")],
        [("t", ">", pd.Timestamp("2024-01-01", tz="UTC"))],
        [("z", ">", pd.Timestamp("2024-01-01"))],
        [("n", ">")],
        [("n",)],
        [],
        [[]],
        "n > 1",
        [[("n", "~", 1)], [("m", "==", 1)]],
    ],
)
def test_invalid_filters_are_refused(path, filters):
    with pytest.raises(RequestError, match="filters"):
        read(path, filters=filters)


def test_an_unknown_column_lists_the_columns(tmp_path):
    pd.DataFrame({"a": [1], "b": [2]}).to_csv(tmp_path / "a.csv", index=False)
    for options in (
        {"filters": [("q", "==", 1)]},
        {"columns": ["q"]},
        {"dtypes": {"q": "str"}},
        {"parse_dates": ["q"]},
        {"na_values": {"q": "-"}},
    ):
        with pytest.raises(RequestError) as caught:
            read(tmp_path / "a.csv", **options)
        [fault] = caught.value.faults
        assert (fault.asked, fault.allowed) == ("'q'", "a column of the files: a, b")


def test_many_columns_are_shortened_in_the_error_of_an_unknown_one(tmp_path):
    names = [f"c{number}" for number in range(25)]
    pd.DataFrame([range(25)], columns=names).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RequestError, match=r"c0, c1, .*, c19 and 5 more$"):
        read(tmp_path / "a.parquet", filters=[("q", "==", 1)])


def test_all_invalid_filters_are_reported_together(path):
    with pytest.raises(RequestError) as caught:
        read(path, filters=[[("nn", "~", 1)], [("m", "==", 1), ("s", "==", 1)]])
    assert len(caught.value.faults) == 4


def test_a_row_group_of_nan_only_is_null(tmp_path):
    # Its statistics have no minimum and maximum, and count no nulls.
    table = pa.table({"x": [NAN, NAN, 1.0, 2.0], "row": range(4)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    frame = read(tmp_path / "a.parquet", filters=[("x", "is null")]).compute()
    assert frame["row"].tolist() == [0, 1]


def test_times_of_day_in_nanoseconds_are_compared_exactly(tmp_path):
    table = pa.table({"t": pa.array([1, 1999], pa.time64("ns"))})
    parquet.write_table(table, tmp_path / "a.parquet")
    for least, rows in ((dt.time(0), 2), (dt.time(0, 0, 0, 1), 1), (dt.time(0, 0, 0, 2), 0)):
        assert len(read(tmp_path / "a.parquet", filters=[("t", ">", least)])) == rows
