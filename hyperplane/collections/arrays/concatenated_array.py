"""Dask arrays over several concatenated stores, where one task reads several small stores."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from hyperplane.collections.arrays.chunk_sizes import choose_joint_chunk_length
from hyperplane.collections.arrays.open_stores import READER_THREADS, OpenedStore
from hyperplane.collections.arrays.stored_variable import StoredVariable, make_dask_array


@functools.cache
def _get_reader_pool() -> ThreadPoolExecutor:
    """Return the thread pool of this process with which one task reads several stores."""
    return ThreadPoolExecutor(READER_THREADS, thread_name_prefix="zarr-stores")


class ConcatenatedArray:
    """Array-like of concatenated stored variables, for :func:`dask.array.from_array`.

    The pieces have equal shapes, except along ``axis``. If ``stacked``, the axis is new and each
    piece is one position along it.
    """

    def __init__(
        self, pieces: Sequence[StoredVariable], axis: int, stacked: bool, dtype: np.dtype[Any]
    ) -> None:
        self.pieces, self.axis, self.stacked, self.dtype = tuple(pieces), axis, stacked, dtype
        self.lengths = [1 if stacked else piece.shape[axis] for piece in pieces]
        self.name = pieces[0].name
        self.starts = [0, *accumulate(self.lengths)]
        next_axis = axis if stacked else axis + 1
        shape = pieces[0].shape
        self.shape = (*shape[:axis], self.starts[-1], *shape[next_axis:])
        self.ndim = len(self.shape)

    def __getitem__(self, key: tuple[slice | int, ...]) -> Any:
        positions = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        enclosing_ranges = [_find_enclosing_range(part) for part in positions]
        first, end = enclosing_ranges[self.axis]
        buffer = np.empty([stop - start for start, stop in enclosing_ranges], self.dtype)

        def fill(number: int) -> None:
            offset = self.starts[number]
            start, stop = max(offset, first), min(self.starts[number + 1], end)
            piece_slices = [slice(*enclosing) for enclosing in enclosing_ranges]
            buffer_slices = [slice(None)] * self.ndim
            piece_slices[self.axis] = slice(start - offset, stop - offset)
            buffer_slices[self.axis] = slice(start - first, stop - first)
            if self.stacked:
                del piece_slices[self.axis]
            values = self.pieces[number][tuple(piece_slices)]
            if self.stacked:
                values = np.expand_dims(values, self.axis)
            buffer[tuple(buffer_slices)] = values

        overlapping = [
            number
            for number, (start, stop) in enumerate(pairwise(self.starts))
            if max(start, first) < min(stop, end)
        ]
        if len(overlapping) == 1:
            fill(overlapping[0])
        else:
            list(_get_reader_pool().map(fill, overlapping))
        return buffer[
            tuple(
                _get_index_within(part, enclosing)
                for part, enclosing in zip(positions, enclosing_ranges, strict=True)
            )
        ]


def _find_enclosing_range(positions: range | int) -> tuple[int, int]:
    """Return start and stop of the smallest range that contains all positions."""
    if isinstance(positions, int):
        return positions, positions + 1
    if not positions:
        return 0, 0
    return min(positions[0], positions[-1]), max(positions[0], positions[-1]) + 1


def _get_index_within(positions: range | int, enclosing: tuple[int, int]) -> slice | int:
    """Return the index of the positions relative to the start of the enclosing range."""
    if isinstance(positions, int):
        return 0
    return slice(None, None, positions.step) if positions else slice(0, 0)


class ArraySources:
    """Finds the stored variable that a Dask array reads, by the name of the array."""

    def __init__(self, opened: Sequence[OpenedStore]) -> None:
        self._stored = {
            name: variable for store in opened for name, variable in store.stored_variables.items()
        }

    def find_stored(self, variable: xr.Variable) -> StoredVariable | None:
        """Return the stored variable behind a variable; None if it was modified since opening."""
        return self._stored.get(getattr(variable.data, "name", ""))

    def concatenate(
        self,
        result: xr.Dataset,
        datasets: Sequence[xr.Dataset],
        dim: Hashable,
        dtypes: dict[Hashable, np.dtype[Any]],
    ) -> xr.Dataset:
        """Return a concatenated data set whose arrays read several stores in one task.

        ``result`` is xarray's concatenation of ``datasets`` along ``dim``; its arrays are
        replaced, except those of variables that were reindexed. ``dtypes`` has the dtypes of the
        result that differ from those of the stores.
        """
        result = result.copy(deep=False)
        for name, variable in result.variables.items():
            pieces = self._find_all(name, datasets)
            if name in result.indexes or dim not in variable.dims or pieces is None:
                continue
            stacked = dim not in pieces[0].variable.dims
            dims = tuple(d for d in variable.dims if d != dim) if stacked else variable.dims
            dtype = dtypes.get(name, variable.dtype)
            if any(
                piece.variable.dims != dims or piece.dtype != pieces[0].dtype for piece in pieces
            ):
                continue
            source = ConcatenatedArray(pieces, variable.dims.index(dim), stacked, dtype)
            if source.shape == variable.shape and (name in dtypes or dtype == pieces[0].dtype):
                variable.data = _make_concatenated_array(source)
        return result

    def _find_all(
        self, name: Hashable, datasets: Sequence[xr.Dataset]
    ) -> list[StoredVariable] | None:
        """Return the stored variable of each data set; None if one lacks it or has modified it."""
        variables = []
        for dataset in datasets:
            has_variable = name in dataset.variables
            stored = self.find_stored(dataset.variables[name]) if has_variable else None
            if stored is None:
                return None
            variables.append(stored)
        return variables


def _make_concatenated_array(source: ConcatenatedArray) -> da.Array:
    """Return a Dask array in equal chunks; several small stores share a chunk."""
    first = source.pieces[0].variable
    stored = first.encoding.get("preferred_chunks", {})
    chunks = [stored.get(dim, size) for dim, size in first.sizes.items()]
    stored_length = 1 if source.stacked else chunks.pop(source.axis)
    row_bytes = math.prod(chunks) * source.dtype.itemsize
    joint_length = choose_joint_chunk_length(source.lengths, stored_length, row_bytes)
    chunks.insert(source.axis, joint_length)
    return make_dask_array(source, tuple(chunks))
