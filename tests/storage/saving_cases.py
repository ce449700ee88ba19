"""Fixtures of the tests of saving: locations of outputs, and rows."""

from __future__ import annotations

import dask
import fsspec
import numpy as np
import pandas as pd

from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage.commit_protocol import commit_protocol_for

#: For ``pytest.fixture(params=PLACES)(places)``.
PLACES = ["disk", "memory"]


def in_this_thread():
    """Compute in the thread of the test, and leave text dtypes as pandas infers them."""
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def places(request, tmp_path):
    """A folder with a difficult name, on local disk and on a store without renames."""
    if request.param == "disk":
        yield f"{tmp_path}/Flüge von heute"
        return
    yield "memory://tests/Flüge von heute"
    fsspec.filesystem("memory").store.clear()


def flights(rows=100, start=0):
    """Return rows with an index, categories, times with a zone, and missing values."""
    numbers = np.arange(start, start + rows)
    return pd.DataFrame(
        {
            "n": numbers,
            "carrier": pd.Categorical(np.array(["AA", "UA"])[numbers % 2], ["UA", "AA"]),
            "at": pd.date_range("2024-03-31", periods=rows, freq="h", tz="Europe/Berlin"),
            "delay": np.where(numbers % 7, numbers / 3, np.nan),
        },
        index=pd.Index(numbers * 2, name="key"),
    )


def parts_of(url):
    """Return the names of the files at a URL."""
    target = resolve_target(url, None)
    return sorted(commit_protocol_for(target).store_files.list_files(target.path))
