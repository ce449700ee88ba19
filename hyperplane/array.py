"""Helpers for Dask arrays: open many Zarr stores as one data set, choose and change chunks.

They require the extra ``array``: ``pip install 'hyperplane[array]'``.
"""

from __future__ import annotations

from hyperplane.collections.arrays.open_zarr_many import open_zarr_many
from hyperplane.collections.arrays.propose_chunks import propose_chunks
from hyperplane.collections.arrays.rechunk import rechunk

__all__ = ["open_zarr_many", "propose_chunks", "rechunk"]


def __dir__() -> list[str]:
    return list(__all__)
