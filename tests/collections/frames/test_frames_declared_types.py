"""Declared types are hints: results have the types of the data, or errors name the column."""

from __future__ import annotations

import datetime

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frame_strategies import arrow
from pandas_versions import TEXT
from polars.exceptions import PanicException
from scale import combinations

from hyperplane.collections.frames.task_errors import run_task
from hyperplane.dataframe import (
    drop_duplicates,
    group_agg,
    join,
    read,
    sort_values,
    to_datetime,
    top_n_per_group,
    value_counts,
    window_agg,
    window_counts,
)
from hyperplane.errors import DataError, RequestError


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def same(part):
    return part


def parts(*frames, meta=None):
    """Return a collection of unchanged partitions, with the meta of one of them."""
    return dd.from_map(same, list(frames), meta=frames[0].iloc[:0] if meta is None else meta)


ROWS = pd.DataFrame(
    {
        "k": [1, 2, 1, 2],
        "p": ["1.55", "x", "2.0", "2.25"],
        "t": pd.date_range("2024-01-01", periods=4, freq="h"),
    }
)


@pytest.fixture(params=["read", "read_parquet", "from_pandas", "from_map"])
def coerced(request, tmp_path):
    """A column that Dask declares as integers, with partitions of floats."""
    ROWS.to_parquet(tmp_path / "m.parquet")
    df = {
        "read": lambda: read(tmp_path / "m.parquet"),
        "read_parquet": lambda: dd.read_parquet(tmp_path / "m.parquet"),
        "from_pandas": lambda: dd.from_pandas(ROWS, npartitions=2),
        "from_map": lambda: parts(ROWS[:2], ROWS[2:]),
    }[request.param]()
    df["p"] = dd.to_numeric(df["p"], errors="coerce")
    assert "int" in str(df.dtypes["p"]).lower()
    return df


def test_floats_declared_as_integers_stay_floats(coerced):
    result = group_agg(coerced, "k", {"p": ["sum", "min", "max", "first"]}).compute()
    assert result.to_numpy().tolist() == [[3.55, 1.55, 2.0, 1.55], [2.25, 2.25, 2.25, 2.25]]
    result = window_agg(coerced, "t", "1D", {"p": "max"}, label="left").compute()
    assert result["p"].dropna().to_list() == [1.55, 2.25] or result["p"].to_list() == [2.25]
    assert top_n_per_group(coerced, "k", "p", 1).compute()["p"].to_list() == [2.0, 2.25]
    assert value_counts(coerced, "p").compute().to_dict() == {1.55: 1, 2.0: 1, 2.25: 1}
    assert sort_values(coerced, "p").compute()["p"].to_list()[:3] == [1.55, 2.0, 2.25]
    assert sorted(drop_duplicates(coerced, "p").compute()["p"].dropna()) == [1.55, 2.0, 2.25]
    names = list(window_counts(coerced, "t", "1D", "p").compute().columns)
    assert names == ["p_1.55", "p_2.0", "p_2.25"]


def test_an_unrepresentable_value_is_named_with_column_and_partition():
    df = parts(
        pd.DataFrame({"k": [1], "v": [1]}),
        pd.DataFrame({"k": [1], "v": ["many"]}),
    )
    with pytest.raises(DataError, match=r"column 'v': holds text, such as 'many'.*partition 1"):
        group_agg(df, "k", {"v": "sum"}).compute()
    message = r"column 'v': holds int64 in partition 0 and text in partition 1, such as 'many'"
    for result in (
        sort_values(df, "v"),
        sort_values(df, "v", split_out=1),
        drop_duplicates(df),
        drop_duplicates(df, split_out=2),
        value_counts(df, "v"),
        group_agg(df, "v", {"k": "sum"}, split_out=2),
        group_agg(df, "k", {"v": ["first", "nunique"]}),
        top_n_per_group(df, "k", "v", 1),
    ):
        with pytest.raises(DataError, match=message):
            result.compute()


def test_type_conflicts_name_both_partitions():
    number, text = pd.DataFrame({"v": [1]}), pd.DataFrame({"v": ["many"]})
    far = parts(*[number] * 21, text, *[number] * 20)
    with pytest.raises(DataError, match=r"int64 in partition 16 and text in partition 21"):
        value_counts(far, "v").compute()
    # The next task sees tables of sixteen partitions each.
    halves = parts(*[number] * 16, *[text] * 16)
    message = r"holds int64 in partitions 0 to 15 and text in partitions 16 to 31, such as 'many'"
    with pytest.raises(DataError, match=message):
        value_counts(halves, "v").compute()
    # Tables are joined first if an exchange has too many.
    many = parts(*[number] * 199, text, meta=number.iloc[:0])
    with pytest.raises(DataError, match=r"partitions? 1\d\d.* and text in partition 199"):
        drop_duplicates(many, split_out=2).compute()
    # If earlier partitions have no values, the first with values is named.
    none = pd.DataFrame({"v": pd.Series([None], dtype=object)})
    with pytest.raises(DataError, match=r"int64 in partition 1 and text in partition 3"):
        value_counts(parts(none, number, none, text), "v").compute()


def test_join_and_to_datetime_name_partitions_of_undeclared_types():
    number, text = pd.DataFrame({"v": [1]}), pd.DataFrame({"v": ["many"]})
    for count in (1, 2):
        with pytest.raises(DataError, match=r"column 'v': holds 'many' .*\(partition 1\)"):
            join(parts(number, text), parts(*[number] * count), "v").compute()
    at = pd.DataFrame({"v": pd.to_datetime(["2024-01-01"])})
    with pytest.raises(DataError, match=r"column 'v': holds .*1.* of type int64.*\(partition 1\)"):
        to_datetime(parts(at, number), "v").compute()


@pytest.mark.parametrize("name", ["v", "k"])
@pytest.mark.parametrize(("declared", "held"), [(True, 0), (1, True), (1.0, False)])
def test_booleans_do_not_join_with_numbers(name, declared, held):
    frames = [pd.DataFrame({"k": [1], "v": [1]}).assign(**{name: [v]}) for v in (declared, held)]
    other = parts(frames[0][["k"]])
    for sides in ((parts(*frames), other), (other, parts(*frames))):
        with pytest.raises(DataError, match=rf"column '{name}': holds .*{held}.*\(partition 1\)"):
            join(*sides, "k").compute()


@pytest.mark.parametrize("kind", ["bool", "boolean", "bool[pyarrow]", object])
@pytest.mark.parametrize("number", [1, 1.0])
def test_booleans_and_numbers_are_different_keys_of_objects(kind, number):
    truths = pd.DataFrame({"k": pd.array([True], dtype=kind)})
    numbers = pd.DataFrame({"k": [number]})
    like = truths.iloc[:0].astype(object)
    for right in (parts(numbers, meta=like), parts(numbers, numbers.iloc[:0], meta=like)):
        for sides in ((parts(truths, meta=like), right), (right, parts(truths, meta=like))):
            with pytest.raises(DataError, match="column 'k': holds True on one side and 1"):
                join(*sides, "k").compute()
    zero = parts(numbers - 1, meta=like)
    assert join(parts(truths, meta=like), zero, "k").compute().empty


@pytest.mark.parametrize("name", ["k", "v"])
def test_categories_with_text_in_a_column_declared_as_objects_join(name):
    frames = [pd.DataFrame({"k": ["a", "b"], "v": ["a", "b"]}).astype({name: "category"})]
    frames += [frames[0].iloc[:0].astype(object), frames[0].astype({name: "str"})]
    df = parts(*frames, meta=frames[0].iloc[:0].astype(object))
    other = pd.DataFrame({"k": ["a", "c"], "w": [1, 2]}).astype({"k": object})
    for right in (parts(other), parts(other.iloc[:0], other.iloc[:0], meta=other.iloc[:0])):
        result = join(df, right, "k", how="left").compute()
        assert sorted(result["v"]) == ["a", "a", "b", "b"]
    assert sorted(join(parts(other), df, "k").compute()["v"]) == ["a", "a"]


@pytest.mark.parametrize("kind", ["int64", "Int64", "int64[pyarrow]"])
def test_integers_declared_as_objects_keep_their_digits_in_a_join(kind):
    digits, other = 2**53 + 1, pd.DataFrame({"k": [1]})
    frames = [pd.DataFrame({"k": [1], "v": v}) for v in (pd.array([digits], dtype=kind), [0.5])]
    df = parts(*frames, meta=frames[0].iloc[:0].astype({"v": object}))
    for result in (join(df, parts(other), "k"), join(parts(other), df, "k")):
        assert sorted(result.compute()["v"].tolist()) == [0.5, digits]
    same = parts(frames[0][["v"]], meta=df._meta[["v"]])
    assert join(df, same, "v", how="left").compute()["v"].tolist() == [digits, 0.5]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1, 2.5), "holds integers in partition 0 and floats in partition 1;"),
        ((True, 2), "holds booleans in partition 0 and integers in partition 1;"),
        ((2.5, True), "holds floats in partition 0 and booleans in partition 1;"),
    ],
)
def test_numbers_of_two_kinds_in_two_partitions_name_both(values, message):
    times = pd.date_range("2024", periods=1)
    df = parts(
        *(pd.DataFrame({"t": times, "c": pd.Series([c], dtype=object)}) for c in ("a", *values))
    ).partitions[1:]
    with pytest.raises(DataError, match=f"column 'c': {message}"):
        window_counts(df, "t", "1D", "c").compute()


@pytest.mark.parametrize(
    ("declared", "there"), [(["c", "b"], ["a", "b"]), ([1, 2], [3, 2]), ([1.0], ["1"])], ids=str
)
def test_counting_an_undeclared_category_is_an_error(declared, there):
    times = pd.date_range("2024", periods=2)
    frame = pd.DataFrame({"t": times, "c": pd.Categorical([there[0], None])})
    meta = frame.iloc[:0].assign(c=pd.Categorical([], categories=declared))
    df = dd.from_map(lambda part: part, [frame.iloc[1:], frame], meta=meta)
    message = rf"'c': holds '?{there[0]}'?, which is not one .* categories=\[.*\(partition 1\)"
    with pytest.raises(DataError, match=message):
        window_counts(df, "t", "1D", "c").compute()
    counts = window_counts(df, "t", "1D", "c", categories=[there[0]]).compute()
    assert counts[f"c_{there[0]}"].to_list() == [1, 0]


def test_numbers_without_a_common_type_are_an_error():
    df = parts(pd.DataFrame({"v": [2**53 + 1]}), pd.DataFrame({"v": [0.5]}))
    message = (
        r"'v': holds int64, such as 9007199254740993, in partition 0 and float64 in partition 1"
    )
    with pytest.raises(DataError, match=message):
        value_counts(df, "v").compute()


def test_times_of_later_partitions_keep_their_finer_unit():
    times = [pd.Series(pd.to_datetime([1500]).as_unit("ns")), pd.Series([pd.Timestamp("2024")])]
    df = parts(
        *(
            pd.DataFrame({"k": 1, "t": each.dt.as_unit(u)})
            for each, u in zip(times[::-1], ["ms", "ns"], strict=True)
        )
    )
    assert group_agg(df, "k", {"t": "min"}).compute()["t"].to_list() == [pd.Timestamp(1500)]


def test_zoned_times_with_a_naive_meta_are_refused():
    zoned = pd.DataFrame({"t": pd.date_range("2024", periods=2, tz="Europe/Berlin"), "v": 1})
    df = parts(zoned, meta=zoned.assign(t=zoned.t.dt.tz_localize(None)).iloc[:0])
    with pytest.raises(DataError, match=r"column 't': holds Timestamp.*partition 0"):
        window_agg(df, "t", "1D", {"v": "sum"}).compute()
    assert sort_values(df, "t").compute()["t"].dt.tz is not None


@pytest.mark.parametrize("name", ["*", "^x$", "^.*$", ""])
def test_columns_may_have_names_that_are_patterns_in_polars(name):
    frame = pd.DataFrame({name: [2, 1, 2], "x": [1, 2, 3], "t": pd.date_range("2024", periods=3)})
    df = dd.from_pandas(frame, npartitions=2)
    assert sort_values(df, name).compute()["x"].to_list() == [2, 1, 3]
    assert sorted(drop_duplicates(df, name).compute()["x"]) == [1, 2]
    result = group_agg(df, name, {"x": "sum"}).compute()
    assert result.index.name == name
    assert result["x"].to_list() == [2, 4]
    assert group_agg(df, "x", {name: ["max"]}).compute().columns.to_list() == [(name, "max")]
    assert top_n_per_group(df, "x", name, 1).compute()[name].to_list() == [2, 1, 2]
    assert value_counts(df, name).compute().to_dict() == {2: 2, 1: 1}
    counted = window_counts(df, "t", "1D", name).compute()
    assert counted.columns.to_list() == [f"{name}_1", f"{name}_2"]
    result = window_agg(df, "t", "2D", {name: "sum"}).compute()
    assert result[name].sum() == 5
    assert len(join(df, df[[name]], name).compute()) == 5


def test_periods_have_min_and_max():
    frame = pd.DataFrame({"k": [1, 2], "p": pd.period_range("2024-01", periods=2, freq="M")})
    result = group_agg(dd.from_pandas(frame, npartitions=2), "k", {"p": ["min", "max"]}).compute()
    pd.testing.assert_frame_equal(result, frame.groupby("k").agg({"p": ["min", "max"]}))


def test_the_median_of_infinite_numbers_is_infinite():
    frame = pd.DataFrame({"k": [1, 1, 2], "v": [-np.inf, -np.inf, np.inf]})
    result = group_agg(dd.from_pandas(frame, npartitions=2), "k", {"v": "median"}).compute()
    assert result["v"].to_list() == [-np.inf, np.inf]


@pytest.mark.parametrize("known", [True, False])
def test_categories_that_do_not_occur_are_counted(known):
    values = pd.Series(["a", "b", "a"], dtype=pd.CategoricalDtype(["c", "b", "a"]))
    df = dd.from_pandas(values.to_frame("v"), npartitions=2)
    df = df if known else df.assign(v=df["v"].cat.as_unknown())
    assert value_counts(df, "v").compute().to_dict() == {"a": 2, "b": 1, "c": 0}


def test_bins_of_cut_are_counted():
    frame = pd.DataFrame({"v": pd.cut(pd.Series([1, 2, 2]), [0, 1, 2, 3])})
    result = value_counts(dd.from_pandas(frame, npartitions=2), "v").compute()
    assert result.to_dict() == frame["v"].value_counts().to_dict()


@pytest.mark.parametrize("kind", ["float16", pd.SparseDtype("int64")])
def test_short_floats_and_sparse_columns_are_counted(kind):
    frame = pd.DataFrame({"v": pd.Series([1, 2, 1]).astype(kind)})
    assert value_counts(dd.from_pandas(frame, npartitions=2), "v").compute().to_dict() == {
        1: 2,
        2: 1,
    }


def test_nullable_booleans_and_unknown_categories_are_joined():
    kind = pd.ArrowDtype(pa.bool_())
    left = pd.DataFrame({"k": pd.array([True, None, False, True], dtype=kind), "a": range(4)})
    right = pd.DataFrame({"k": pd.array([True, False, None], dtype=kind), "b": range(3)})
    sides = dd.from_pandas(left, npartitions=3), dd.from_pandas(right, npartitions=2)
    result = join(*sides, "k").compute()
    assert sorted(zip(result["a"], result["b"], strict=True)) == [(0, 0), (1, 2), (2, 1), (3, 0)]
    letters = pd.DataFrame({"k": pd.Series(list("abab"), dtype="category"), "a": range(4)})
    known = dd.from_pandas(letters, npartitions=2)
    unknown = known.assign(k=known["k"].cat.as_unknown()).rename(columns={"a": "b"})
    assert len(join(known, unknown, "k").compute()) == 8


def test_a_left_join_keeps_digits_with_missing_values():
    left = dd.from_pandas(pd.DataFrame({"k": range(8)}), npartitions=4)
    right = dd.from_pandas(pd.DataFrame({"k": [1, 2], "n": [2**53 + 1, 5]}), npartitions=2)
    result = join(left, right, "k", "left").compute()
    assert result.dropna().set_index("k")["n"].to_dict() == {1: 2**53 + 1, 2: 5}


def test_objects_of_integers_and_floats_are_refused_as_targets():
    frame = pd.DataFrame(
        {"t": pd.date_range("2024", periods=2), "c": pd.Series([1, 2.5], dtype=object)}
    )
    with pytest.raises(DataError, match=r"column 'c'.*integers and floats"):
        window_counts(dd.from_pandas(frame, npartitions=1), "t", "1D", "c").compute()


@pytest.mark.parametrize("zone", ["+05:45", "-03:30"])
def test_times_of_unusual_offsets_keep_their_type(zone):
    kind = pd.ArrowDtype(pa.timestamp("us", zone))
    for dtype in (f"datetime64[us, {zone}]", kind):
        times = pd.Series(pd.date_range("2024", periods=2, tz="UTC")).astype(dtype)
        result = group_agg(
            dd.from_pandas(pd.DataFrame({"k": 1, "t": times}), npartitions=2), "k", {"t": "max"}
        )
        assert result.compute()["t"].dtype == times.dtype


def test_signed_zeros_with_categories_are_groups():
    kind = pd.ArrowDtype(pa.float32())
    frame = pd.DataFrame(
        {
            "k": pd.array([0.0, -0.0], dtype=kind),
            "c": pd.Series(["a", "b"], dtype="category"),
            "v": [1, 2],
        }
    )
    result = group_agg(dd.from_pandas(frame, npartitions=2), ["k", "c"], {"v": "sum"}).compute()
    assert result["v"].to_list() == [1, 2]


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.date32(), pa.binary()])
def test_numbers_and_text_do_not_become_times_or_bytes(kind):
    for value in (2, "a"):
        values = pd.Series([value, value], dtype=object)
        df = parts(pd.DataFrame({"v": values}), meta=pd.DataFrame({"v": []}, dtype=arrow(kind)))
        result = value_counts(df, "v").compute()
        assert result.to_dict() == {value: 2}
        assert drop_duplicates(df, "v").compute()["v"].to_list() == [value]


def test_categories_that_are_declared_with_numbers_name_the_column():
    text = pd.CategoricalDtype(pd.Index(["a", "b"], dtype=TEXT))
    like = pd.DataFrame({"v": pd.Series([], dtype=text)})
    number = pd.DataFrame({"v": pd.Series([0.5, None], dtype="Float32")})
    for some in ((number[:0], number), (number,)):
        with pytest.raises(DataError, match=r"column 'v': holds 0.5.* has categories of type"):
            drop_duplicates(parts(*some, meta=like)).compute()


@pytest.mark.parametrize("kind", ["float64", "Float64", pd.ArrowDtype(pa.float64())])
def test_signed_zeros_in_two_windows_have_one_label(kind):
    times = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-02"])
    frame = pd.DataFrame({"t": times, "k": pd.array([0.0, -0.0, 1.5], dtype=kind), "v": 1})
    df = dd.from_pandas(frame, npartitions=1)
    result = window_agg(df, "t", "1D", {"v": "sum"}, "k", closed="left", label="left").compute()
    assert result.index.get_level_values("k").to_list() == [0.0, 0.0, 1.5]
    assert len(result.index.levels[0]) == 2


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["a", 1, "a"], dtype=pd.CategoricalDtype(["a", 1, "c"])),
        pd.cut(pd.Series([1, 2, 2]), [0, 1, 2, 3]),
        pd.Series(pd.period_range("2024-01", periods=3, freq="M")).astype("category"),
    ],
    ids=["mixed", "bins", "months"],
)
def test_categories_of_any_kind_are_counted_in_windows(values):
    frame = pd.DataFrame({"t": pd.date_range("2024", periods=3), "c": values})
    df = dd.from_pandas(frame, npartitions=2)
    result = window_counts(df, "t", "3D", "c", closed="left", label="left").compute()
    want = pd.get_dummies(frame, columns=["c"]).groupby(pd.Grouper(key="t", freq="3D")).sum()
    assert result.to_numpy().tolist() == want.to_numpy().tolist()
    assert list(result.columns) == list(want.columns)
    some = list(values.cat.categories[2:])
    result = window_counts(df, "t", "3D", "c", closed="left", label="left", categories=some)
    assert result.compute().to_numpy().tolist() == want.iloc[:, 2:].to_numpy().tolist()


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M%z", "%Y-%m-%d %Z"])
def test_a_format_with_a_zone_needs_utc(form):
    df = dd.from_pandas(pd.DataFrame({"at": ["2026-01-31 10:00+02:00"]}), npartitions=1)
    with pytest.raises(RequestError, match="utc=True"):
        to_datetime(df, "at", form)


def test_times_out_of_bounds_are_missing_when_coerced():
    texts = ["9999-12-31 23:59:59", "2026-01-31T10:00:00.123456789", "01/02/2026", "never"]
    df = dd.from_pandas(pd.DataFrame({"at": texts}), npartitions=1)
    result = to_datetime(df, "at", errors="coerce").compute()["at"]
    assert result.isna().to_list() == [False, False, False, True]
    numbers = dd.from_pandas(pd.DataFrame({"at": [1e17, np.inf]}), npartitions=1)
    result = to_datetime(numbers, "at", errors="coerce", unit="us").compute()["at"]
    assert result.isna().to_list() == [False, True]


@pytest.mark.parametrize(
    ("unit", "dtype"),
    combinations(["s", "ms", "us", "ns"], ["float64", "Float64", pd.ArrowDtype(pa.float64())]),
)
def test_a_fraction_does_not_make_another_number_a_missing_time(dtype, unit):
    values = pd.array([1.5, 1e15, None, 0.5], dtype=dtype)
    df = parts(pd.DataFrame({"at": values}, index=[0, 0, 1, 1]))
    result = (
        to_datetime(df, "at", errors="coerce", unit=unit).compute()["at"].reset_index(drop=True)
    )
    # Seconds are beyond the times of microseconds.
    alone = pd.NaT if unit == "s" else pd.Timestamp(np.datetime64(10**15, unit))
    assert result.isna().to_list() == [False, alone is pd.NaT, True, False]
    assert result[1] is pd.NaT or result[1] == alone
    assert result[0] == pd.Timestamp(1.5, unit=unit).floor("ns" if unit == "ns" else "us")


def test_arrow_float16_ranks_and_groups_top_rows():
    half = pd.ArrowDtype(pa.float16())
    frame = pd.DataFrame({"k": [1, 1, 2], "v": pd.array([1.5, 2.5, None], dtype=half)})
    df = dd.from_pandas(frame, npartitions=2)
    assert top_n_per_group(df, "k", "v", 1).compute()["v"].to_list() == [2.5, pd.NA]
    frame.columns = ["v", "k"]
    df = dd.from_pandas(frame, npartitions=2)
    assert top_n_per_group(df, "k", "v", 1).compute()["k"].to_list() == [1.5, 2.5]


def test_arrow_float16_values_are_unchanged():
    half = pd.ArrowDtype(pa.float16())
    frame = pd.DataFrame({"k": [1, 1, 2, 2], "v": pd.array([1.5, 2.5, None, None], dtype=half)})
    result = group_agg(
        dd.from_pandas(frame, npartitions=2), "k", {"v": ["first", "last", "min", "max"]}
    )
    assert set(result.dtypes) == set(result.compute().dtypes) == {half}
    assert result.compute().loc[1].to_list() == [1.5, 2.5, 1.5, 2.5]


def test_dates_of_milliseconds_stay_dates():
    kind = arrow(pa.date64())
    days = [datetime.date(2024, 1, 3), None, datetime.date(1969, 12, 31)]
    frame = pd.DataFrame({"k": [1, 1, 2], "v": pd.Series(days, dtype=kind)})
    frame["t"] = pd.Timestamp("2024-01-01")
    df = dd.from_pandas(frame, npartitions=2)
    result = group_agg(df, "k", {"v": ["min", "last"]}).compute()
    assert set(result.dtypes) == {kind}
    assert result.to_numpy().tolist() == [[days[0]] * 2, [days[2]] * 2]
    assert sort_values(df, "v").compute()["v"].to_list() == [days[2], days[0], pd.NA]
    assert value_counts(df, "v").compute().index.dtype == kind
    names = window_counts(df, "t", "1D", "v").compute().columns.to_list()
    assert names == ["v_1969-12-31", "v_2024-01-03"]
    late = pa.array([1], pa.int64()).cast(pa.date64())  # pyarrow prints it as a whole day
    wrong = parts(pd.DataFrame({"k": [1], "v": pd.arrays.ArrowExtensionArray(late)}))
    with pytest.raises(DataError, match=r"'v': holds a date of type date64.* with a time of day"):
        sort_values(wrong, "v").compute()


def test_arrow_dictionaries_are_keys_of_top_rows():
    kind = arrow(pa.dictionary(pa.int32(), pa.string()))
    frame = pd.DataFrame({"k": pd.Series(list("baba"), dtype=kind), "v": [1, 2, 3, 4]})
    result = top_n_per_group(dd.from_pandas(frame, npartitions=2), "k", "v", 1).compute()
    assert (result["k"].dtype, result["v"].to_list()) == (kind, [4, 3])


def test_counts_of_sparse_values_have_a_dense_index():
    frame = pd.DataFrame({"v": pd.arrays.SparseArray([0, 2, 0])})
    result = value_counts(dd.from_pandas(frame, npartitions=2), "v")
    want = frame["v"].value_counts()
    assert result._meta.index.dtype == want.index.dtype == np.dtype("int64")
    pd.testing.assert_series_equal(result.compute(), want)


def test_distinct_integers_keep_their_digits_with_missing_ones():
    large = pd.DataFrame({"v": pd.array([2**53 + 1], dtype="Int64")})
    missing = pd.DataFrame({"v": pd.array([None, None], dtype="Int64")})
    df = parts(missing, large, meta=pd.DataFrame({"v": pd.Series(dtype="int64")}))
    for split in (1, 3):
        result = drop_duplicates(df, split_out=split).compute()["v"]
        assert result.dropna().to_list() == [2**53 + 1]
        assert result.isna().sum() == 1


@pytest.mark.parametrize("kind", ["float64", "Float64", pd.ArrowDtype(pa.float64())])
def test_integers_declared_as_floats_keep_their_digits(kind):
    df = parts(
        pd.DataFrame({"v": pd.array([None, 2**53 + 1], dtype="Int64")}),
        meta=pd.DataFrame({"v": pd.Series([], dtype=kind)}),
    )
    for result in (sort_values(df, "v", split_out=3), drop_duplicates(df, split_out=3)):
        assert result.compute()["v"].dropna().to_list() == [2**53 + 1]


SIGNED = ["int64", "Int64", arrow(pa.int64())]
UNSIGNED = ["uint64", "UInt64", arrow(pa.uint64())]


@pytest.mark.parametrize(
    ("declared", "held", "number"),
    [(kind, "Int64", 2**53 + 1) for kind in UNSIGNED] + [(k, "UInt64", 2**63 + 1) for k in SIGNED],
)
def test_integers_declared_with_another_sign_keep_their_digits(declared, held, number):
    rows = pd.DataFrame({"v": pd.Series([None, number], dtype=held)})
    df = parts(rows, meta=pd.DataFrame({"v": pd.Series([], dtype=declared)}))
    for result in (sort_values(df, "v", split_out=3), drop_duplicates(df, split_out=3)):
        assert result.compute()["v"].dropna().to_list() == [number]


@pytest.mark.parametrize("declared", ["timedelta64[ms]", "datetime64[us]", "bool", "float32"])
def test_missing_integers_do_not_round_integers_of_other_partitions(declared):
    some, large = (pd.array(values, "UInt64") for values in ([0, None], [2**63 + 5]))
    df = parts(
        pd.DataFrame({"v": some}),
        pd.DataFrame({"v": large}),
        meta=pd.DataFrame({"v": pd.Series([], dtype=declared)}),
    )
    for split in (1, 2, 3):
        for result in (sort_values(df, "v", split_out=split), drop_duplicates(df, split_out=split)):
            assert sorted(result.compute()["v"].dropna()) == [0, 2**63 + 5]


def test_groups_in_several_partitions_keep_digits_with_missing_values():
    keys = list(range(8))
    rows = pd.DataFrame({"k": keys, "v": pd.array([2**53 + 1, None] * 4, dtype="Int64")})
    df = parts(rows, meta=pd.DataFrame({"k": [0], "v": [0]}).iloc[:0])
    result = group_agg(df, "k", {"v": "first"}, split_out=3).compute()["v"].sort_index()
    assert result.dropna().to_list() == [2**53 + 1] * 4


def test_a_polars_panic_becomes_a_data_error():
    def panics(table):
        raise PanicException("not implemented")

    with pytest.raises(DataError, match=r"column 'a': .*PanicException"):
        run_task(panics, pd.DataFrame({"a": [1]}))


def test_the_order_of_columns_may_differ_and_a_missing_one_is_named():
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    df = parts(frame, frame[["b", "a"]])
    assert sorted(drop_duplicates(df, "a").compute()["b"]) == [3, 4]
    with pytest.raises(DataError, match=r"column 'b': is missing.*partition 1"):
        drop_duplicates(parts(frame, frame[["a"]]), "a").compute()


TIMES = pd.Series(pd.to_datetime([0, 0, 1]))  # a nanosecond apart


@pytest.mark.parametrize(
    "values", [TIMES, TIMES.dt.tz_localize("UTC"), TIMES - TIMES[0]], ids=["times", "zone", "spans"]
)
def test_known_values_keep_nanoseconds(values):
    assert values.dtype in ("datetime64[ns]", "datetime64[ns, UTC]", "timedelta64[ns]")
    frame = pd.DataFrame({"t": pd.date_range("2026", periods=3, freq="s"), "c": values})
    one, other = values[0], values[2]

    def counts(frame, **how):
        df = dd.from_pandas(frame, npartitions=2)
        return window_counts(df, "t", "1h", "c", **how).compute().sum().to_list()

    assert counts(frame, categories=[other]) == [1]
    assert counts(frame, categories=[one, other]) == [2, 1]
    assert counts(frame, categories=values.unique()) == [2, 1]
    assert counts(frame.astype({"c": "category"})) == [2, 1]


@pytest.mark.parametrize(
    ("order", "declared"), combinations([(0, 1), (1, 0), (2, 0, 1), (2, 1, 0)], [0, 1])
)
def test_booleans_are_not_counted_as_numbers(order, declared):
    times = pd.date_range("2026", periods=2)
    frames = [pd.DataFrame({"t": times, "c": c}) for c in ([True, False], [1, 2], [0.5, 1])]
    df = parts(*(frames[n] for n in order), meta=frames[declared].iloc[:0])
    with pytest.raises(
        DataError, match=r"column 'c': holds .*booleans .*convert the column to one type"
    ):
        window_counts(df, "t", "1D", "c").compute()
    with pytest.raises(DataError, match=r"column 'c': holds .*boolean.*convert "):
        window_counts(df.assign(n=1), "t", "1D", "n", by="c").compute()
    empty = parts(frames[1], frames[0].iloc[:0], meta=frames[declared].iloc[:0])
    result = window_counts(empty, "t", "1D", "c").compute()
    assert result.columns.to_list() == ["c_1", "c_2"]


@pytest.mark.parametrize("turn", [1, -1])
def test_booleans_without_numbers_are_counted(turn):
    times = pd.date_range("2026", periods=2)
    truth = pd.DataFrame({"t": times, "c": [True, False]})
    df = parts(*[truth, truth.iloc[:0].astype({"c": "int8"})][::turn], meta=truth.iloc[:0])
    result = window_counts(df, "t", "1D", "c").compute()
    assert result.columns.to_list() == ["c_False", "c_True"]
    assert sort_values(df, "t").compute()["c"].dtype == "bool"


def test_mixed_numbers_are_counted_if_categories_are_given():
    times = pd.date_range("2026", periods=1)
    df = parts(*(pd.DataFrame({"t": times, "c": pd.Series([c], dtype=object)}) for c in (True, 7)))
    counts = window_counts(df, "t", "1D", "c", categories=(number for number in [7])).compute()
    assert counts.c_7.to_list() == [1]


@pytest.mark.parametrize("values", [(True, 2), (2, True), (2.5, True), (True, 1)])
def test_booleans_do_not_become_numbers(values):
    df = parts(*(pd.DataFrame({"k": [1], "c": pd.Series([c], dtype=object)}) for c in values))
    calls = (
        lambda: sort_values(df, "k"),
        lambda: drop_duplicates(df),
        lambda: top_n_per_group(df, "c", "k", 3),
        lambda: group_agg(df, "k", {"c": "first"}),
        lambda: value_counts(df, "c"),
    )
    for call in calls:
        with pytest.raises(DataError, match=r"column 'c': holds .*boolean.*convert "):
            call().compute()


@pytest.mark.parametrize("values", [[pd.Timestamp(1), None], [pd.Timedelta(1), None], ["a", None]])
def test_missing_values_declared_as_complex_numbers_are_missing(values):
    frame = pd.DataFrame({"k": [1, 2], "c": pd.Series(values, dtype=object)})
    df = parts(frame, meta=frame.iloc[:0].assign(c=pd.Series([], dtype="complex128")))
    for result in (sort_values(df, "k", split_out=2), drop_duplicates(df, split_out=4)):
        assert result.compute()["c"].dropna().to_list() == values[:1]


@pytest.mark.parametrize("kind", [object, arrow(pa.date32())])
@pytest.mark.parametrize(
    "categories", [pd.Index(["a"], dtype=TEXT), [1, 2], pd.to_datetime(["2024-01-01"])]
)
def test_dates_declared_as_categories_of_something_else_name_the_column(kind, categories):
    dates = pd.Series([None, datetime.date(2024, 1, 1)], dtype=kind)
    frame = pd.DataFrame({"k": [1, 2], "^c$": dates})
    declared = pd.Series([], dtype=pd.CategoricalDtype(categories))
    df = parts(frame, meta=frame.iloc[:0].assign(**{"^c$": declared}))
    for call in (
        lambda: sort_values(df, "k"),
        lambda: drop_duplicates(df),
        lambda: group_agg(df, "k", {"^c$": "first"}),
    ):
        with pytest.raises(DataError, match=r"column '\^c\$': holds datetime.date.*convert "):
            call().compute()


@pytest.mark.parametrize(
    ("declared", "kind"),
    combinations(
        ["float16", "float64", "int64", "uint8", "Float32"], ["bool", "boolean", "bool[pyarrow]"]
    ),
)
def test_booleans_declared_as_numbers_stay_booleans(kind, declared):
    values = [True, True] if kind == "bool" else [None, True]
    frame = pd.DataFrame({"k": [1, 2], "n": [1, 2], "c": pd.Series(values, dtype=kind)})
    df = parts(frame, frame.iloc[:0], meta=frame.iloc[:0].assign(c=pd.Series(dtype=declared)))
    for result in (
        sort_values(df, "k", split_out=3),
        drop_duplicates(df, split_out=3),
        top_n_per_group(df, "k", "n", 1, split_out=3),
        group_agg(df, "k", {"c": "first"}, split_out=3),
    ):
        values_of_result = result.compute()["c"].dropna().to_list()
        assert [str(value) for value in values_of_result] == ["True"] * (2 - values.count(None))


@pytest.mark.parametrize("value", [True, "x", pd.Timestamp("2024-01-01", tz="UTC")])
@pytest.mark.parametrize("turn", [1, -1])
def test_partitions_without_values_do_not_change_the_type(value, turn):
    missing, there = (
        pd.DataFrame({"k": [1, 2], "c": c})
        for c in (pd.Series([float("nan")] * 2), pd.Series([value] * 2))
    )
    df = parts(*[missing, there][::turn], meta=there.iloc[:0])
    values = sort_values(df, "k", ascending=False).compute()["c"].dropna()
    assert values.to_list() == [value] * 2
    assert group_agg(df, "k", {"c": "first"}).compute()["c"].to_list() == [value] * 2


@pytest.mark.parametrize(
    ("values", "kind", "declared"),
    [
        (np.array(["3000", "1400"], "datetime64[s]"), "datetime64[s]", "datetime64[ns]"),
        (np.array(["20000", "1970"], "datetime64[s]"), "datetime64[ms]", "datetime64[ns]"),
        (np.array(["3000", "1400"], "datetime64[s]"), "datetime64[us, UTC]", "datetime64[ns, UTC]"),
        (np.array([10**12, 5], "timedelta64[s]"), "timedelta64[s]", "timedelta64[ns]"),
        (
            np.array(["3000", "1400"], "datetime64[s]"),
            "timestamp[us][pyarrow]",
            "timestamp[ns][pyarrow]",
        ),
    ],
)
def test_times_out_of_range_of_a_unit_concatenate_with_empty_partitions(values, kind, declared):
    times = pd.Series(values)
    times = times.dt.tz_localize("UTC") if "UTC" in kind else times
    frame = pd.DataFrame({"k": [0, 1], "v": times.astype(kind)})
    df = parts(frame, frame.iloc[:0], meta=frame.iloc[:0].astype({"v": declared}))
    expected = set(frame["v"].astype(object))
    for result in (
        drop_duplicates(df, split_out=3),
        sort_values(df, "v", split_out=3),
        top_n_per_group(df, "k", "v", 1, split_out=3),
        group_agg(df, "k", {"v": "max"}, split_out=3),
    ):
        assert set(result.compute()["v"].astype(object)) == expected
    assert set(group_agg(df, "v", {"k": "sum"}, split_out=3).compute().index) == expected


@pytest.mark.parametrize(
    ("function", "kind"),
    combinations(["max", "min", "first", "last"], ["boolean", pd.ArrowDtype(pa.bool_())]),
)
def test_booleans_with_missing_values_do_not_become_numbers(kind, function):
    times = pd.date_range("2025-01-01", periods=4, freq="2h")
    parts = [
        pd.DataFrame({"t": times[:2], "k": [1, 1], "v": pd.array([None, True], dtype=kind)}),
        pd.DataFrame({"t": times[2:], "k": [1, 2], "v": pd.array([True, None], dtype=kind)}),
    ]
    like = parts[0].iloc[:0].assign(v=pd.Series(dtype=bool))
    df = dd.from_map(lambda number: parts[number], [0, 1], meta=like)
    in_groups = group_agg(df, "k", {"v": function}).compute()["v"]
    in_windows = window_agg(df, "t", "2h", {"v": function}).compute()["v"]
    with_keys = window_agg(df, "t", "12h", {"v": function}, by="k").compute()["v"]
    for result, there in ((in_groups, [0]), (in_windows, [1, 2]), (with_keys, [1])):
        assert result.notna().to_numpy().nonzero()[0].tolist() == there
        assert all(value is True for value in result[result.notna()])
