"""Saved Zarr stores are read unchanged by hyperplane and others, or reading fails."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from scale import combinations

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, ReadError, RequestError
from hyperplane.storage import arrays
from hyperplane.storage.manifest_commit import ManifestCommit
from hyperplane.storage.rename_commit import RenameCommit

# Zarr warns that text and times may be encoded differently in the future.
pytestmark = pytest.mark.filterwarnings("ignore:The data type")


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync"}):
        yield


@pytest.fixture(params=["disk", "object store"])
def place(request, tmp_path, faulty_store):
    """A URL with options, and a function that returns its files by name."""
    if request.param == "disk":
        root = tmp_path / "Wärme 1.zarr"
        return str(root), {}, lambda name: root / name
    store = faulty_store()
    root = store.root / "objects" / "bucket" / "Wärme 1.zarr"
    return f"{store.url}/Wärme 1.zarr", store.options, lambda name: root / name


def save(obj, place, **more):
    return hyperplane.save(obj, place[0], storage_options=place[1], **more)


def load(place):
    return hyperplane.load(place[0], storage_options=place[1])


def numbers(chunks=2, shape=(4, 6)):
    return da.from_array(np.arange(1.0, 1 + np.prod(shape)).reshape(shape), chunks=chunks)


def weather(chunks=None):
    """A data set with most features that xarray has to encode."""
    original = xr.Dataset(
        {
            "rain": (("time", "x"), np.arange(20.0).reshape(5, 4) / 2),
            "wet": (("time", "x"), np.arange(20).reshape(5, 4) % 3 == 0),
            "first": (("x",), pd.date_range("2000-01-01", periods=4, freq="37min")),
            "note": (("x",), np.array(["ä", "bb", "", "d"])),
            "height": ((), 12.5),
            "nothing": (("x", "none"), np.zeros((4, 0))),
            "of_no_coordinate": (("y",), np.arange(3, dtype="int8")),
        },
        coords={
            "time": pd.date_range("2024-03-31", periods=5, freq="h"),
            "x": [1, 2, 3, 4],
            "lat": (("x",), np.linspace(50, 51, 4)),
        },
        attrs={"source": "ours"},
    )
    original.rain.attrs["unit"] = "mm"
    original.rain.encoding = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    return original if chunks is None else original.chunk(chunks)


@pytest.mark.parametrize(
    ("chunks", "place"),
    combinations([None, {"time": 2, "x": 3}, {}], ["disk", "object store"]),
    indirect=["place"],
)
def test_data_sets_round_trip_and_are_replaced(place, chunks):
    expected = weather()
    assert save(weather(chunks), place).changed
    options = {"storage_options": place[1]} if place[1] else {}
    found = load(place)
    assert found.rain.chunks is not None
    for read in (found, xr.open_zarr(place[0], consolidated=True, **options)):
        xr.testing.assert_identical(read.compute(), expected)
        assert read.rain.encoding["dtype"] == np.dtype("int16")
    assert not save(weather(chunks), place).changed
    changed = weather(chunks).assign(height=13.0)
    with pytest.raises(OutputExists, match=r"height|zarr\.json"):
        save(changed, place)
    assert save(changed, place, mode="overwrite").written == 1
    xr.testing.assert_identical(load(place).compute(), weather().assign(height=13.0))


@pytest.mark.parametrize("name", [None, "rain", "x"])
def test_data_arrays_round_trip_with_their_names(tmp_path, name):
    original = xr.DataArray(np.arange(6.0), dims="x", coords={"x": range(6)}, name=name)
    url = str(tmp_path / "a.zarr")
    hyperplane.save(original.chunk(x=4), url)
    xr.testing.assert_identical(hyperplane.load(url).compute(), original)
    assert hyperplane.load(url).chunks == ((4, 2),)
    plain = xr.open_dataarray(url, engine="zarr")
    xr.testing.assert_identical(plain.compute(), original)
    plain.close()


#: Arrays, and the chunks that are saved.
ARRAYS = [
    (numbers(), ((2, 2), (2, 2, 2))),
    (numbers(((3, 1), (1, 2, 3))), ((3, 1), (3, 3))),
    (numbers(((2, 2, 0), (6,))), ((2, 2), (6,))),
    (da.zeros((3, 0), chunks=2), ((2, 1), (0,))),
    (da.from_array(np.array(3.5)), ()),
    (da.zeros((5, 5), chunks=2), ((2, 2, 1), (2, 2, 1))),
    (da.from_array(np.array(["a", "bb"], dtype="S2"), chunks=1), ((1, 1),)),
    (da.from_array(pd.date_range("2000", periods=4).to_numpy(), chunks=3), ((3, 1),)),
]


@pytest.mark.parametrize(
    ("case", "place"), combinations(ARRAYS, ["disk", "object store"]), indirect=["place"]
)
def test_dask_arrays_round_trip(place, case):
    array, chunks = case
    save(array, place)
    options = {"storage_options": place[1]} if place[1] else {}
    values = array.compute()
    for read in (load(place), da.from_zarr(place[0], **options)):
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read.compute(), values)
    assert load(place).chunks == chunks or array.size == 0
    np.testing.assert_array_equal(zarr.open_array(place[0], mode="r", **options)[...], values)
    assert not save(array, place).changed


def test_values_that_zarr_does_not_support_are_refused(tmp_path):
    url = str(tmp_path / "a.zarr")
    with pytest.raises(RequestError, match="compute_chunk_sizes"):
        hyperplane.save(numbers()[numbers() > 3], url)
    with pytest.raises(RequestError, match="that Zarr supports"):
        hyperplane.save(da.ones(3, dtype="longdouble"), url)
    uneven = weather().rain.chunk(time=(2, 1, 2))
    with pytest.raises(RequestError, match=r"chunk\(\)"):
        hyperplane.save(uneven, url)
    other = weather({"time": 2}).rain
    other.encoding["chunks"] = (3, 4)
    with pytest.raises(RequestError, match=r"drop_encoding\(\)"):
        hyperplane.save(other, url)
    with pytest.raises(RequestError, match="names that are non-empty strings"):
        hyperplane.save(xr.Dataset({1: ("x", [1])}), url)
    assert list(tmp_path.iterdir()) in ([], [tmp_path / ".a.zarr.hyperplane"])
    hyperplane.save(other.drop_encoding(), url)


def test_a_loaded_array_is_not_mixed_with_a_later_version(place):
    array = numbers()
    save(array, place)
    held, token = load(place), load(place).name
    assert save(da.where(numbers() == 1, -1, numbers()), place, mode="overwrite").written == 1
    assert load(place).name != token
    with pytest.raises(ReadError, match="load it again"):
        held.compute()
    # Unchanged chunks are not written again.
    assert (held[2:].compute() == np.arange(13.0, 25).reshape(2, 6)).all()
    save(da.zeros((4, 6), chunks=2), place, mode="overwrite")  # no file for a chunk of zeros
    with pytest.raises(ReadError, match="is gone"):
        held[2:].compute()
    assert (load(place).compute() == 0).all()


@pytest.mark.parametrize(
    ("harm", "place"),
    combinations(["flip", "cut", "remove"], ["disk", "object store"]),
    indirect=["place"],
)
def test_a_damaged_chunk_is_an_error(place, harm):
    save(xr.Dataset({"v": (("y", "x"), numbers())}), place)
    held = load(place)
    path = place[2]("v/c/1/2")
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if harm == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ReadError, match=r"v/c/1/2.*load it again"):
        held.compute()
    assert float(held.v[0, 0]) == 1
    if harm != "flip":  # which remains undetected until the chunk is read
        result = save(xr.Dataset({"v": (("y", "x"), numbers())}), place, mode="overwrite")
        assert result.written >= 1
        assert (load(place).v.compute() == numbers().compute()).all()


def test_equal_chunks_under_other_names_are_a_change(place):
    for values in ([1.0, 0.0], [0.0, 1.0]):  # the chunk of a zero has no file
        assert save(da.from_array(np.array(values), chunks=1), place, mode="overwrite").changed
        assert load(place).compute().tolist() == values


def test_saving_equal_arrays_again_writes_no_chunk(faulty_store):
    store = faulty_store()
    place = f"{store.url}/a.zarr", store.options
    save(numbers(), place)
    before = len(store.writes())
    for mode in ("error", "overwrite"):
        assert not save(numbers(), place, mode=mode).changed
    written = [call.path for call in store.writes()[before:] if call.op in ("put", "create")]
    assert all(path.endswith("/probe") for path in written)
    before = len(store.writes())
    result = save(da.where(numbers() == 24, 0, numbers()), place, mode="overwrite")
    assert (result.written, result.files) == (1, 7)
    written = [call.path for call in store.writes()[before:] if call.op in ("put", "create")]
    assert sum("/c/" in path for path in written) == 1


def test_the_new_version_is_read_before_its_chunks_are_copied(faulty_store, monkeypatch):
    store = faulty_store()
    place = f"{store.url}/a.zarr", store.options
    save(numbers(), place)
    new = da.where(numbers() > 12, -numbers(), numbers())  # half of the chunks stay
    with monkeypatch.context() as patch:
        patch.setattr(ManifestCommit, "finish_commit", lambda *_: None)
        assert save(new, place, mode="overwrite").written == 3
        held = load(place)
        assert (held.compute() == new.compute()).all()
    assert not save(new, place).changed  # it copies the remaining chunks
    assert (held.compute() == new.compute()).all()
    assert (da.from_zarr(place[0], storage_options=place[1]).compute() == new.compute()).all()


def test_one_of_two_writers_with_equal_chunks_gets_an_error(place, monkeypatch):
    save(numbers(), place)
    kind = ManifestCommit if place[1] else RenameCommit
    publish, overtaken = kind.publish, []

    def overtaking(self, *arguments):
        if not overtaken:
            overtaken.append(1)
            save(da.where(numbers() == 1, 5, numbers()), place, mode="overwrite")
        return publish(self, *arguments)

    monkeypatch.setattr(kind, "publish", overtaking)
    with pytest.raises(OutputConflict):
        save(da.where(numbers() == 24, 6, numbers()), place, mode="overwrite")
    assert (load(place).compute() == np.where(numbers() == 1, 5, numbers().compute())).all()


def test_a_reused_inode_does_not_hide_a_conflict(tmp_path, monkeypatch):
    place = str(tmp_path / "a.zarr"), {}
    seen = {}

    def numbered(key, path):  # a disk with only two inodes
        return f"{key}-{seen.setdefault(path.stat().st_ino, len(seen) % 2)}"

    monkeypatch.setattr("hyperplane.storage.rename_commit._version", numbered)
    save(numbers(), place)
    verify = arrays.verify_listing

    def overtaking(*arguments):
        monkeypatch.setattr(arrays, "verify_listing", verify)
        for value in (-1, -2):
            save(da.where(numbers() == 1, value, numbers()), place, mode="overwrite")
        verify(*arguments)

    monkeypatch.setattr(arrays, "verify_listing", overtaking)
    with pytest.raises(OutputConflict):
        save(da.where(numbers() == 24, 6, numbers()), place, mode="overwrite")
    assert load(place)[0, 0].compute() == -2


def test_zarr_shards_are_read_by_ranges_and_verified(place):
    original = xr.Dataset({"v": (("y", "x"), numbers((4, 6)).compute())})
    original.v.encoding = {"chunks": (1, 2), "shards": (2, 6)}
    save(original, place)
    held = pickle.loads(pickle.dumps(load(place)))
    assert held.v.encoding["shards"] == (2, 6)
    xr.testing.assert_equal(held[{"y": 2}].compute(), original[{"y": 2}])
    save((original + 1).assign(v=lambda data: data.v.assign_attrs(a=1)), place, mode="overwrite")
    with pytest.raises(ReadError, match="load it again"):
        held.compute()


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_zarr_of_another_program_is_read(place):
    options = {"storage_options": place[1]} if place[1] else {}
    original = weather().drop_vars(["first", "note"])
    original.to_zarr(place[0], **options)
    xr.testing.assert_identical(load(place).compute(), original)
    assert save(original, place, mode="overwrite").changed
    xr.testing.assert_identical(load(place).compute(), original)


def test_zarr_format_2_round_trips(place):
    with zarr.config.set(default_zarr_format=2):
        save(weather({"time": 2}), place)
        assert place[2](".zgroup").exists()
    xr.testing.assert_identical(load(place).compute(), weather())
