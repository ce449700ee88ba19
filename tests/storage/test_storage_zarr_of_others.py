"""Zarr stores of other programs: single arrays, groups without dimensions, damaged files."""

from __future__ import annotations

import dask
import dask.array as da
import fsspec
import numpy as np
import pytest
import xarray
import zarr

import hyperplane
from hyperplane.errors import ReadError, StorageError


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


def test_arrays_outside_of_groups_are_dask_arrays(tmp_path):
    values = np.arange(20).reshape(4, 5)
    da.from_array(values, chunks=2).to_zarr(str(tmp_path / "of-dask.zarr"))
    zarr.save_array(tmp_path / "old.zarr", values, zarr_format=2)
    for name in ("of-dask.zarr", "old.zarr"):
        found = hyperplane.load(tmp_path / name)
        assert isinstance(found, da.Array)
        assert found.compute().tolist() == values.tolist()


def test_an_array_on_another_store_is_loaded():
    url = "memory://zarr-of-others/a.zarr"
    try:
        da.arange(6, chunks=2).to_zarr(url)
        assert hyperplane.load(url).compute().tolist() == [0, 1, 2, 3, 4, 5]
    finally:
        fsspec.filesystem("memory").rm("/zarr-of-others", recursive=True)


@pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated")
def test_a_group_without_dimension_names_is_an_error(tmp_path):
    da.arange(6, chunks=2).to_zarr(str(tmp_path / "group.zarr"), component="values")
    with pytest.raises(ReadError, match=r"group\.zarr.*zarr\.open_group"):
        hyperplane.load(tmp_path / "group.zarr")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("zarr.json", b"{"),
        ("zarr.json", b"[]"),
        ("zarr.json", b"\xff"),
        ("zarr.json", b'{"node_type":"array","zarr_format":3}'),
        ("zarr.json", b'{"node_type":"group","zarr_format":9}'),
        (".zgroup", b"{"),
        (".zarray", b"{}"),
    ],
)
def test_damaged_metadata_is_an_error(tmp_path, name, data):
    (tmp_path / "d.zarr").mkdir()
    (tmp_path / "d.zarr" / name).write_bytes(data)
    with pytest.raises((ReadError, StorageError), match=r"d\.zarr"):
        hyperplane.load(tmp_path / "d.zarr")


def test_groups_with_dimension_names_are_data_sets(tmp_path):
    xarray.Dataset({"v": ("t", np.arange(3))}).to_zarr(tmp_path / "set.zarr", zarr_format=2)
    assert hyperplane.load(tmp_path / "set.zarr")["v"].values.tolist() == [0, 1, 2]
