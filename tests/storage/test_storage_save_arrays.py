"""Arrays and data sets are loaded unchanged."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from saving_cases import PLACES, in_this_thread, places

import hyperplane
from hyperplane.errors import OutputExists, StorageError

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")


_here = pytest.fixture(autouse=True)(in_this_thread)
base = pytest.fixture(params=PLACES)(places)


@pytest.mark.parametrize("kind", ["array", "dataset", "dataarray"])
def test_arrays_and_data_sets_round_trip_and_are_replaced(base, kind):
    values = np.arange(12.0).reshape(3, 4)
    saved = {
        "array": da.from_array(values, chunks=(2, 2)),
        "dataset": xr.Dataset({"v": (("y", "x"), values)}, coords={"x": range(4)}),
        "dataarray": xr.DataArray(values, dims=("y", "x"), name="v"),
    }[kind]
    hyperplane.save(saved, f"{base}/v.zarr")
    for change in (0, 1):  # the chunks keep their names
        obj = saved + change
        if change:
            with pytest.raises(OutputExists):
                hyperplane.save(obj, f"{base}/v.zarr")
            hyperplane.save(obj, f"{base}/v.zarr", mode="overwrite")
        again = hyperplane.load(f"{base}/v.zarr")
        if kind == "array":
            assert (again.compute() == values + change).all()
        else:
            xr.testing.assert_identical(again.compute(), obj)


def test_a_deleted_chunk_is_an_error_instead_of_zeros(tmp_path):
    hyperplane.save(da.ones((4, 4), chunks=2), str(tmp_path / "a.zarr"))
    chunk = next(file for file in (tmp_path / "a.zarr" / "c").rglob("*") if file.is_file())
    chunk.unlink()
    with pytest.raises(StorageError, match="1 file missing"):
        hyperplane.load(str(tmp_path / "a.zarr"))
