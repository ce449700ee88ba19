"""Lazily read variables of Zarr stores, whose read errors name the store."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import xarray as xr

from hyperplane.core.errors import HyperplaneError
from hyperplane.objectstore.redaction import describe_error


class StoredVariable:
    """Array-like of one unloaded variable of a store, for :func:`dask.array.from_array`.

    ``store`` is the store's name without secrets, and ``variable`` is lazy, as xarray reads and
    decodes it.
    """

    def __init__(self, store: str, name: str, variable: xr.Variable) -> None:
        self.store, self.name, self.variable = store, name, variable
        self.shape, self.dtype, self.ndim = variable.shape, variable.dtype, variable.ndim

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        try:
            values: np.ndarray[Any, Any] = self.variable[key].values
        except Exception as error:
            reason = describe_error(error)[:300]  # redacted: the error may quote a signed URL
            message = f"variable {self.name!r} of {self.store!r} cannot be read: {reason}"
            raise HyperplaneError(message) from error
        return values

    def load(self) -> xr.Variable:
        """Return the variable with all values loaded."""
        return xr.Variable(self.variable.dims, self[...])

    def to_dask(self) -> da.Array:
        """Return a Dask array in the chunks of the store."""
        stored = self.variable.encoding.get("preferred_chunks", {})
        sizes = dict(zip(self.variable.dims, self.shape, strict=True))
        return make_dask_array(self, tuple(stored.get(dim, size) for dim, size in sizes.items()))


def make_dask_array(source: Any, chunks: tuple[Any, ...]) -> da.Array:
    """Return a Dask array of a source, with a unique name because stores may be rewritten."""
    array: da.Array = da.from_array(
        source,
        chunks=chunks,
        name=f"zarr-{source.name}-{uuid4().hex}",
        meta=np.empty((0,) * source.ndim, source.dtype),
        fancy=False,
    )
    return array
