"""Objects that a format would change are refused, or loaded as they were saved."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hyperplane
from hyperplane.errors import DataError, RequestError, WrongType


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def refusal(obj, tmp_path, name, **options):
    """Return the one fault of a save, which leaves no file."""
    with pytest.raises(RequestError) as caught:
        hyperplane.save(obj, tmp_path / name, **options)
    assert not list(tmp_path.iterdir())
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize(("suffix", "missing"), [(".jsonl", []), (".jsonl", [None]), (".csv", [])])
def test_large_unsigned_integers_of_a_text_file_are_exact(tmp_path, suffix, missing):
    numbers = [2**64 - 1, 2**63, 2**53 + 1, 5]
    frame = pd.DataFrame({"u": pd.array([*numbers, *missing], dtype="UInt64"), "x": 1.5})
    hyperplane.save(frame, tmp_path / f"u{suffix}")
    loaded = hyperplane.load(tmp_path / f"u{suffix}").u
    assert loaded.iloc[: len(numbers)].tolist() == numbers
    assert loaded.dtype == ("UInt64" if missing else "uint64")


@pytest.mark.parametrize("name", ["a/b", "a\\b", "/", "a\0b", "zarr.json", ".."])
def test_variable_names_that_zarr_does_not_restore_are_refused(tmp_path, name):
    data = xr.Dataset({name: ("x", [1, 2, 3]), "c": ("x", [4, 5, 6])})
    as_coordinate = data.set_coords(name)
    for obj in (data, as_coordinate, data.chunk(), data[name]):
        fault = refusal(obj, tmp_path, "s.zarr")
        assert repr(name) in fault.asked


def test_the_advice_about_a_variable_name_is_a_call_that_works(tmp_path):
    array = xr.DataArray([1.0, 2.0], dims="x", name="wind/speed")
    assert refusal(array, tmp_path, "s.zarr").advice == "write obj.rename('wind_speed')"
    data = array.to_dataset()
    advice = refusal(data, tmp_path, "s.zarr").advice
    assert advice == "write obj.rename({'wind/speed': 'wind_speed'})"
    hyperplane.save(data.rename({"wind/speed": "wind_speed"}), tmp_path / "s.zarr")
    assert list(hyperplane.load(tmp_path / "s.zarr")) == ["wind_speed"]


def test_names_of_dimensions_may_have_separators(tmp_path):
    hyperplane.save(xr.Dataset({"c": ("x/y", [4, 5])}), tmp_path / "s.zarr")
    assert hyperplane.load(tmp_path / "s.zarr").c.dims == ("x/y",)


def test_masked_arrays_are_refused(tmp_path):
    fault = refusal(np.ma.array([1.0, 2.0], mask=[0, 1]), tmp_path, "m.npy")
    assert "obj.filled(value)" in fault.advice
    assert "Parquet" in fault.advice
    masked = da.ma.masked_greater(da.arange(4, chunks=2), 2)
    assert "da.ma.filled" in refusal(masked, tmp_path, "m.zarr").advice
    hyperplane.save(da.ma.filled(masked.astype(float), np.nan), tmp_path / "m.zarr")
    np.testing.assert_array_equal(hyperplane.load(tmp_path / "m.zarr"), [0, 1, 2, np.nan])


def test_blocks_that_are_masked_without_a_declaration_are_refused(tmp_path):
    undeclared = da.arange(4, chunks=2).map_blocks(
        lambda block: np.ma.masked_greater(block, 2), meta=np.array((), "int64")
    )
    with pytest.raises(WrongType, match=r"masked block at \(0,\).*da.ma.filled"):
        hyperplane.save(undeclared, tmp_path / "m.zarr")
    with pytest.raises(WrongType, match=r"obj\['v'\] has a masked block"):
        hyperplane.save(xr.Dataset({"v": ("x", undeclared)}), tmp_path / "m.zarr")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".avro", ".orc"])
def test_times_with_and_without_a_zone_in_one_column_are_an_error(tmp_path, suffix):
    times = [pd.Timestamp("2024-06-01 12:00", tz="America/New_York"), None]
    frame = pd.DataFrame({"t": pd.Series([*times, pd.NaT], dtype=object), "n": 1})
    hyperplane.save(frame, tmp_path / f"one{suffix}")
    frame.loc[1, "t"] = pd.Timestamp("2024-06-01 12:00")
    with pytest.raises(DataError, match=r"'t'.*with a time zone and times without a time zone"):
        hyperplane.save(frame, tmp_path / f"t{suffix}")
    nested = pd.DataFrame({"t": [[value] for value in frame["t"]]})
    if suffix == ".parquet":
        with pytest.raises(DataError, match="with a time zone and times without a time zone"):
            hyperplane.save(nested, tmp_path / f"t{suffix}")


@pytest.mark.parametrize(
    ("values", "conversion"),
    [
        (pd.date_range("2024", periods=2, tz="UTC"), "tz_convert(None)"),
        (pd.CategoricalIndex(["a", "b"]), "astype(str)"),
        (pd.period_range("2024", periods=2, freq="D"), "to_timestamp()"),
        (pd.interval_range(0, 2), "index.mid"),
        (pd.array([1, None], dtype="Int64"), "astype('float64')"),
        (pd.array([True, None], dtype="boolean"), "fillna(False).astype(bool)"),
    ],
)
def test_pandas_types_in_xarray_are_refused_with_a_conversion(tmp_path, values, conversion):
    column = pd.DataFrame({"v": values}).to_xarray()
    fault = refusal(column, tmp_path, "s.zarr")
    assert fault.where == "obj['v']"
    assert conversion in fault.advice
    if not isinstance(values, pd.Index):
        return
    index = pd.DataFrame({"a": [1, 2]}, index=values.rename("t")).to_xarray()
    for obj in (index, index.a):
        fault = refusal(obj, tmp_path, "s.zarr")
        assert fault.where == "obj['t']"
        assert conversion in fault.advice


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_beyond_those_of_nanoseconds_are_loaded_from_zarr(tmp_path, unit):
    # The first and last ones are in the range: xarray looks only at these when it opens a store.
    times = np.array(["2024-01-01", "1500-01-01T00:00:01", "NaT", "2024-01-02"], f"M8[{unit}]")
    fine = pd.to_datetime(["2024-01-01T00:00:00.000000001"] * 4).as_unit("ns")
    data = xr.Dataset({"d": ("x", times), "n": ("x", fine)}, coords={"t": ("x", times[::-1])})
    for number, obj in enumerate((data, data.chunk(x=2), data.d, data.d.rename(None), data.n)):
        url = tmp_path / f"{number}.zarr"
        hyperplane.save(obj, url)
        loaded = hyperplane.load(url).compute()
        xr.testing.assert_identical(loaded, obj.compute())
        assert loaded.t.dtype == f"M8[{unit}]"
        assert not hyperplane.save(obj, url).changed


@pytest.mark.parametrize(
    "name", ["x.json", "x.npy", "x.parquet", "x.avro", "x.orc", "x.skops", "x.JSON"]
)
@pytest.mark.parametrize("obj", ["not json", b"not json", bytearray(b""), "", memoryview(b"ab")])
def test_text_and_bytes_that_load_cannot_read_are_refused(tmp_path, obj, name):
    fault = refusal(obj, tmp_path, name)
    assert f"a name that ends in '{name[1:].lower()}'" in fault.allowed


def test_text_and_bytes_that_are_the_content_of_a_file_are_saved(tmp_path):
    hyperplane.save('{"a": [1]}', tmp_path / "x.json")
    hyperplane.save(b'{"a": [1]}', tmp_path / "y.json")
    assert hyperplane.load(tmp_path / "x.json") == hyperplane.load(tmp_path / "y.json")
    frame = pd.DataFrame({"a": [1]})
    for suffix in (".parquet", ".avro", ".orc", ".csv"):
        hyperplane.save(frame, tmp_path / f"a{suffix}")
        hyperplane.save((tmp_path / f"a{suffix}").read_bytes(), tmp_path / f"b{suffix}")
        assert hyperplane.load(tmp_path / f"b{suffix}").a.tolist() == [1]


def test_suffixes_of_compressions_are_refused(tmp_path):
    fault = refusal(pd.DataFrame({"a": [1]}), tmp_path, "t.csv.gz", format="csv")
    assert "without '.gz'" in fault.allowed
    assert refusal("text", tmp_path, "t.txt.zst").where == "url"
    hyperplane.save(b"bytes", tmp_path / "t.gz")


@pytest.mark.parametrize("form", ["parquet", "csv", "tsv", "jsonl", "avro", "orc"])
@pytest.mark.parametrize("partitions", [0, 1])
def test_rows_without_columns_are_refused(tmp_path, form, partitions):
    def save(frame, name):
        obj = dd.from_pandas(frame, npartitions=1) if partitions else frame
        hyperplane.save(obj, tmp_path / name, format=form)
        loaded = hyperplane.load(tmp_path / name, format=None if partitions else form)
        return loaded.compute() if partitions else loaded

    with pytest.raises((RequestError, DataError), match=r"without columns.*reset_index\(\)"):
        save(pd.DataFrame(index=range(3)), "rows")
    assert save(pd.DataFrame(), "nothing").shape == (0, 0)
    assert len(save(pd.DataFrame(index=pd.Index(["a", "b"], name="k")), "index")) == 2


def test_a_file_without_a_suffix_is_loaded_with_its_format(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    for form in ("parquet", "csv", "jsonl", "avro", "orc"):
        hyperplane.save(frame, tmp_path / form, format=form)
        assert hyperplane.load(tmp_path / form, format=form).a.tolist() == [1]
    assert hyperplane.load(tmp_path / "csv", format="text") == "a\n1\n"
    assert hyperplane.load(tmp_path / "csv", format="bytes") == b"a\n1\n"
    assert isinstance(hyperplane.load(tmp_path / "parquet"), bytes)
    with pytest.raises(RequestError, match="trusted"):
        hyperplane.load(tmp_path / "csv", format="joblib")
    for wrong in ("parq", "", 3, ["csv"]):
        with pytest.raises(RequestError, match=r"format.*one of avro"):
            hyperplane.load(tmp_path / "csv", format=wrong)
    hyperplane.save(dd.from_pandas(frame, npartitions=1), tmp_path / "folder")
    with pytest.raises(RequestError, match="is a folder; omit format="):
        hyperplane.load(tmp_path / "folder", format="parquet")
