"""Arrays of several stores, one after the other along a dimension, read together by one task."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import xarray as xr

from hyperplane.collections.arrays.chunking import joined_length
from hyperplane.collections.arrays.opening import THREADS, Opened


@functools.cache
def _readers() -> ThreadPoolExecutor:
    """Threads of this process that wait for stores, so that one task can wait for many."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="zarr-stores")


class Joined:
    """Lazy variables one after the other along an axis, as something Dask can cut chunks from.

    Parameters
    ----------
    pieces : sequence of xarray.Variable
        Not loaded, and of equal shape but along the axis.
    axis : int
        The axis along which they follow each other.
    stacked : bool
        Whether the pieces do not have that axis, and each is one position of it.
    dtype : numpy.dtype
        The type of what is read.
    """

    def __init__(
        self, pieces: Sequence[xr.Variable], axis: int, stacked: bool, dtype: np.dtype[Any]
    ) -> None:
        self.pieces, self.axis, self.stacked, self.dtype = tuple(pieces), axis, stacked, dtype
        self.lengths = [1 if stacked else piece.shape[axis] for piece in pieces]
        self.starts = [0, *accumulate(self.lengths)]
        after = axis if stacked else axis + 1
        first = pieces[0].shape
        self.shape = (*first[:axis], self.starts[-1], *first[after:])
        self.ndim = len(self.shape)

    def __getitem__(self, key: tuple[slice | int, ...]) -> Any:
        wanted = [range(size)[part] for size, part in zip(self.shape, key, strict=True)]
        hulls = [_hull(part) for part in wanted]
        first, last = hulls[self.axis]
        read = np.empty([stop - start for start, stop in hulls], self.dtype)

        def fill(number: int) -> None:
            offset = self.starts[number]
            start, stop = max(offset, first), min(self.starts[number + 1], last)
            inside = [slice(*hull) for hull in hulls]
            outside = [slice(None)] * self.ndim
            inside[self.axis] = slice(start - offset, stop - offset)
            outside[self.axis] = slice(start - first, stop - first)
            if self.stacked:
                del inside[self.axis]
            values = self.pieces[number][tuple(inside)].values
            if self.stacked:
                values = np.expand_dims(values, self.axis)
            read[tuple(outside)] = values

        touched = [
            number
            for number, (start, stop) in enumerate(pairwise(self.starts))
            if max(start, first) < min(stop, last)
        ]
        if len(touched) == 1:
            fill(touched[0])
        else:
            list(_readers().map(fill, touched))
        return read[tuple(_within(part, hull) for part, hull in zip(wanted, hulls, strict=True))]


def _hull(wanted: range | int) -> tuple[int, int]:
    """The smallest span that holds all wanted positions."""
    if isinstance(wanted, int):
        return wanted, wanted + 1
    return (min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]) + 1) if wanted else (0, 0)


def _within(wanted: range | int, hull: tuple[int, int]) -> slice | int:
    """The wanted positions, counted from the beginning of their hull."""
    if isinstance(wanted, int):
        return 0
    return slice(None, None, wanted.step) if wanted else slice(0, 0)


class Pieces:
    """Which lazy variable of a store stands behind which Dask array.

    Parameters
    ----------
    opened : sequence of Opened
        The stores.
    """

    def __init__(self, opened: Sequence[Opened]) -> None:
        self._lazy = {
            variable.data.name: one.lazy.variables[name]
            for one in opened
            for name, variable in one.data.variables.items()
            if name not in one.lazy.indexes
        }

    def lazy(self, variable: xr.Variable) -> xr.Variable | None:
        """The variable of a store behind one of Dask arrays; None if that was changed since."""
        return self._lazy.get(getattr(variable.data, "name", ""))

    def join(
        self,
        result: xr.Dataset,
        datasets: Sequence[xr.Dataset],
        dim: Hashable,
        dtypes: dict[Hashable, np.dtype[Any]],
    ) -> xr.Dataset:
        """A concatenated data set whose arrays read several stores in one task.

        Parameters
        ----------
        result : xarray.Dataset
            What xarray made of the data sets; its arrays tell what is to be there.
        datasets : sequence of xarray.Dataset
            What it was made of. A variable that was reindexed stays as it is.
        dim : hashable
            The dimension along which they follow each other.
        dtypes : dict
            Types to read as, where they are not those of the stores.

        Returns
        -------
        xarray.Dataset
        """
        result = result.copy(deep=False)
        for name, variable in result.variables.items():
            pieces = self._of(name, datasets)
            if name in result.indexes or dim not in variable.dims or pieces is None:
                continue
            stacked = dim not in pieces[0].dims
            dims = tuple(d for d in variable.dims if d != dim) if stacked else variable.dims
            dtype = dtypes.get(name, variable.dtype)
            if any(piece.dims != dims or piece.dtype != pieces[0].dtype for piece in pieces):
                continue
            source = Joined(pieces, variable.dims.index(dim), stacked, dtype)
            if source.shape == variable.shape and (name in dtypes or dtype == pieces[0].dtype):
                variable.data = _array(name, source)
        return result

    def _of(self, name: Hashable, datasets: Sequence[xr.Dataset]) -> list[xr.Variable] | None:
        """The variable of every data set as its store has it; None if one of them differs."""
        found = []
        for one in datasets:
            lazy = self.lazy(one.variables[name]) if name in one.variables else None
            if lazy is None:
                return None
            found.append(lazy)
        return found


def _array(name: Hashable, source: Joined) -> da.Array:
    """A Dask array of what is joined, in equal chunks that hold several small stores."""
    stored = dict(source.pieces[0].encoding.get("preferred_chunks", {}))
    dims = list(source.pieces[0].dims)
    chunks = [stored.get(dim, size) for dim, size in zip(dims, source.pieces[0].shape, strict=True)]
    along = 1 if source.stacked else chunks[source.axis]
    rest = chunks if source.stacked else chunks[: source.axis] + chunks[source.axis + 1 :]
    row = math.prod(rest) * source.dtype.itemsize
    rest.insert(source.axis, joined_length(source.lengths, along, row))
    array: da.Array = da.from_array(
        source,
        chunks=tuple(rest),
        name=f"zarr-{name}-{uuid4().hex}",
        meta=np.empty((0,) * source.ndim, source.dtype),
        fancy=False,
    )
    return array
