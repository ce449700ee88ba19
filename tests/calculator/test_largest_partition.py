"""Size of the largest partition of files and collections."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from hyperplane.calculator.largest_partition import measure_largest_partition
from hyperplane.objectstore.gzip_sizes import read_gzip_size
from hyperplane.objectstore.listing import find_files

LINES = "123456789,text of a row that repeats\n" * 30_000


def test_the_size_of_a_gzip_file_is_the_one_that_it_ends_with(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("a,b\n" + LINES)
    with gzip.open(tmp_path / "one.csv.gz", "wt") as file:
        file.write("a,b\n" + LINES)
    plain, _ = measure_largest_partition(tmp_path / "plain.csv")
    packed, how = measure_largest_partition(tmp_path / "one.csv.gz")
    assert plain
    assert packed
    assert abs(packed - plain) < 0.02 * plain
    assert "uncompressed sizes at the ends" in how
    many = [tmp_path / f"{number}.csv.gz" for number in range(3)]
    for copy in many:
        copy.write_bytes((tmp_path / "one.csv.gz").read_bytes())
    joined, how = measure_largest_partition(many)
    assert joined
    assert abs(joined - 3 * packed) < 0.02 * joined


@pytest.mark.parametrize("kind", ["an empty last member", "equal members", "more than 4 GB"])
def test_the_size_of_other_compressed_files_is_an_estimate(kind: str, tmp_path: Path) -> None:
    lines = "".join(f"{number * 7919 % 10007},{number}\n" for number in range(50_000))
    content = gzip.compress(b"a,b\n" + lines.encode())
    assert len(content) > 65_536  # the first member does not end in the beginning
    if kind == "an empty last member":  # as in files of bgzip
        content += gzip.compress(b"")
    elif kind == "equal members":
        content += content
    else:
        content = content[:-4] + (1000).to_bytes(4, "little")
    (tmp_path / "other.csv.gz").write_bytes(content)
    [file] = find_files(tmp_path / "other.csv.gz")
    assert read_gzip_size(file) is None
    if kind != "more than 4 GB":  # the size is checked at the end of the file
        size, how = measure_largest_partition(tmp_path / "other.csv.gz")
        assert size
        assert "about, if the files compress 5 to 1" in how


def test_the_largest_chunk_of_a_data_set_counts() -> None:
    large, small = da.ones((1000, 500), chunks=(500, 500)), da.ones((1000,), chunks=10)
    data = xr.Dataset({"a": (("x", "y"), large), "b": (("x",), small), "c": (("x",), small + 0)})
    data["n"] = ("x", np.zeros(1000))
    assert measure_largest_partition(data) == (2_000_000, "chunks of 3 variables")
    assert measure_largest_partition(data["a"])[0] == 2_000_000
    size, how = measure_largest_partition(xr.Dataset({"n": ("x", np.zeros(3))}))
    assert (size, how) == (None, "the data set has no Dask arrays")


def test_the_sizes_of_delayed_partitions_are_unknown() -> None:
    def make() -> Any:
        raise AssertionError("computed")

    frame: Any = dd.from_delayed([dask.delayed(make)()], meta=pd.DataFrame({"a": [1.0]}))
    for each in (frame, frame + 1):
        size, how = measure_largest_partition(each)
        assert (size, how) == (None, "the sizes of partitions are known only when it runs")
