"""Appended parts are added once per run."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import OutputConflict, RequestError


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


@pytest.fixture(params=["disk", "memory"])
def url(request, tmp_path):
    yield f"{tmp_path}/out" if request.param == "disk" else "memory://appending/out"
    fsspec.filesystem("memory").store.clear()


def rows(*numbers):
    return dd.from_pandas(pd.DataFrame({"n": numbers}), npartitions=2)


def append(df, url, run=None):
    return hyperplane.save(df, url, mode="append", run=run)


def numbers_at(url):
    return hyperplane.load(url).n.compute().to_list()


def test_appended_rows_follow_the_existing_rows(url):
    assert append(rows(1, 2), url).files == 2
    assert append(rows(3, 4), url).rows == 4
    append(rows(3, 4), url)
    assert numbers_at(url) == [1, 2, 3, 4, 3, 4]


def test_a_repeated_run_appends_its_rows_once(url):
    append(rows(1, 2), url, "monday")
    append(rows(3, 4), url, "tuesday")
    for run, df in (("monday", rows(1, 2)), ("tuesday", rows(3, 4))):
        again = append(df, url, run)
        assert (again.changed, again.files, again.rows) == (False, 4, 4)
    append(rows(5), url)
    assert not append(rows(1, 2), url, "monday").changed
    assert numbers_at(url) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("other", [(1, 9), (1,), (1, 2, 3, 4, 5)])
def test_a_repeated_run_with_other_rows_is_an_error(url, other):
    append(rows(1, 2), url, "monday")
    with pytest.raises(OutputConflict, match="'monday' has already appended other rows"):
        append(rows(*other), url, "monday")
    assert numbers_at(url) == [1, 2]


def test_overwriting_forgets_the_appended_runs(url):
    append(rows(1, 2), url, "monday")
    hyperplane.save(rows(7), url, mode="overwrite")
    append(rows(1, 2), url, "monday")
    assert numbers_at(url) == [7, 1, 2]


def test_bags_are_not_appended_to_dataframes(url):
    import dask.bag as db

    append(rows(1, 2), url)
    with pytest.raises(RequestError, match="dataframe as parquet"):
        append(db.from_sequence([{"n": 1}]), url)


def test_other_columns_are_not_appended(url):
    append(rows(1, 2), url)

    def never(part):
        raise AssertionError("it was computed")

    renamed = rows(3).rename(columns={"n": "m"}).map_partitions(never, meta={"m": "int64"})
    with pytest.raises(RequestError, match="without the columns 'n' and with the other columns"):
        append(renamed, url)
    wider = pd.DataFrame({"o": [5.5], "n": [3]})
    with pytest.raises(RequestError, match="append with the other columns 'o': expected"):
        append(dd.from_pandas(wider, npartitions=1), url)
    assert numbers_at(url) == [1, 2]


def test_values_that_do_not_fit_the_types_of_the_saved_parts_are_not_appended(url):
    append(rows(1, 2**53 + 1), url)
    with pytest.raises(OutputConflict, match=r"nothing was appended: .* 9007199254740993"):
        append(rows(0.5), url)
    assert numbers_at(url) == [1, 2**53 + 1]
    append(rows(3), url)
    assert numbers_at(url) == [1, 2**53 + 1, 3]


def test_types_that_have_a_common_type_are_appended(url):
    append(rows(1, 2), url)
    append(rows(0.5), url)
    append(rows(2), url)
    assert numbers_at(url) == [1, 2, 0.5, 2]
    append(dd.from_pandas(pd.DataFrame({"n": ["a"]}), npartitions=1), url)
    assert numbers_at(url) == [1, 2, 0.5, 2, "a"]


def test_rows_with_other_index_levels_are_not_appended(url):
    append(rows(1, 2), url)
    levels = pd.DataFrame({"n": [3]}, index=pd.MultiIndex.from_tuples([(1, "x")], names=["i", "j"]))
    parts = dd.from_map(lambda _: levels, [0], meta=levels, enforce_metadata=False)
    with pytest.raises(OutputConflict, match="number of index levels"):
        append(parts, url)
    assert numbers_at(url) == [1, 2]
