"""``open_zarr_many`` compared with xarray opening the same stores one by one."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scale import scaled
from zarr_stores import FORMS, Watched, month, one_by_one, write

from hyperplane.array import open_zarr_many

MERGED = {"compat": "no_conflicts", "join": "outer", "combine_attrs": "no_conflicts"}
ALONG = {**MERGED, "data_vars": "minimal", "coords": "minimal"}


@pytest.fixture(
    scope="module", params=scaled([(3, True)], FORMS), ids=lambda form: f"v{form[0]}-{form[1]}"
)
def months(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    return [write(month(n), folder / f"{n}.zarr", *request.param) for n in range(4)]


def test_concat_equals_xarray(months):
    ours = open_zarr_many(months, combine="concat", concat_dim="time")
    theirs = xr.concat(one_by_one(months), "time", **ALONG)
    xr.testing.assert_identical(ours.compute(), theirs.compute())


def test_variables_have_the_order_of_xarray(tmp_path):
    urls = [write(month(n, ["z", "a", "m"]), tmp_path / f"{n}.zarr") for n in range(3)]
    theirs = xr.concat(one_by_one(urls), "time", **ALONG)
    ours = open_zarr_many(urls, combine="concat", concat_dim="time")
    assert list(ours.data_vars) == list(theirs.data_vars)
    assert list(open_zarr_many(urls).data_vars) == list(theirs.data_vars)


def test_merge_of_blocks_equals_xarray(months):
    ours = open_zarr_many(months[::-1])
    theirs = xr.merge(one_by_one(months[::-1]), **MERGED)
    xr.testing.assert_identical(ours.compute(), theirs.compute())


def test_merge_of_different_variables_equals_xarray(tmp_path):
    parts = [month(0, [name]) for name in ("rain", "wind", "snow")]
    urls = [write(part, tmp_path / f"{n}.zarr", 3) for n, part in enumerate(parts)]
    ours = open_zarr_many(urls)
    xr.testing.assert_identical(ours.compute(), xr.merge(one_by_one(urls), **MERGED).compute())
    assert all(isinstance(ours[name].data, da.Array) for name in ("rain", "wind", "snow", "lat"))


def test_merge_of_overlapping_stores_fills_missing_values(tmp_path):
    first = month(0, ["rain"])
    second = first.where(first.time > first.time[2])
    third = xr.concat([first, month(1, ["rain"])], "time", **ALONG).isel(time=slice(3, 9))
    urls = [write(part, tmp_path / f"{n}.zarr") for n, part in enumerate((second, first, third))]
    ours = open_zarr_many(urls)
    assert isinstance(ours["rain"].data, da.Array)  # xarray holds it in memory
    xr.testing.assert_identical(ours.compute(), xr.merge(one_by_one(urls), **MERGED).compute())


def test_concat_along_a_new_dimension_equals_xarray(tmp_path):
    urls = [write(month(0) * (n + 1.0), tmp_path / f"{n}.zarr") for n in range(3)]
    for dim in ("run", pd.Index(["a", "b", "c"], name="run")):
        ours = open_zarr_many(urls, combine="concat", concat_dim=dim)
        theirs = xr.concat(one_by_one(urls), dim, **{**ALONG, "data_vars": "all"})
        xr.testing.assert_identical(ours.compute(), theirs.compute())
        xr.testing.assert_identical(ours.isel(run=1).compute(), theirs.isel(run=1).compute())


@pytest.mark.slow
def test_a_grid_of_stores_is_combined_to_the_whole(tmp_path):
    whole = month(0)
    tree = [
        [write(whole.isel(x=slice(x, x + 2), y=[y]), tmp_path / f"{x}{y}.zarr") for y in range(3)]
        for x in (0, 2)
    ]
    flat = [url for row in tree for url in row]
    nested = open_zarr_many(tree, combine="nested", concat_dim=["x", "y"])
    xr.testing.assert_identical(nested.compute(), whole)
    xr.testing.assert_identical(open_zarr_many(flat, combine="by_coords").compute(), whole)
    xr.testing.assert_identical(open_zarr_many(flat).compute(), whole)


def test_groups_and_options_of_xarray_are_passed_on(tmp_path):
    for n in range(2):
        write(month(n), tmp_path / f"{n}.zarr", 3, False, group="deep/down")
    urls = [str(tmp_path / f"{n}.zarr") for n in range(2)]
    options = {"decode_times": False, "drop_variables": ["wind"], "group": "deep/down"}
    along = {**ALONG, "combine_attrs": "override"}  # units that count from different days
    ours = open_zarr_many(
        urls, combine="concat", concat_dim="time", combine_attrs="override", **options
    )
    theirs = xr.concat(one_by_one(urls, **options), "time", **along)
    xr.testing.assert_identical(ours.compute(), theirs.compute())
    assert "wind" not in ours
    assert ours.time.dtype.kind != "M"


def test_a_glob_lists_stores_in_the_order_of_their_names(months):
    pattern = months[0].replace("0.zarr", "[0-2].zarr")
    ours = open_zarr_many(pattern, combine="concat", concat_dim="time")
    listed = open_zarr_many(months[:3], combine="concat", concat_dim="time")
    xr.testing.assert_identical(ours.compute(), listed.compute())


def test_a_single_store_is_returned_unchanged(months):
    xr.testing.assert_identical(open_zarr_many(months[0]).compute(), month(0))


def test_load_reads_all_data_into_memory(months):
    ours = open_zarr_many(months, combine="concat", concat_dim="time", load=True)
    assert all(isinstance(one.data, np.ndarray) for one in ours.data_vars.values())
    xr.testing.assert_identical(ours, xr.concat(one_by_one(months), "time", **ALONG).compute())


def test_only_metadata_and_indexes_are_read_and_only_once(months, monkeypatch):
    monkeypatch.setattr(Watched, "reads", reads := type(Watched.reads)())
    ours = open_zarr_many(
        [f"watched://{url}" for url in months], combine="concat", concat_dim="time"
    )
    assert max(reads.values()) == 1
    assert not [
        path
        for path in reads
        if "/rain/" in path and not path.endswith((".json", ".zarray", ".zattrs", ".zgroup"))
    ]
    reads.clear()
    ours["rain"].data.compute(scheduler="sync")
    assert sum(reads.values()) == len(months)  # one read a store: nothing is opened again
    reads.clear()
    sent = pickle.loads(pickle.dumps(ours["wind"].data))
    sent.compute(scheduler="sync")
    assert sum(reads.values()) == len(months)


def test_a_rewritten_store_is_read_again(tmp_path):
    url = write(month(0), tmp_path / "a.zarr")
    before = open_zarr_many(url)
    name = before["rain"].data.name
    first = before["rain"].values
    write(month(0) * 2, url)
    after = open_zarr_many(url)
    assert after["rain"].data.name != name
    np.testing.assert_array_equal(after["rain"].values, first * 2)


def test_small_neighbors_are_read_by_one_task(months):
    ours = open_zarr_many(months, combine="concat", concat_dim="time")
    assert ours["rain"].data.numblocks == (1, 1, 1)


def test_slices_of_a_concatenated_array_equal_xarray(months):
    ours = open_zarr_many(months, combine="concat", concat_dim="time")
    theirs = xr.concat(one_by_one(months), "time", **ALONG).compute()
    for key in (
        {"time": slice(4, 14)},
        {"time": slice(20, 3, -3)},
        {"time": 7, "x": slice(1, 3)},
        {"time": slice(5, 5)},
        {"time": [3, 17, 4], "y": 0},
        {"x": slice(None, None, -1)},
    ):
        xr.testing.assert_identical(ours.isel(key).compute(), theirs.isel(key))


def test_a_written_data_set_is_read_back_equal(months, tmp_path):
    ours = open_zarr_many(months, combine="concat", concat_dim="time")
    for zarr_format in (2, 3):
        url = write(ours, tmp_path / f"{zarr_format}.zarr", zarr_format)
        xr.testing.assert_identical(open_zarr_many(url).compute(), ours.compute())


@pytest.mark.slow
def test_stores_of_unequal_length_can_be_written(tmp_path):
    days = (31, 28, 31, 30)
    parts = [
        month(n, days=length).assign_coords(time=np.arange(length) + 40 * n)
        for n, length in enumerate(days)
    ]
    urls = [write(part.chunk(time=7), tmp_path / f"{n}.zarr") for n, part in enumerate(parts)]
    for options in ({"combine": "concat", "concat_dim": "time"}, {}, {"join": "left"}):
        ours = open_zarr_many(urls, **options)
        again = open_zarr_many(write(ours, tmp_path / "out.zarr", 3))
        xr.testing.assert_identical(again.compute(), ours.compute())


def test_different_packings_do_not_change_written_values(tmp_path):
    urls = []
    for n, scale in enumerate((0.1, 0.001)):
        part = (month(n) * 20).round(1 if n == 0 else 3)
        packing = {"dtype": "int16", "scale_factor": scale, "_FillValue": -999}
        urls.append(
            write(part, tmp_path / f"{n}.zarr", encoding={"rain": packing, "wind": packing})
        )
    ours = open_zarr_many(urls, combine="concat", concat_dim="time")
    again = open_zarr_many(write(ours, tmp_path / "out.zarr"))
    xr.testing.assert_identical(again.compute(), ours.compute())


def test_integers_with_missing_values_after_a_merge_are_not_packed(tmp_path):
    parts = [
        xr.Dataset({name: ("x", np.arange(3) + 0.5)}, coords={"x": np.arange(3) + n})
        for n, name in enumerate("ab")
    ]
    packing = {"dtype": "int8", "add_offset": 0.5}
    urls = [
        write(part, tmp_path / f"{n}.zarr", encoding={"ab"[n]: packing})
        for n, part in enumerate(parts)
    ]
    ours = open_zarr_many(urls)
    assert int(ours["a"].isnull().sum()) == 1
    again = open_zarr_many(write(ours, tmp_path / "out.zarr"))
    xr.testing.assert_identical(again.compute(), ours.compute())


def test_the_threaded_and_the_synchronous_scheduler_agree(months):
    ours = open_zarr_many(months)
    with dask.config.set(scheduler="sync"):
        one = ours.compute()
    with dask.config.set(scheduler="threads"):
        xr.testing.assert_identical(ours.compute(), one)
