"""Joins against pandas.merge."""

from __future__ import annotations

import datetime
import math
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pandas_results
import pyarrow as pa
import pytest
from frame_strategies import QUICK, column, cut, open_files
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas_versions import TEXT
from scale import combinations, scaled

from hyperplane.collections.frames import small_side
from hyperplane.collections.frames.shuffle_join import make_keys_comparable
from hyperplane.collections.frames.source_collection import select_source
from hyperplane.core import active_cluster
from hyperplane.dataframe import drop_duplicates, group_agg, join, window_agg
from hyperplane.errors import DataError, RequestError

KEYS = ["int64", "str", "float32", "Int64", "boolean", "datetime", "zoned"]


@pytest.fixture(scope="module")
def files():
    with open_files() as opened:
        yield opened


@st.composite
def sides(draw):
    """Draw two frames with one or two keys of equal kinds and another common column."""
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    sides = []
    for side in ("left", "right"):
        rows = draw(st.integers(0, 12))
        columns = {f"k{n}": draw(column(kind, rows)) for n, kind in enumerate(kinds)}
        frame = pd.DataFrame(columns)
        frame["n"], frame[side] = np.arange(rows) * 10, np.arange(rows)
        frame["flag"] = np.arange(rows) % 2 == 0
        sides.append(frame)
    return sides[0], sides[1], list(columns)


@settings(QUICK, max_examples=scaled(12, 60))
@given(data=st.data(), both=sides(), how=st.sampled_from(["inner", "left"]))
def test_rows_equal_merge(data, files, both, how):
    left, right, on = both
    places = data.draw(st.lists(st.integers(0, len(left)), max_size=3), "places")
    one = files.parquet(left, places, data.draw(st.integers(1, 9), "row group"))
    two = files.parquet(right, [len(right) // 2], 3)
    joined = join(one, two, on, how)
    assert select_source(joined, list(joined.columns)).scanned
    ours, want = joined.compute(), one.compute().merge(two.compute(), on=on, how=how)
    assert list(ours.columns) == list(want.columns)
    assert pandas_results.rows_of(ours) == pandas_results.rows_of(want)
    assert ours.left.to_list() == want.left.to_list()  # in the order of the left side
    pd.testing.assert_frame_equal(joined._meta, ours.iloc[:0], check_index_type=False)


def flights(n=90):
    return pd.DataFrame(
        {
            "time": pd.date_range("2024-01-01", periods=n, freq="13min"),
            "carrier": [["UA", "AA", "XX", None][n % 4] for n in range(n)],
            "delay": np.arange(n) % 11,
            "unused": "u",
        }
    ).astype({"carrier": TEXT})


def carriers():
    return pd.DataFrame(
        {"carrier": ["AA", "UA", "UA", None], "name": ["American", "United", "2nd", "none"]},
        dtype=TEXT,
    )


def opened(files):
    return files.parquet(flights(), [30, 60], 10), files.parquet(carriers(), [2], 10)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_filters_before_and_after_a_join_equal_pandas(files, how):
    one, two = opened(files)
    result = join(
        one[one.delay > 2], two[two.name.isin(["American", "none", "2nd"])], "carrier", how
    )
    result = result[result.delay <= 8]
    left, right = flights(), carriers()
    right = right[right.name.isin(["American", "none", "2nd"])]
    want = left[left.delay > 2].merge(right, on="carrier", how=how)
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(want[want.delay <= 8])


def test_a_filter_on_a_column_of_the_right_side_equals_pandas(files):
    one, two = opened(files)
    result = join(one, two, "carrier", "left")
    want = flights().merge(carriers(), on="carrier", how="left")
    for keep in (lambda df: df.name.isna(), lambda df: df.name == "United"):
        assert pandas_results.rows_of(result[keep(result)].compute()) == pandas_results.rows_of(
            want[keep(want)]
        )


def test_helpers_after_a_join_equal_pandas(files):
    one, two = opened(files)
    result = join(one, two, "carrier", suffixes=("_l", "_r"))
    want = flights().merge(carriers(), on="carrier")
    agg = {"delay": ["sum", "nunique"]}
    windows = window_agg(result, "time", "1h", agg, "name").compute()
    pandas_results.same_frame(windows, pandas_results.window_agg(want, "time", "1h", agg, ["name"]))
    groups = group_agg(result[result.delay > 3], "name", agg).compute()
    pandas_results.same_frame(groups, pandas_results.group_agg(want[want.delay > 3], "name", agg))
    names = drop_duplicates(result[["name"]]).compute()
    assert sorted(names.name) == ["2nd", "American", "United", "none"]


def test_a_join_of_a_join_equals_pandas(files):
    one, two = opened(files)
    places = pd.DataFrame({"name": ["American", "United"], "city": ["Dallas", "Chicago"]})
    result = join(join(one, two, "carrier"), files.parquet(places, [], 5), "name", "left")
    want = flights().merge(carriers(), on="carrier").merge(places, on="name", how="left")
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(want)


def test_only_needed_columns_of_both_sides_are_scanned(files):
    one, two = opened(files)
    result = join(one, two, "carrier")
    read = select_source(result, ["delay", "name"])
    plan = read.partitions[0].scan().select("delay", "name").explain()
    assert "unused" not in plan
    assert "PROJECT 2/4" in plan  # carrier and delay of four columns


def test_columns_of_both_sides_get_suffixes(files):
    left = pd.DataFrame({"k": [1, 2], "v": [1, 2], "w": [5, 6]})
    right = pd.DataFrame({"k": [2, 3], "v": [8, 9]})
    one, two = files.parquet(left, [], 5), files.parquet(right, [], 5)
    for suffixes in (("_x", "_y"), ("", "_right")):
        result = join(one, two, "k", suffixes=suffixes)
        want = left.merge(right, on="k", suffixes=suffixes)
        assert list(result.columns) == list(want.columns)
        assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(want)


def test_integers_that_may_be_missing_become_nullable(files):
    left = pd.DataFrame({"k": [1, 2]})
    right = pd.DataFrame({"k": [2], "n": [2**60 + 1], "yes": [True]})
    result = join(files.parquet(left, [], 5), files.parquet(right, [], 5), "k", "left")
    assert result.dtypes.astype(str).to_list() == ["int64", "Int64", "boolean"]
    assert result.compute().n.to_list() == [pd.NA, 2**60 + 1]


def test_keys_of_different_types_are_joined_by_a_shuffle(files):
    left = pd.DataFrame({"k": np.array([1, 2, 3], dtype="int64")})
    right = pd.DataFrame({"k": [2.0, 3.0], "n": [5, 6]})
    with pytest.warns(UserWarning, match="merge column data type mismatches"):  # like Dask
        result = join(files.parquet(left, [], 5), files.parquet(right, [], 5), "k")
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(
        left.merge(right, on="k")
    )


def test_nullable_and_other_keys_are_of_one_type(files):
    left = pd.DataFrame({"k": pd.array([1, None, 3], dtype="Int32")})
    right = pd.DataFrame({"k": np.array([3, 1], dtype="int32"), "n": [5, 6]})
    result = join(files.parquet(left, [], 5), files.parquet(right, [], 5), "k", "left")
    assert select_source(result, ["k", "n"]).scanned
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(
        left.merge(right, on="k", how="left")
    )


def test_other_collections_are_joined_by_a_shuffle(files):
    one, two = opened(files)
    want = pandas_results.rows_of(flights().merge(carriers(), on="carrier", how="left"))
    of_pandas = cut(carriers(), [2])
    changed = one.assign(delay=one.delay + 0)
    for left, right in ((one, of_pandas), (changed, two)):
        result = join(left, right, "carrier", "left")
        assert not select_source(result, list(result.columns)).scanned
        assert pandas_results.rows_of(result.compute()) == want


def test_a_large_right_side_is_joined_by_a_shuffle(files, monkeypatch):
    one, two = opened(files)
    monkeypatch.setattr("hyperplane.collections.frames.small_side.MAX_SMALL_SIDE", 10)
    result = join(one, two, "carrier")
    assert not select_source(result, list(result.columns)).scanned
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(
        flights().merge(carriers(), on="carrier")
    )


@pytest.mark.parametrize(
    ("times", "memory", "processes", "is_broadcast"),
    [
        (4, 10**9, 1, True),
        (4, None, 1, False),  # the memory is unknown
        (4, 1_000, 1, False),  # more than a tenth of it
        (5, 10**9, 1, False),
        (4, 10**9, 1_000, False),  # each process would read the right side
    ],
)
def test_few_processes_hold_a_larger_right_side(
    files, monkeypatch, times, memory, processes, is_broadcast
):
    one, two = opened(files)
    size = sum(part.nbytes for part in two.expr.iterables[0])
    monkeypatch.setattr(small_side, "MAX_SMALL_SIDE", -(-size // 4) if times == 4 else size // 5)
    monkeypatch.setattr(small_side, "get_memory_per_thread", lambda: memory)
    monkeypatch.setattr(small_side, "count_most_processes", lambda: processes)
    result = join(one, two, "carrier")
    assert select_source(result, list(result.columns)).scanned == is_broadcast
    want = flights().merge(carriers(), on="carrier")
    assert pandas_results.rows_of(result.compute()) == pandas_results.rows_of(want)


@pytest.mark.parametrize(("most", "fits"), [(2, True), (1_000, False), (math.inf, False)])
def test_a_cluster_that_adapts_has_its_most_processes(monkeypatch, most, fits):
    adaptive = SimpleNamespace(periodic_callback="runs", maximum=most)
    cluster = SimpleNamespace(_adaptive=adaptive)
    client = SimpleNamespace(cluster=cluster, nthreads=lambda: {"tcp://worker": 1})
    monkeypatch.setattr(active_cluster, "get_active_client", lambda: client)
    monkeypatch.setattr(small_side, "get_memory_per_thread", lambda: 10**10)
    assert small_side.fits_in_few_processes(5 * 10**8, 10**9) == fits


def test_all_faults_are_reported_together(files):
    one, two = opened(files)
    with pytest.raises(RequestError) as caught:
        join(one, two, ["carier", "name"], "outer")
    asked = [(fault.where, fault.asked) for fault in caught.value.faults]
    assert asked == [("on", "'carier'"), ("on", "'name'"), ("on", "'carier'"), ("how", "'outer'")]
    assert "did you mean 'carrier'" in str(caught.value)
    with pytest.raises(RequestError, match="at least one column"):
        join(one, two, [])


def test_urls_are_read(tmp_path):
    flights().to_parquet(tmp_path / "flights.parquet")
    carriers().to_parquet(tmp_path / "carriers.parquet")
    result = join(str(tmp_path / "flights.parquet"), str(tmp_path / "carriers.parquet"), "carrier")
    assert isinstance(result, dd.DataFrame)
    assert len(result.compute()) == len(flights().merge(carriers(), on="carrier"))


@pytest.mark.parametrize("kind", ["double[pyarrow]", "float[pyarrow]", "Float32", "float64"])
@pytest.mark.parametrize("missing", [0, 11])
def test_zeros_of_both_signs_are_one_key(kind, missing):
    """pandas does not match zeros of Arrow floats if other rows come before them."""
    one = pd.DataFrame({"v": pd.array([None] * missing + [0.0], dtype=kind)})
    two = pd.DataFrame({"v": pd.array([-0.0], dtype=kind), "n": [1]})
    result = join(dd.from_pandas(one, npartitions=1), dd.from_pandas(two, npartitions=1), "v")
    (row,) = result.compute(scheduler="sync").itertuples(index=False)
    assert (float(row.v), row.n) == (0.0, 1)


HALF = "halffloat[pyarrow]"


@pytest.mark.parametrize(
    ("kind", "name", "count"),
    combinations(
        ["double[pyarrow]", "float[pyarrow]", HALF, "float16"], ["self", "a b", "*"], [1, 2]
    ),
)
def test_floats_are_keys_of_any_name_and_keep_their_type(name, kind, count):
    one = pd.DataFrame({name: pd.array([None, 0.0, 1.5], dtype=kind)})
    two = pd.DataFrame({name: pd.array([-0.0, 2.5], dtype=kind), "n": [1, 2]})
    sides = [dd.from_pandas(side, npartitions=count) for side in (one, two)]
    result = join(*sides, name).compute(scheduler="sync")
    assert result.dtypes.to_list() == [one.dtypes[name], two.dtypes["n"]]
    assert pandas_results.rows_of(result) == pandas_results.rows_of(
        pd.DataFrame({name: [0.0], "n": [1]})
    )


@pytest.mark.parametrize("name", [1, 1.5, ("a", 1)])
def test_keys_whose_names_are_not_text_are_refused_with_their_side(name):
    keys = pd.array([0.0, 1.5], dtype="double[pyarrow]")
    frame = pd.DataFrame({0: keys, 1: [5, 6]})
    frame.columns = pd.Index([name, "x"], tupleize_cols=False)
    odd = dd.from_pandas(frame, npartitions=1)
    plain = dd.from_pandas(pd.DataFrame({"k": keys}), npartitions=1)
    for sides, where in (((odd, plain), ["left"]), ((plain, odd), ["right"])):
        with pytest.raises(RequestError) as caught:
            join(*sides, [name])
        side_faults = [fault for fault in caught.value.faults if fault.where in ("left", "right")]
        assert [fault.where for fault in side_faults] == where
        assert repr(name) in side_faults[0].asked
        assert "strings" in side_faults[0].allowed


@pytest.mark.parametrize("name", [1, ("a", 1)])
def test_signed_zeros_are_equal_keys_in_columns_with_other_names_than_text(name):
    frame = pd.DataFrame({0: pd.array([-0.0, 1.5], dtype="float[pyarrow]")})
    frame.columns = pd.Index([name], tupleize_cols=False)
    result = make_keys_comparable(frame, [name])
    assert str(result.dtypes.iloc[0]) == "float[pyarrow]"
    assert [str(value) for value in result.iloc[:, 0]] == ["0.0", "1.5"]


@pytest.mark.parametrize(
    ("one", "other"),
    combinations(["uint8", "UInt8", "uint8[pyarrow]"], ["int32", "Int64", "int64[pyarrow]"]),
)
def test_signed_keys_do_not_match_shorter_unsigned_keys(one, other):
    left = pd.DataFrame({"k": pd.Series([1, 0], dtype=one)})
    right = pd.DataFrame({"k": pd.Series([0, 1, 257, -255], dtype=other), "n": [5, 6, 7, 8]})
    for how, count in combinations(("inner", "left"), (1, 2)):
        sides = [dd.from_pandas(side, npartitions=count) for side in (left, right)]
        with pytest.warns(UserWarning, match="mismatches"):
            result = join(*sides, "k", how).compute(scheduler="sync")
        rows = [(int(k), int(n)) for k, n in zip(result["k"], result["n"], strict=True)]
        assert sorted(rows) == [(0, 5), (1, 6)]


@pytest.mark.filterwarnings("ignore:.*type mismatches")
@pytest.mark.parametrize(("parts", "how"), combinations([1, 2], ["inner", "left"]))
@pytest.mark.parametrize("types", [("uint64", "int64"), ("int64", "uint64")], ids=str)
@pytest.mark.parametrize(
    ("form", "large"), combinations(["{}", "{}[pyarrow]", "nullable"], [5, 2**63, 2**64 - 1])
)
def test_signed_and_unsigned_keys_of_64_bits_are_not_compared_as_floats(
    form, types, how, parts, large
):
    numbers = {"uint64": [2**53 + 1, 0, large], "int64": [2**53, 0, -1]}
    declared = {"uint64": "UInt64", "int64": "Int64"} if form == "nullable" else {}
    left, right = (
        dd.from_pandas(  # from an array: pandas would convert the list [2**53 + 1, 2**63] to floats
            pd.DataFrame({"k": np.array(numbers[kind], kind)}).astype(
                declared.get(kind, form.format(kind))
            ),
            npartitions=parts,
        )
        for kind in types
    )
    result = join(left, right.assign(y=1), "k", how=how).compute(scheduler="sync")
    assert sorted(result.k.tolist()) == ([0] if how == "inner" else sorted(numbers[types[0]]))
    assert result.k[result.y.notna()].tolist() == [0]
    assert result.k.dtype == left.k.dtype


MIXED = pd.Series(pd.Categorical(["a", 1, "b", None], ["a", 1, "b"]))
#: Categories of several types, and columns with equal values.
OTHERS = {
    "other categories": pd.Series(pd.Categorical([1, "a", None], [1, "a", "c"])),
    "another order": pd.Series(pd.Categorical(["a", 1, "b", None], ["b", 1, "a"])),
    "categories of text": pd.Series(pd.Categorical(["a", "b"])),
    "objects": pd.Series(["a", "b", None], dtype=object),
    "text": pd.Series(["a", "c"], dtype="str"),
}


def spread(frame, parts):
    pieces = [frame.iloc[number::parts] for number in range(parts)]
    return dd.from_map(lambda piece: piece, pieces, meta=frame.iloc[:0])


@pytest.mark.filterwarnings("ignore:.*type mismatches")
@pytest.mark.parametrize(("parts", "swapped"), combinations([1, 2, 3], [False, True]))
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_categories_of_several_types_are_joined_with_equal_values(other, swapped, parts):
    left, right = (
        pd.DataFrame({"k": values}) for values in ((other, MIXED) if swapped else (MIXED, other))
    )
    right["y"] = 1

    result = join(spread(left, parts), spread(right, parts), "k").compute(scheduler="sync")
    keys, expected = (
        sorted("none" if pd.isna(key) else str(key) for key in frame.k)
        for frame in (result, left.merge(right, on="k"))
    )
    assert keys == expected


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "values", [pd.interval_range(0, 3), [datetime.date(2026, 1, day) for day in (1, 2, 3)]]
)
def test_categories_in_another_order_are_equal_keys(values, parts):
    sides = [
        pd.DataFrame({"k": pd.Categorical(values, categories)})
        for categories in (values, list(values)[::-1])
    ]
    left, right = (spread(side, parts) for side in sides)
    assert len(join(left, right.assign(y=1), "k").compute(scheduler="sync")) == 3
    unordered = [side.assign(k=side.k.cat.as_unknown()) for side in (left, right)]
    if parts > 1:
        with pytest.raises(DataError, match=r"'k': holds categories .* intervals .*as_known\(\)"):
            join(*unordered, "k").compute(scheduler="sync")


@pytest.mark.filterwarnings("ignore:.*type mismatches")
@pytest.mark.parametrize(
    ("coded", "parts", "large"),
    combinations([(True, False), (False, True), (True, True)], [1, 2], [7, 2**63 + 1]),
)
def test_categories_of_64_bits_of_both_signs_are_not_compared_as_floats(large, coded, parts):
    numbers = np.array([2**53 + 1, 5], "int64"), np.array([2**53, 5, large], "uint64")
    for sides in (numbers, numbers[::-1]):
        left, right = (
            pd.DataFrame({"k": pd.Categorical(values) if category else values})
            for values, category in zip(sides, coded, strict=True)
        )
        result = join(spread(left, parts), spread(right, parts), "k").compute(scheduler="sync")
        assert result.k.tolist() == [5]


@pytest.mark.filterwarnings("ignore:merge column data type")
@pytest.mark.parametrize(
    ("missing", "how"),
    combinations(["Float32", "str", pd.ArrowDtype(pa.string())], ["inner", "left"]),
)
def test_categories_are_joined_as_values_also_without_rows(how, missing):
    words = pd.CategoricalDtype(["b", "a", "", "c", "d"])
    left = pd.DataFrame({"v": pd.Series(list("abcd") * 2 + [""], dtype=words), "x": range(9)})
    right = pd.DataFrame({"v": pd.Series([None], dtype=missing), "y": [1.0]})
    ours = dd.from_map(lambda n: left if n > 2 else left.iloc[:0], range(4), meta=left.iloc[:0])
    theirs = dd.from_map(lambda n: right if n else right.iloc[:0], [0, 1], meta=right.iloc[:0])
    result = join(ours, theirs, on="v", how=how)
    computed = result.compute(scheduler="sync")
    assert sorted(computed["v"]) == (sorted(left["v"].astype(str)) if how == "left" else [])
    parts = [part.compute(scheduler="sync")["v"].dtype for part in result.partitions]
    assert not any(isinstance(dtype, pd.CategoricalDtype) for dtype in parts)
