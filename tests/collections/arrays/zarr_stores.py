"""Helpers of the array tests: write and open stores, and a file system that counts reads."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from pathlib import Path
from typing import ClassVar

import fsspec
import numpy as np
import pandas as pd
import xarray as xr
from fsspec.asyn import AsyncFileSystem

FORMS = [(2, True), (2, False), (3, True), (3, False)]


def write(dataset, url, zarr_format=2, consolidated=True, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of texts and of consolidated Zarr 3
        dataset.to_zarr(
            url, mode="w", zarr_format=zarr_format, consolidated=consolidated, **options
        )
    return str(url)


def one_by_one(urls, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # metadata that is not consolidated
        return [xr.open_zarr(url, **options) for url in urls]


def month(number, variables=("rain", "wind"), days=6):
    """Return a block of a time series on a grid, like weather data."""
    rng = np.random.default_rng(number)
    time = pd.date_range("2020-01-01", periods=days, freq="D") + pd.Timedelta(days=days * number)
    data = {name: (("time", "y", "x"), rng.random((days, 3, 4))) for name in variables}
    grid = np.arange(12.0).reshape(3, 4)
    return xr.Dataset(
        data,
        coords={
            "time": time,
            "y": [0.0, 0.5, 1.0],
            "x": np.arange(4.0),
            "lat": (("y", "x"), grid),
            "level": 2,
        },
        attrs={"title": "weather"},
    )


class Watched(AsyncFileSystem):
    """Local files behind another protocol that counts reads and can delay them."""

    protocol = "watched"
    reads: ClassVar[Counter[str]] = Counter()
    delay = 0.0

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return "/" + str(path).removeprefix("watched://").strip("/")

    async def _cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        self.reads[path] += 1
        await asyncio.sleep(self.delay)
        return Path(path).read_bytes()[start:end]

    async def _info(self, path, **kwargs):
        path = Path(self._strip_protocol(path))
        size = path.stat().st_size
        kind = "directory" if path.is_dir() else "file"
        return {"name": str(path), "size": size, "type": kind}

    async def _ls(self, path, detail=True, **kwargs):
        children = sorted(Path(self._strip_protocol(path)).iterdir())
        entries = [await self._info(str(child)) for child in children]
        return entries if detail else [entry["name"] for entry in entries]


fsspec.register_implementation("watched", Watched, clobber=True)
