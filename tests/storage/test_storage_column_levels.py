"""Columns of several levels, as ``window_agg`` returns them, are saved with joined names."""

from __future__ import annotations

import warnings

import dask
import dask.dataframe as dd
import pandas as pd
import polars as pl
import pytest

import hyperplane
from hyperplane.dataframe import group_agg, read, window_agg
from hyperplane.errors import RequestError
from hyperplane.storage.object_kinds import list_formats

ROWS = pd.DataFrame(
    {"t": pd.date_range("2024", periods=6, freq="12h"), "k": [1, 2] * 3, "v": [1.5, *range(5)]}
)


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="sync"):
        yield


def windows(by="k", **how):
    df = dd.from_pandas(ROWS, npartitions=2)
    return window_agg(df, "t", "1D", {"v": ["sum", "mean"]}, by, **how)


@pytest.mark.parametrize("form", list_formats("dataframe"))
@pytest.mark.parametrize("indexed", [True, False])
def test_windows_of_several_functions_are_saved_and_loaded(tmp_path, form, indexed):
    windowed = windows() if indexed else windows().reset_index()
    with pytest.warns(UserWarning, match=r"\('v', 'sum'\) as 'v_sum'") as caught:
        result = hyperplane.save(windowed, tmp_path / "w", format=form)
    ours = [warning for warning in caught if warning.category is not ResourceWarning]
    assert [warning.filename for warning in ours] == [__file__]
    want = windowed.compute()
    assert result.rows == len(want)
    want.columns = ["v_sum", "v_mean"] if indexed else ["k", "t", "v_sum", "v_mean"]
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "w").compute(), want)
    assert windowed.columns.nlevels == 2  # the caller's dataframe is unchanged


def test_a_joined_name_with_an_empty_level_between_is_shown(tmp_path):
    columns = pd.MultiIndex.from_tuples([("v", "", "sum"), ("k", "", "")])
    with pytest.warns(UserWarning, match=r"joined names: \('v', '', 'sum'\) as 'v_sum'$"):
        hyperplane.save(pd.DataFrame([[1, 2]], columns=columns), tmp_path / "w.parquet")
    assert list(hyperplane.load(tmp_path / "w.parquet").columns) == ["v_sum", "k"]


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # raised by Dask's reader
def test_other_libraries_read_the_same_names(tmp_path):
    for windowed, name, form in (
        (windows(), "p", "parquet"),
        (windows().reset_index(), "c", "csv"),
        (windows().compute(), "one.csv", "csv"),
    ):
        with pytest.warns(UserWarning, match="several levels"):
            hyperplane.save(windowed, tmp_path / name, format=form)
    want = windows().compute()["v"]["sum"].to_list()
    assert pd.read_parquet(tmp_path / "p")["v_sum"].to_list() == want
    assert dd.read_parquet(tmp_path / "p")["v_sum"].compute().to_list() == want
    assert pl.read_parquet(tmp_path / "p" / "*.parquet")["v_sum"].to_list() == want
    for file in (next((tmp_path / "c").glob("*.csv")), tmp_path / "one.csv"):
        assert list(pd.read_csv(file).columns) == ["k", "t", "v_sum", "v_mean"]
        assert pd.read_csv(file)["v_sum"].to_list() == want


def test_no_warning_if_no_name_is_joined(tmp_path):
    flat = group_agg(dd.from_pandas(ROWS, npartitions=2), "k", {"v": "sum"})
    deep = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "")]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hyperplane.save(flat, tmp_path / "flat")
        hyperplane.save(deep, tmp_path / "deep.parquet")
    assert list(hyperplane.load(tmp_path / "deep.parquet").columns) == ["a"]


@pytest.mark.parametrize("name", ["partition_by", "partition_on", "partition_cols"])
@pytest.mark.parametrize("url", ["{}/w", "memory://levels/w"])
def test_partition_options_are_refused_with_advice(tmp_path, name, url):
    with pytest.raises(RequestError, match=rf"{name}.*to_parquet\(url, partition_on=") as caught:
        hyperplane.save(windows(), url.format(tmp_path), **{name: ["k"]})
    assert [fault.where for fault in caught.value.faults] == [name]
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_a_frame_written_as_the_error_advises_is_read(tmp_path):
    windowed = windows()
    windowed.columns = ["v_sum", "v_mean"]
    windowed.reset_index().to_parquet(tmp_path / "w", partition_on=["k"])
    back = read(tmp_path / "w").compute()
    assert sorted(back["v_sum"]) == sorted(windowed.compute()["v_sum"])
    assert set(back["k"].astype(int)) == {1, 2}
