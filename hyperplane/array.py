"""Helpers for Dask arrays: open many Zarr stores as one data set, choose chunk sizes.

They require the extra ``array``: ``pip install 'hyperplane[array]'``.
"""

from __future__ import annotations

from hyperplane.collections.arrays.many import open_zarr_many
from hyperplane.collections.arrays.proposing import propose_chunks
from hyperplane.collections.arrays.rechunking import rechunk

__all__ = ["open_zarr_many", "propose_chunks", "rechunk"]


def __dir__() -> list[str]:
    return list(__all__)
