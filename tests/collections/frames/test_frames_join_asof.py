"""As-of joins against pandas.merge_asof."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pytest
from frame_strategies import QUICK, column, cut, open_files, series, times
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import combinations, scaled

from hyperplane.dataframe import join_asof
from hyperplane.errors import DataError, HyperplaneError, RequestError

KEYS = ["int64", "str", "float64", "Int64", "boolean", "category", "datetime"]
NUMBERS = {
    "int64": [-3, 0, 1, 2, 2, 7, 2**62, -(2**62)],
    "uint8": [0, 1, 2, 3, 200, 255],
    "uint64": [0, 1, 5, 6, 2**63 + 1, 2**64 - 1],
    "float64": [np.nan, 0.0, -0.0, 1.5, 2.5, -2.25, 1e10],
}
WAYS = ["broadcast", "exchanged", "exchanged through files"]


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


@st.composite
def sides(draw, keys):
    """Draw two frames with values, unsorted, with ties and missing ones, and equal keys."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=keys, max_size=keys))
    kind = draw(st.sampled_from(["times", "durations", *NUMBERS]))
    zone, unit = (
        draw(st.sampled_from([None, "UTC", "Europe/Berlin"])),
        draw(st.sampled_from(["ns", "us", "s"])),
    )
    result = []
    for side in ("left", "right"):
        rows = draw(st.integers(0, 14))
        if kind in NUMBERS:
            chosen = st.lists(st.sampled_from(NUMBERS[kind]), min_size=rows, max_size=rows)
            values = series(draw(chosen), kind)
        else:
            values = draw(times(rows, "1h", zones=(zone,), units=(unit,)))
            if kind == "durations":
                values = values.dt.tz_localize(None) - pd.Timestamp("2024-01-01")
        frame = pd.DataFrame({"on": values})
        for n, of_key in enumerate(kinds):
            frame[f"k{n}"] = draw(column(of_key, rows))
        frame["v"], frame[side] = np.arange(rows), np.arange(rows) % 3 == 0
        result.append(frame)
    return result[0], result[1], [f"k{n}" for n in range(keys)]


def tolerances(left):
    """Return a strategy of tolerances of pandas for a column of times or numbers."""
    if left["on"].dtype.kind in "mM":
        return st.sampled_from([None, *map(pd.Timedelta, ["0s", "61s", "1h", "10D"])])
    if left["on"].dtype.kind == "f":
        return st.sampled_from([None, 0.0, 1.0, 4.0])
    return st.sampled_from([None, 0, 1, 5])


def merge_with_pandas(left, right, by, **options):
    """Return the rows of pandas, which needs sorted sides without missing values."""
    right = right.dropna(subset=["on"]).sort_values("on", kind="stable")
    right = right.astype({"v": "Int64", "right": "boolean"})
    present = left.assign(row=np.arange(len(left))).dropna(subset=["on"])
    present = present.sort_values("on", kind="stable")
    found = pd.merge_asof(present, right, on="on", by=by or None, **options)
    others = found.set_index("row")[["v_y", "right"]].reindex(np.arange(len(left)))
    frame = left.rename(columns={"v": "v_x"}).reset_index(drop=True)
    return frame.assign(v_y=others["v_y"].to_numpy(), right=others["right"].to_numpy())


def check_equal(left, right, by, way, one, two, options):
    with pytest.MonkeyPatch.context() as patch:
        if way != "broadcast":
            patch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", -1)
        if way == "exchanged through files":
            patch.setattr(
                "hyperplane.collections.frames.exchange_memory._get_memory_of_exchange", lambda: 0
            )
        result = join_asof(one, two, "on", by, **options)
    ours = result.compute(scheduler="sync")
    want = merge_with_pandas(left, right, by, **options)
    assert list(ours.columns) == list(want.columns)
    if way == "broadcast":
        assert ours["v_x"].to_list() == left["v"].to_list()  # in the order of the left side
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
    assert ours[["v_y", "right"]].dtypes.to_list() == [pd.Int64Dtype(), pd.BooleanDtype()]
    return result, ours


def options_of(draw, left):
    return {
        "direction": draw(st.sampled_from(["backward", "forward", "nearest"])),
        "tolerance": draw(tolerances(left)),
        "allow_exact_matches": draw(st.booleans()),
    }


@pytest.mark.parametrize(("way", "keys"), [("broadcast", 0), *combinations(WAYS, [1, 2])])
@settings(QUICK, max_examples=scaled(6, 150))
@given(data=st.data())
def test_rows_equal_merge_asof(files, way, keys, data):
    left, right, by = data.draw(sides(keys))
    options = options_of(data.draw, left)
    places = data.draw(st.lists(st.integers(0, len(left)), max_size=3), "places")
    cuts = [len(right) // 3, len(right) // 2]
    # The size of several partitions of pandas is not known: they are exchanged by keys.
    one, two = cut(left, places), cut(right, [] if way == "broadcast" and keys else cuts)
    _, ours = check_equal(left, right, by, way, one, two, options)
    assert ours.dtypes[["on", *by]].to_list() == left.dtypes[["on", *by]].to_list()


@pytest.mark.parametrize(("way", "keys"), combinations(["broadcast", "exchanged"], [1]))
@settings(QUICK, max_examples=scaled(4, 100))
@given(data=st.data())
def test_rows_of_files_equal_merge_asof(files, way, keys, data):
    left, right, by = data.draw(sides(keys))
    options = options_of(data.draw, left)
    one, two = files.parquet(left, [len(left) // 2], 4), files.parquet(right, [len(right) // 3], 3)
    with dask.config.set(scheduler="sync"):
        read = one.compute(), two.compute()
    if read[0][by[0]].dtype == read[1][by[0]].dtype:  # by values: without missing ones it differs
        check_equal(*read, by, way, one, two, options)


def quotes(n=400):
    generator = np.random.default_rng(5)
    at = pd.Timestamp("2024-03-31", tz="Europe/Berlin") + pd.to_timedelta(
        generator.integers(0, 9000, n), "s"
    )
    return pd.DataFrame(
        {"on": at, "k": generator.choice(list("abcd"), n), "v": range(n), "right": True}
    )


def trades(n=700):
    return quotes(n).rename(columns={"right": "left"}).sample(frac=1, random_state=1)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("way", WAYS)
def test_many_rows_with_ties_over_a_clock_change_equal_merge_asof(way, direction):
    left, right = trades(), quotes()
    one = cut(left, [100, 100, 350])
    two = cut(right, [50, 300]) if way != "broadcast" else dd.from_pandas(right, npartitions=3)
    options = {"direction": direction, "tolerance": pd.Timedelta("90s")}
    result, _ = check_equal(left, right, ["k"], way, one, two, options)
    text = join_asof(one, two, "on", "k", direction=direction, tolerance="90s")
    assert len(text.compute(scheduler="sync")) == len(left)
    pd.testing.assert_frame_equal(
        result._meta, result.compute(scheduler="sync").iloc[:0], check_index_type=False
    )


def test_the_right_side_is_prepared_once(monkeypatch):
    from hyperplane.collections.frames.kernels import asof

    calls = []
    prepare = asof.sort_side
    monkeypatch.setattr(asof, "sort_side", lambda *args: calls.append(1) or prepare(*args))
    left, right = trades(), quotes()
    result = join_asof(cut(left, [100, 200, 300]), cut(right, [50]), "on")
    assert len(result.compute(scheduler="sync")) == len(left)
    assert len(calls) == 1


def test_filters_of_both_sides_and_suffixes_equal_pandas(files):
    left, right = trades(), quotes()
    one, two = files.parquet(left, [300], 100), files.parquet(right, [200], 100)
    result = join_asof(
        one[one.v > 50], two[two.v < 300], "on", "k", suffixes=("", "_quote"), tolerance="5min"
    )
    ours = result.compute(scheduler="sync").rename(columns={"v": "v_x", "v_quote": "v_y"})
    want = merge_with_pandas(
        left[left.v > 50], right[right.v < 300], ["k"], tolerance=pd.Timedelta("5min")
    )
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)


def test_columns_with_unusual_names_are_joined():
    left = pd.DataFrame({"*": [3, 1], "^a$": ["x", "y"], "": [1.5, 2.5]})
    right = pd.DataFrame({"*": [1, 2], "^a$": ["x", "y"], "": [True, False]})
    result = join_asof(cut(left, []), cut(right, []), "*", "^a$").compute(scheduler="sync")
    assert result.columns.to_list() == ["*", "^a$", "_x", "_y"]
    assert result["_y"].to_list() == [True, pd.NA]


def faults_of(call):
    with pytest.raises(RequestError) as caught:
        call()
    return {fault.where: str(fault) for fault in caught.value.faults}


def test_all_faults_are_reported_together():
    left, right = cut(trades(), []), cut(quotes(), [])
    faults = faults_of(
        lambda: join_asof(left, right, "k", "on", direction="back", suffixes="_", tolerance=1)
    )
    assert "'backward', 'forward' or 'nearest'" in faults["direction"]
    assert "two strings" in faults["suffixes"]
    faults = faults_of(lambda: join_asof(left, right, "at", ["on", "kk"]))
    assert "a column of left: one of on, k, v, left" in faults["on"] or "right" in faults["on"]
    assert "'kk'" in faults["by"]
    assert "other columns than on" in faults_of(lambda: join_asof(left, right, "on", "on"))["by"]
    assert "True or False" in str(
        faults_of(lambda: join_asof(left, right, "on", allow_exact_matches="no"))
    )


@pytest.mark.parametrize("tolerance", [5, "5 parsecs", "-1s", pd.NaT, np.timedelta64("NaT")])
def test_a_tolerance_of_times_is_a_duration(tolerance):
    left, right = cut(trades(), []), cut(quotes(), [])
    fault = faults_of(lambda: join_asof(left, right, "on", tolerance=tolerance))["tolerance"]
    assert "a duration such as '5min' or a timedelta, not negative" in fault


@pytest.mark.parametrize("tolerance", ["5", "1s", -1, np.nan, True, pd.Timedelta("1s")])
def test_a_tolerance_of_numbers_is_a_number(tolerance):
    frame = cut(pd.DataFrame({"n": [1, 2]}), [])
    fault = faults_of(lambda: join_asof(frame, frame, "n", tolerance=tolerance))["tolerance"]
    assert "a number, not negative" in fault


@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        ("Europe/Berlin", "UTC", "right.assign(t=right['t'].dt.tz_convert('Europe/Berlin'))"),
        ("UTC", None, "right.assign(t=right['t'].dt.tz_localize('UTC'))"),
        (None, "UTC", "left.assign(t=left['t'].dt.tz_localize('UTC'))"),
    ],
)
def test_the_advice_for_different_zones_makes_the_types_equal(first, second, advice):
    sides = [pd.DataFrame({"t": pd.date_range("2026", periods=3, tz=z)}) for z in (first, second)]
    left, right = (dd.from_pandas(side, npartitions=1) for side in sides)
    assert faults_of(lambda: join_asof(left, right, "t"))["on"].endswith(f"as with {advice}")
    converted = eval(advice, {"left": left, "right": right})
    both = (converted, right) if advice.startswith("left") else (left, converted)
    assert len(join_asof(*both, "t").compute()) == 3


def test_types_that_cannot_be_compared_are_refused_with_advice():
    left = cut(trades(), [])
    for changed, where, text in (
        (quotes().assign(on=quotes().on.dt.tz_localize(None)), "on", "columns of one type"),
        (quotes().assign(on=quotes().on.astype("str")), "on", "to_datetime"),
        (quotes().assign(k=1), "by", "right['k'].astype(...)"),
        (quotes().assign(k=pd.Categorical([(1,)] * 400)), "by", "astype('str')"),
    ):
        right = cut(changed, [])
        assert text in faults_of(lambda r=right: join_asof(left, r, "on", "k"))[where]


def test_a_large_right_side_without_keys_is_refused_by_name(files, monkeypatch):
    monkeypatch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", 1000)
    left, right = cut(trades(), []), files.parquet(quotes(), [], 100)
    fault = faults_of(lambda: join_asof(left, right, "on"))["right"]
    assert "expected at most 1 kB without by" in fault
    assert "pass by=..." in fault
    unknown = dd.from_map(lambda n: quotes().iloc[n::2], [0, 1], meta=quotes().iloc[:0])
    with pytest.raises(HyperplaneError, match=r"right side of join_asof has .* pass by="):
        join_asof(left, unknown, "on").compute(scheduler="sync")


def test_a_partition_with_text_is_an_error_that_names_the_column():
    left = dd.from_map(
        lambda _: pd.DataFrame({"n": ["x"]}), [0], meta=pd.DataFrame({"n": pd.Series(dtype="i8")})
    )
    with pytest.raises(DataError, match="'n'"):
        join_asof(left, cut(pd.DataFrame({"n": [1]}), []), "n").compute(scheduler="sync")


def test_a_tolerance_may_be_larger_than_any_integer_of_a_column() -> None:
    left = pd.DataFrame({"t": [1, 2**62]})
    right = pd.DataFrame({"t": [-(2**62)], "v": [1]})
    sides = [dd.from_pandas(side, npartitions=1) for side in (left, right)]
    found = join_asof(*sides, "t", tolerance=10**50).compute()
    assert found["v"].to_list() == [1, 1]
