"""Common mistakes: impossible chunks, arguments of other functions, typos."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from zarr_stores import month, write

from hyperplane.array import open_zarr_many, propose_chunks, rechunk
from hyperplane.errors import RequestError


def fault_of(call):
    with pytest.raises(RequestError) as caught:
        call()
    (fault,) = caught.value.faults
    return fault


SQUARE = da.zeros((10, 10), chunks=5)


@pytest.mark.parametrize("chunks", [0, -5, (0, 5), {0: 0}, {1: -2}])
def test_chunk_sizes_below_one_are_faults(chunks):
    fault = fault_of(lambda: rechunk(SQUARE, chunks))
    assert fault.where == "chunks"
    assert fault.advice == "chunk sizes are at least 1; -1 means the whole axis"


@pytest.mark.parametrize("loaded", [False, True])
def test_chunk_sizes_below_one_of_dimensions_are_faults(loaded):
    data = xr.Dataset({"rain": (("time", "x"), np.ones((4, 3)))})
    data = data if loaded else data.chunk()
    assert "-1 means the whole axis" in fault_of(lambda: rechunk(data, {"time": 0})).advice
    assert rechunk(data, {"time": 2}).rain.chunks == ((2, 2), (3,))
    assert rechunk(data, {"time": -1, "x": 1}).rain.chunks == ((4,), (1, 1, 1))


@pytest.mark.parametrize("chunks", [{2: 5}, {-3: 5}, {"x": 5}, {None: 5}])
def test_a_missing_axis_is_reported(chunks):
    assert "axes 0 to 1" in fault_of(lambda: rechunk(SQUARE, chunks)).allowed


def test_negative_axes_count_from_the_end():
    assert rechunk(SQUARE, {-1: 2}).chunks == ((5, 5), (2,) * 5)


def test_an_axis_of_length_zero_has_chunks_of_size_zero():
    assert rechunk(da.zeros((0, 3)), (0, 1)).chunks == ((0,), (1, 1, 1))


def test_chunks_is_an_unknown_argument_with_advice():
    fault = fault_of(lambda: open_zarr_many("x.zarr", chunks={"time": 1}))
    assert (fault.where, "rechunk(data, chunks)" in fault.advice) == ("chunks", True)


@pytest.mark.parametrize(("typed", "meant"), [("decode_tims", "decode_times"), ("lod", "load")])
def test_misspelled_arguments_have_suggestions(typed, meant):
    assert (
        f"did you mean {meant}" in fault_of(lambda: open_zarr_many("x.zarr", **{typed: 1})).advice
    )


@pytest.mark.parametrize("load", ["no", 1, None])
def test_load_must_be_a_boolean(load):
    fault = fault_of(lambda: open_zarr_many("x.zarr", load=load))
    assert (fault.where, fault.allowed) == ("load", "True or False")


@pytest.mark.parametrize("protocol", ["", "file://"])
def test_a_missing_store_is_reported_with_similar_names(tmp_path, protocol):
    for number in (1, 2):
        write(month(number), f"{tmp_path}/weather-0{number}.zarr")
    fault = fault_of(lambda: open_zarr_many(f"{protocol}{tmp_path}/weather-1.zarr"))
    assert fault.advice.startswith("no Zarr group exists there; did you mean")
    assert "'weather-01.zarr'" in fault.advice
    assert "did you mean" not in fault_of(lambda: open_zarr_many(f"{tmp_path}/no/a.zarr")).advice
    assert "did you mean" not in fault_of(lambda: open_zarr_many(str(tmp_path))).advice


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: rechunk("x", 5, memory="much"), ["array", "memory"]),
        (lambda: rechunk(SQUARE, 0, memory=-1), ["chunks", "memory"]),
        (lambda: propose_chunks("x", memory="much"), ["array", "memory"]),
        (lambda: propose_chunks(SQUARE, whole=7, memory=0), ["whole", "memory"]),
        (
            lambda: propose_chunks((4, 4), dtype="f9x", whole=7, memory=0),
            ["dtype", "whole", "memory"],
        ),
        (lambda: open_zarr_many(5, combine="join"), ["combine", "urls"]),
        (lambda: open_zarr_many(["missing-*.zarr"], combine="join"), ["combine", "urls[0]"]),
        (lambda: open_zarr_many([["a.zarr"], ["b.zarr"]], combine="join"), ["combine"]),
    ],
)
def test_faults_of_all_arguments_are_reported_together(call, names):
    with pytest.raises(RequestError) as caught:
        call()
    assert [fault.where for fault in caught.value.faults] == names
