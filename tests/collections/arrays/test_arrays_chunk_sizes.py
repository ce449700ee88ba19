"""Tests of ``propose_chunks`` and of ``rechunk`` within a memory limit."""

from __future__ import annotations

import math
from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import example, given
from hypothesis import strategies as st
from zarr_stores import month, write

from hyperplane.array import open_zarr_many, propose_chunks, rechunk
from hyperplane.collections.arrays.chunk_sizes import (
    MAX_JOINT_CHUNK,
    choose_chunk_sizes,
    choose_joint_chunk_length,
)
from hyperplane.collections.arrays.rechunk import (
    count_largest_chunk,
    estimate_peak_bytes,
    plan_rechunk_steps,
)
from hyperplane.errors import RequestError

AXES = st.lists(
    st.tuples(st.integers(1, 400), st.integers(1, 50), st.booleans()), min_size=1, max_size=4
)


def fault_of(call, *args, **options):
    with pytest.raises(RequestError) as caught:
        call(*args, **options)
    [fault] = caught.value.faults
    return fault


class TestProposeChunks:
    @given(AXES, st.integers(1, 10**6))
    def test_chunks_fit_and_keep_whole_axes_and_stored_chunks(self, axes, elements):
        shape, units, whole = zip(*axes, strict=True)
        kept = [axis for axis, one in enumerate(whole) if one]
        found = choose_chunk_sizes(shape, units, kept, elements)
        least = [n if w else min(n, u) for n, u, w in axes]
        if found is None:
            assert math.prod(least) > elements
            return
        assert math.prod(found) <= elements
        for size, (n, unit, w) in zip(found, axes, strict=True):
            assert size == n if w else size == n or size % unit == 0
            assert 1 <= size <= n

    @given(AXES, st.integers(1, 10**6))
    @example([(4, 1, False), (9, 1, False), (17, 1, False)], 384)
    def test_chunks_use_most_of_the_memory(self, axes, elements):
        shape, _, _ = zip(*axes, strict=True)
        found = choose_chunk_sizes(shape, [1] * len(shape), [], elements)
        for axis, size in enumerate(found):
            if size < shape[axis]:  # one chunk fewer along an axis would not have fitted
                count = math.ceil(shape[axis] / size)
                wider = math.ceil(shape[axis] / (count - 1))
                assert math.prod(found) // size * wider > elements

    @pytest.mark.parametrize(
        ("whole", "expected"),
        [("time", (3650, 1, 1)), (["y", "x"], (1, 720, 1440))],
    )
    def test_whole_dimensions_are_named(self, whole, expected):
        array = xr.DataArray(da.zeros((3650, 720, 1440)), dims=["time", "y", "x"])
        proposal = propose_chunks(array, whole=whole, memory="50MB")
        for name, size in zip(array.dims, expected, strict=True):
            assert proposal[name] >= size
            assert size == 1 or proposal[name] == size
        assert math.prod(proposal.values()) * 8 <= 50e6
        assert array.chunk(proposal).chunks is not None

    def test_stored_chunks_are_kept_whole(self, tmp_path):
        url = write(month(0, days=60).chunk(time=7), tmp_path / "a.zarr")
        data = open_zarr_many(url)
        chunks = propose_chunks(data["rain"], memory=7 * 12 * 8 * 3 + 50)
        assert chunks["time"] % 7 == 0
        assert chunks["time"] > 7
        array = zarr.open_array(f"{url}/rain", mode="r")
        assert propose_chunks(array, memory=7 * 12 * 8 * 3 + 50) == tuple(chunks.values())

    def test_all_kinds_of_arrays_have_the_chunks_of_their_shape(self):
        expected = propose_chunks((1000, 1000), dtype="f8", memory="1MB")
        assert propose_chunks(np.zeros((1000, 1000)), memory="1MB") == expected
        assert propose_chunks(da.zeros((1000, 1000)), memory=10**6) == expected
        assert propose_chunks((1000, 0), dtype="f8") == (1000, 1)

    def test_invalid_arguments_are_faults(self):
        assert fault_of(propose_chunks, (5, 5)).where == "array"
        assert fault_of(propose_chunks, "abc", dtype="f8").where == "array"
        assert fault_of(propose_chunks, (5, -1), dtype="f8").where == "array"
        assert fault_of(propose_chunks, (5, 5), dtype="nothing").where == "dtype"
        assert fault_of(propose_chunks, (5, 5), dtype="f8", memory="much").where == "memory"
        assert fault_of(propose_chunks, (5, 5), dtype="f8", memory=0).where == "memory"
        assert fault_of(propose_chunks, (5, 5), dtype="f8", whole=2).where == "whole"
        array = xr.DataArray(np.zeros((5, 5)), dims=["y", "x"])
        assert fault_of(propose_chunks, array, whole=0).allowed == "one or more of y, x"
        too_small = fault_of(propose_chunks, (500, 500), dtype="f8", whole=0, memory="1kB")
        assert too_small.allowed.startswith("at least 4 kB")


def test_small_stores_share_a_chunk_and_large_ones_do_not():
    assert choose_joint_chunk_length([10] * 3, 10, 8) == 30
    assert choose_joint_chunk_length([10] * 100, 10, 8) == 320
    assert choose_joint_chunk_length([31, 28, 31, 30], 31, MAX_JOINT_CHUNK) == 30
    assert choose_joint_chunk_length([365] * 10, 73, MAX_JOINT_CHUNK // 200) == 146
    assert choose_joint_chunk_length([0], 1, 8) == 1


@st.composite
def chunk_pairs(draw):
    pairs = []
    for _ in range(draw(st.integers(1, 3))):
        total = draw(st.integers(1, 40))
        cuts = []
        for _ in range(2):
            edges = sorted({0, total, *draw(st.lists(st.integers(1, total), max_size=8))})
            cuts.append(tuple(b - a for a, b in pairwise(edges)))
        pairs.append(cuts)
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


class TestRechunk:
    @given(chunk_pairs())
    def test_the_estimated_peak_equals_a_direct_count(self, cuts):
        old, new = cuts
        shape = [sum(sizes) for sizes in old]
        owner = np.zeros(shape, int)
        blocks = []
        for number, index in enumerate(np.ndindex(*map(len, old))):
            box = tuple(
                slice(sum(sizes[:i]), sum(sizes[: i + 1]))
                for i, sizes in zip(index, old, strict=True)
            )
            owner[box] = number
            blocks.append(owner[box].size)
        touched = 0
        for index in np.ndindex(*map(len, new)):
            box = tuple(
                slice(sum(sizes[:i]), sum(sizes[: i + 1]))
                for i, sizes in zip(index, new, strict=True)
            )
            touched = max(touched, sum(blocks[n] for n in np.unique(owner[box])))
        assert estimate_peak_bytes(old, new, 8) == 8 * (touched + count_largest_chunk(new))

    @given(chunk_pairs(), st.integers(100, 10**5))
    def test_steps_stay_within_the_limit_and_end_at_the_new_chunks(self, cuts, limit):
        old, new = cuts
        steps = plan_rechunk_steps(old, new, 8, limit)
        if steps is None:
            assert estimate_peak_bytes(old, new, 8) > limit
            return
        assert steps[-1] == new
        for before, after in zip([old, *steps], steps, strict=False):
            assert estimate_peak_bytes(before, after, 8) <= limit
            assert [sum(sizes) for sizes in after] == [sum(sizes) for sizes in old]

    def test_intermediate_chunks_are_used_only_if_one_step_exceeds_the_limit(self):
        data = np.arange(40 * 30 * 30.0).reshape(40, 30, 30)
        maps = da.from_array(data, chunks=(1, 30, 30))
        direct = rechunk(maps, (40, 3, 3))
        bounded = rechunk(maps, (40, 3, 3), memory="60kB")
        assert direct.chunks == bounded.chunks
        assert len(bounded.dask.layers) > len(direct.dask.layers)
        np.testing.assert_array_equal(bounded.compute(scheduler="sync"), data)

    def test_chunks_proposed_for_xarray_are_accepted(self, tmp_path):
        urls = [write(month(n), tmp_path / f"{n}.zarr") for n in range(3)]
        data = open_zarr_many(urls, combine="concat", concat_dim="time")
        chunks = propose_chunks(data["rain"], whole="time", memory=18 * 8 * 4)
        one = rechunk(data["rain"], chunks, memory="10kB")
        assert dict(zip(one.dims, one.data.chunksize, strict=True)) == chunks
        xr.testing.assert_identical(one.compute(), data["rain"].compute())
        both = rechunk(data, {"time": 5}, memory="10kB")
        assert both.chunksizes["time"] == (5, 5, 5, 3)
        xr.testing.assert_identical(both.compute(), data.compute())

    def test_an_impossible_rechunk_names_the_required_memory(self):
        maps = da.zeros((100, 100, 100), chunks=(1, 100, 100))
        fault = fault_of(rechunk, maps, (100, 100, 100), memory="1MB")
        assert "80 kB" in fault.asked
        assert "8 MB" in fault.asked
        assert "16.08 MB" in fault.advice
        fault = fault_of(rechunk, maps, (100, 10, 10), memory="250kB")
        assert "start a cluster" in fault.advice

    def test_invalid_arguments_are_faults(self):
        array = da.zeros((10, 10), chunks=5)
        assert fault_of(rechunk, np.zeros(3), 2).where == "array"
        assert fault_of(rechunk, array, (3,)).where == "chunks"
        assert fault_of(rechunk, array, 5, memory="?").where == "memory"
        assert fault_of(rechunk, array[array[:, 0] > 0], (2, 2)).where == "array"
        labelled = xr.DataArray(array, dims=["y", "x"])
        assert fault_of(rechunk, labelled, {"z": 2}).allowed.endswith("y, x")
        assert fault_of(rechunk, labelled, (2, 2)).where == "chunks"
