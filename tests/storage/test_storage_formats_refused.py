"""Values that would not be loaded unchanged are errors that name them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import pickle
import uuid

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

import hyperplane
from hyperplane.errors import DataError, RequestError, WrongType
from hyperplane.formats.json_values import to_json
from hyperplane.formats.jsonl.write import encode_json_records
from hyperplane.storage.object_checks import object_faults
from hyperplane.storage.part_saving import name_part_in_errors


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def faults_of(obj, tmp_path, name="a.json", **options):
    with pytest.raises(RequestError) as caught:
        hyperplane.save(obj, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())
    return [fault.where for fault in caught.value.faults], str(caught.value)


def test_numpy_numbers_and_times_are_converted_for_json(tmp_path):
    obj = {
        "n": np.int64(3), "x": np.float32(0.5), "yes": np.bool_(True), "t": (1, 2),
        "at": pd.Timestamp("2024-01-01 12:00", tz="UTC"), "day": dt.date(2024, 1, 1),
        "np": np.datetime64("2024-01-01T00:00:01"),
    }  # fmt: skip
    hyperplane.save(obj, tmp_path / "a.json")
    assert not hyperplane.save(obj, tmp_path / "a.json").changed
    assert hyperplane.load(tmp_path / "a.json") == {
        "n": 3, "x": 0.5, "yes": True, "t": [1, 2], "at": "2024-01-01T12:00:00+00:00",
        "day": "2024-01-01", "np": "2024-01-01T00:00:01",
    }  # fmt: skip


def test_each_value_that_json_cannot_represent_is_named(tmp_path):
    obj = {"a": [0, 1, 2, {3}], "b": float("nan"), 5: 1, "c": {"d": b"x"}, "e": pd.NaT}
    where, message = faults_of(obj, tmp_path)
    assert where == ["the key 5 of obj", "obj['a'][3]", "obj['b']", "obj['c']['d']", "obj['e']"]
    assert "write sorted(...)" in message
    assert "write None" in message
    assert faults_of(["\ud800"], tmp_path)[0] == ["obj[0]"]
    assert faults_of({None: 1, "a": 2}, tmp_path)[0] == ["the key None of obj"]
    within = []
    within.append(within)
    assert "containing itself" in faults_of(within, tmp_path)[1]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)  # fmt: skip


@settings(max_examples=scaled(10, 50))
@given(st.lists(plain, max_size=4))
def test_values_that_json_can_represent_are_loaded_unchanged(items):
    lines = encode_json_records(items).data.decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == items
    assert json.loads(to_json(items, "obj")) == items


@pytest.mark.parametrize(
    ("items", "form", "where", "message"),
    [
        (["a", "b\nc"], "text", "item 1", "loaded as two"),
        (["a", 3], "text", "item 1", "must be strings"),
        ([{"a": [1]}, {"a": [1, {2}]}], "jsonl", "item 1", r"item\['a'\]\[1\]"),
        ([1, float("inf")], "jsonl", "item 1", "a finite number"),
        ([{1: 2}], "jsonl", "item 0", "write str"),
        (["\udc80"], "text", "item 0", "Unicode"),
    ],
)
def test_an_item_that_a_format_cannot_represent_is_named(tmp_path, items, form, where, message):
    with pytest.raises(WrongType, match=message) as caught:
        hyperplane.save(db.from_sequence(items, npartitions=1), tmp_path / "out", format=form)
    assert caught.value.where == where
    assert not (tmp_path / "out").exists()


def test_the_error_names_the_part():
    with (
        pytest.raises(WrongType, match=r"^part 3, item 0 .*item is a set") as caught,
        name_part_in_errors(3),
    ):
        encode_json_records([{1}])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.where) == (str(caught.value), "item 0")


def test_a_column_that_parquet_refuses_is_named(tmp_path):
    for values in ([1, "a"], [1 + 2j, 0]):
        frame = pd.DataFrame({"fine": [1, 2], "odd": values})
        with pytest.raises(DataError, match="convert") as caught:
            hyperplane.save(frame, tmp_path / "a.parquet")
        assert caught.value.column == "odd"
        with pytest.raises(DataError, match="odd"):
            hyperplane.save(dd.from_pandas(frame, npartitions=1), tmp_path / "out")
    with pytest.raises(DataError, match="empty") as caught:
        hyperplane.save(pa.table({"empty": [{}]}), tmp_path / "a.parquet")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("form", "column", "index"),
    [
        ("jsonl", [1, "a"], None), ("jsonl", [{1: 1}, {}], None), ("jsonl", [1j, 2], None),
        ("jsonl", [b"a", b"b"], None), ("jsonl", [uuid.UUID(int=1), None], None),
        ("jsonl", [1, 2], "odd"), ("csv", [1, 2], "odd"),
        ("avro", pd.period_range("2024", periods=2, freq="M"), None),
    ],
)  # fmt: skip
def test_a_column_that_another_format_refuses_is_named(tmp_path, form, column, index):
    frame = pd.DataFrame({"fine": [1, 2], "odd": column}, index=pd.Index([7, 8], name=index))
    with pytest.raises(DataError) as caught:
        hyperplane.save(frame, tmp_path / f"a.{form}")
    assert caught.value.column == "odd"
    assert not list(tmp_path.iterdir())


def test_polars_objects_and_unpaired_surrogates_are_refused(tmp_path):
    odd = pl.DataFrame({"odd": pl.Series([object()], dtype=pl.Object)})
    assert faults_of(odd, tmp_path, "a.parquet")[0] == ["obj['odd']"]
    assert r"'\ud800' at index 1" in faults_of("a\ud800", tmp_path, "a.txt")[1]


def test_arrays_of_python_objects_are_refused(tmp_path):
    odd = np.array([{1}, "a"], object)
    assert "Python objects" in faults_of(odd, tmp_path, "a.npy")[1]
    assert "Python objects" in faults_of(da.from_array(odd, chunks=1), tmp_path, "a.zarr")[1]
    assert faults_of(xr.Dataset({"v": ("x", odd)}), tmp_path, "a.zarr")[0] == ["obj['v']"]
    assert faults_of(xr.DataArray(odd, dims="x"), tmp_path, "a.zarr")[0] == ["obj['values']"]


@pytest.mark.filterwarnings("ignore::UserWarning:zarr", "ignore::UserWarning:xarray")
def test_xarray_text_and_cftime_variables_are_saved(tmp_path):
    dataset = xr.Dataset({"v": ("x", np.array(["ü", "a"], object))})
    hyperplane.save(dataset, tmp_path / "a.zarr")
    assert hyperplane.load(tmp_path / "a.zarr").v.compute().to_numpy().tolist() == ["ü", "a"]
    named = xr.DataArray([1, 2], dims="x", coords={"x": [3, 4]}, name="x")
    assert object_faults(named, "array") == []
    times = np.array([type("DatetimeNoLeap", (), {"__module__": "cftime._cftime"})()], object)
    assert object_faults(xr.Dataset({"t": ("x", times)}), "array") == []


def test_an_asynchronous_client_is_refused(tmp_path):
    df = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=1)

    async def try_it():
        async with Client(processes=False, asynchronous=True, dashboard_address=":0", n_workers=1):
            with pytest.raises(RequestError, match=r"asyncio\.to_thread"):
                hyperplane.save(df, tmp_path / "out")
            result = await asyncio.to_thread(hyperplane.save, df, tmp_path / "out")
            hyperplane.save({"a": 1}, tmp_path / "a.json")
            # load itself computes nothing.
            return result, hyperplane.load(tmp_path / "out")

    with dask.config.set(scheduler=None):
        result, loaded = asyncio.run(try_it())
    assert result.rows == 2
    assert loaded.n.compute().to_list() == [1, 2]


def test_an_asynchronous_file_system_is_refused():
    with pytest.raises(RequestError, match="asynchronous = True"):
        hyperplane.save(b"", "memory://a/b", asynchronous=True)
    with pytest.raises(RequestError, match="asynchronous = True"):
        hyperplane.load("memory://a/b", storage_options={"asynchronous": True})
