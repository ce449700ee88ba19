"""What every file format promises to `read`, `shard_rows` and `size_cluster`.

The class of each format is a subclass that writes files of that format.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dask
import fsspec
import numpy as np
import pandas as pd
import pytest
from scale import scaled

from hyperplane import shard_rows
from hyperplane.calculator.measure import measure_files
from hyperplane.dataframe import read
from hyperplane.errors import ReadError, RequestError, SkippedFile
from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead, SupportsRowShards, SupportsSize

ROWS = 3000


#: Files of formats by class, number of rows and first row, each written once.
_WRITTEN: dict[tuple[type, int, int], bytes] = {}


def make_frame(rows: int = ROWS, first: int = 0) -> pd.DataFrame:
    """Return a frame with values and missing ones; ``n`` counts its rows."""
    return _make_frame(rows, first).copy()


@cache
def _make_frame(rows: int, first: int) -> pd.DataFrame:
    n = np.arange(first, first + rows)
    return pd.DataFrame(
        {
            "n": n,
            "x": pd.Series(np.where(n % 7, n / 8, np.nan), dtype="float64"),
            "s": pd.Series([None if i % 11 == 0 else f"text {i}" for i in n], dtype="str"),
            "b": n % 2 == 0,
        }
    )


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with one dtype for each kind of value, to compare values."""
    dtypes = {"n": "Int64", "x": "Float64", "s": "str", "b": "boolean"}
    known = {name: dtype for name, dtype in dtypes.items() if name in frame.columns}
    return frame.astype(known).reset_index(drop=True)


def assert_same(actual: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Check that two frames have the same columns and values, in order."""
    pd.testing.assert_frame_equal(plain(actual), plain(expected))


class ReadContract:
    """Promises of a format; subclasses have the name, the suffix and a writer."""

    #: Name of the format, and suffix of the files that ``write`` writes.
    name: str
    suffix: str
    #: Whether files have columns although they have no rows.
    has_columns_without_rows = True
    #: Whether the files of a data set may have different columns with schema="strict".
    columns_may_differ = False
    #: Whether the size of any bytes is estimated, because they are taken for text.
    takes_any_bytes = False
    #: Largest ratio of the estimated and the real size in memory.
    size_factor = 2.0
    #: Arguments of ``read`` for files whose suffix does not tell them.
    options_without_suffix: Mapping[str, Any] = MappingProxyType({})
    #: Bytes that are cut off a file to damage it.
    cut = 100

    def write(self, frame: pd.DataFrame, path: Path) -> None:
        """Write a file with a library other than hyperplane."""
        raise NotImplementedError

    def read_back(self, path: Path) -> pd.DataFrame:
        """Read a file with a library other than hyperplane."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _in_this_thread(self) -> Any:
        with dask.config.set(scheduler="sync"):
            yield

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return self.copy_file(tmp_path, "data")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Three files that have 3000 rows together."""
        for number in range(3):
            self.copy_file(tmp_path, f"part-{number}", 1000, 1000 * number)
        return tmp_path

    def copy_file(self, folder: Path, stem: str, rows: int = ROWS, first: int = 0) -> Path:
        """Make a file of rows of ``make_frame``, which is written once for all tests of a class."""
        key = (type(self), rows, first)
        if key not in _WRITTEN:
            written = self.make_file(folder, stem, make_frame(rows, first))
            _WRITTEN[key] = written.read_bytes()
        path = folder / f"{stem}{self.suffix}"
        path.write_bytes(_WRITTEN[key])
        return path

    def make_file(self, folder: Path, stem: str, frame: pd.DataFrame | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{stem}{self.suffix}"
        self.write(make_frame() if frame is None else frame, path)
        return path

    # The registry

    def test_is_registered_with_its_suffix(self) -> None:
        loaded = registry.load(self.name)
        assert loaded.name == self.name
        assert self.suffix in loaded.suffixes
        assert isinstance(loaded, SupportsRead)

    # read

    def test_read_returns_what_another_library_returns(self, file: Path) -> None:
        assert_same(read(file).compute(), self.read_back(file))
        assert_same(read(file).compute(), make_frame())

    def test_the_format_can_be_given_instead_of_the_suffix(self, file: Path) -> None:
        other = file.rename(file.with_suffix(".data"))
        with pytest.raises(RequestError, match=self.suffix):
            read(other)
        assert_same(
            read(other, format=self.name, **self.options_without_suffix).compute(), make_frame()
        )

    @pytest.mark.parametrize("size", ["5kB", "20kB", "1GB", None])
    def test_partitions_of_any_size_have_each_row_once(self, folder: Path, size: Any) -> None:
        frame = read(folder, partition_size=size)
        assert_same(frame.compute(), make_frame())
        meta = frame._meta.dtypes
        for number in range(frame.npartitions):
            assert frame.partitions[number].compute().dtypes.equals(meta)

    def test_a_small_partition_size_gives_several_partitions(self, folder: Path) -> None:
        assert read(folder).npartitions == 3
        assert read(folder, partition_size="1GB").npartitions == 1
        assert read(folder, partition_size="5kB").npartitions > 3

    def test_a_glob_reads_its_files_in_natural_order(self, tmp_path: Path) -> None:
        for number in (10, 2, 1):
            self.make_file(tmp_path, f"part-{number}", make_frame(10, number))
        frame = read(f"{tmp_path}/part-*{self.suffix}").compute()
        assert frame.n.tolist() == [*range(1, 11), *range(2, 12), *range(10, 20)]

    def test_columns_are_chosen_in_the_given_order(self, file: Path) -> None:
        frame = read(file, columns=["s", "n"])
        assert_same(frame.compute(), make_frame()[["s", "n"]])
        assert_same(frame[["n"]].compute(), make_frame()[["n"]])

    def test_an_unknown_column_is_named(self, file: Path) -> None:
        with pytest.raises(RequestError) as failed:
            read(file, columns=["n", "nn"])
        assert [(fault.where, fault.asked) for fault in failed.value.faults] == [
            ("columns", "'nn'")
        ]

    @pytest.mark.parametrize(
        ("filters", "query"),
        [
            ([("n", ">=", 1500)], "n >= 1500"),
            ([("n", "<", 10), ("b", "==", True)], "n < 10 and b"),
            ([[("n", "==", 5)], [("s", "==", "text 2999")]], "n == 5 or s == 'text 2999'"),
            ([("s", "is null")], "s.isna()"),
            ([("n", "<", 0)], "n < 0"),
        ],
    )
    def test_filters_select_rows(self, folder: Path, filters: Any, query: str) -> None:
        expected = make_frame().query(query)
        assert_same(read(folder, filters=filters).compute(), expected)
        assert_same(read(folder, columns=["x"], filters=filters).compute(), expected[["x"]])

    def test_a_file_without_rows(self, folder: Path) -> None:
        empty = self.make_file(folder, "part-1b", make_frame(0))
        assert_same(read(folder).compute(), make_frame())
        if self.has_columns_without_rows:
            frame = read(empty)
            assert list(frame.columns) == ["n", "x", "s", "b"]
            assert len(frame) == 0

    def test_a_file_that_lacks_a_column(self, tmp_path: Path) -> None:
        whole, part = make_frame(20), make_frame(20, 20).drop(columns="x")
        self.make_file(tmp_path, "a", whole)
        self.make_file(tmp_path, "b", part)
        assert_same(read(tmp_path, schema="union").compute(), pd.concat([whole, part]))
        if not self.columns_may_differ:
            with pytest.raises(RequestError, match="no such column"):
                read(tmp_path)

    def test_a_column_whose_type_differs(self, tmp_path: Path) -> None:
        self.make_file(tmp_path, "a", pd.DataFrame({"v": [1, 2, 3]}))
        self.make_file(tmp_path, "b", pd.DataFrame({"v": [0.5, 1.5]}))
        frame = read(tmp_path, schema="union").compute()
        assert frame.v.tolist() == [1.0, 2.0, 3.0, 0.5, 1.5]
        assert frame.v.dtype == "float64"

    def test_a_damaged_file_is_named(self, folder: Path) -> None:
        damaged = folder / f"part-1{self.suffix}"
        self.damage(damaged)
        with pytest.raises(ReadError, match="part-1") as failed:
            read(folder).compute()
        assert str(damaged) in failed.value.url

    def test_a_damaged_file_can_be_left_out(self, folder: Path) -> None:
        self.damage(folder / f"part-1{self.suffix}")
        with pytest.warns(SkippedFile, match="part-1"):
            frame = read(folder, on_error="skip").compute()
        expected = make_frame()
        assert_same(frame, expected[(expected.n < 1000) | (expected.n >= 2000)])

    def damage(self, path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: -self.cut])

    def test_hive_folders_are_columns(self, tmp_path: Path) -> None:
        for year in (2023, 2024):
            self.make_file(tmp_path / f"year={year}", "0", make_frame(10))
        frame = read(tmp_path, filters=[("year", ">", 2023)]).compute()
        assert frame.year.tolist() == [2024] * 10
        assert read(tmp_path).compute().year.tolist() == [2023] * 10 + [2024] * 10

    def test_files_of_another_store_have_the_same_rows(self, folder: Path) -> None:
        store = fsspec.filesystem("memory")
        try:
            for file in folder.iterdir():
                store.pipe(f"/contract/{file.name}", file.read_bytes())
            assert_same(read("memory://contract").compute(), make_frame())
            self.check_remote_shards("memory://contract")
        finally:
            store.rm("/contract", recursive=True)

    def test_files_of_the_same_path_in_two_stores(self, tmp_path: Path) -> None:
        urls = [self.pack(tmp_path, "one", make_frame(1000))]
        urls.append(self.pack(tmp_path, "two", make_frame(2000, 1000)))
        for size in (None, "1GB"):
            assert_same(read(urls, partition_size=size).compute(), make_frame())
        self.check_remote_shards(urls)

    def test_files_of_the_same_path_with_other_columns(self, tmp_path: Path) -> None:
        whole, part = make_frame(20), make_frame(20, 20)[["s", "b", "n"]]
        urls = [self.pack(tmp_path, "one", part), self.pack(tmp_path, "two", whole)]
        frame = read(urls, schema="union").compute()[list(whole.columns)]
        assert_same(frame, pd.concat([part, whole])[list(whole.columns)])

    def pack(self, folder: Path, name: str, frame: pd.DataFrame) -> str:
        """Return the URL of a file in a zip archive; the path in the archive is the same."""
        file = self.make_file(folder / name, "data", frame)
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.write(file, file.name)
        return f"zip://{file.name}::file://{folder / name}.zip"

    def check_remote_shards(self, url: str | list[str]) -> None:
        if isinstance(registry.load(self.name), SupportsRowShards):
            parts = [shard_rows(url, 2, index) for index in range(2)]
            assert_same(pd.concat(parts), make_frame())

    def test_partitions_are_pickled_and_have_tokens(self, folder: Path) -> None:
        frame = read(folder)
        assert_same(pickle.loads(pickle.dumps(frame)).compute(), make_frame())
        assert read(folder)._name == frame._name
        assert read(folder, columns=["n"])._name != frame._name
        self.make_file(folder, "part-1", make_frame(5))
        assert read(folder)._name != frame._name

    def test_an_option_of_another_format_is_refused(self, file: Path) -> None:
        loaded = registry.load(self.name)
        assert isinstance(loaded, SupportsRead)
        options = {"separator": ";", "na_values": "-", "dtypes": {"n": "float64"}}
        foreign = {key: value for key, value in options.items() if key not in loaded.read_options}
        if foreign:
            with pytest.raises(RequestError) as failed:
                read(file, **foreign)
            assert {fault.where for fault in failed.value.faults} == set(foreign)

    # shard_rows

    @pytest.mark.parametrize("count", scaled([1, 3, 7], range(1, 8)))
    def test_shards_have_each_row_once_in_order(self, folder: Path, count: int) -> None:
        self.check_shards(folder, count)

    @pytest.mark.parametrize("count", [2, 5])
    def test_shards_of_one_file(self, file: Path, count: int) -> None:
        self.check_shards(file, count)

    def check_shards(self, urls: Path, count: int) -> None:
        if not isinstance(registry.load(self.name), SupportsRowShards):
            with pytest.raises(RequestError, match="shard_files"):
                shard_rows(urls, count, 0)
            return
        parts = [shard_rows(urls, count, index) for index in range(count)]
        assert_same(pd.concat(parts), make_frame())
        dtypes = read(urls)._meta.dtypes
        for part in parts:
            assert part.dtypes.equals(dtypes)
            assert list(part.index) == list(range(len(part)))
            assert 0.5 < len(part) * count / ROWS < 2

    def test_more_shards_than_rows(self, tmp_path: Path) -> None:
        file = self.make_file(tmp_path, "few", make_frame(3))
        if isinstance(registry.load(self.name), SupportsRowShards):
            parts = [shard_rows(file, 8, index) for index in range(8)]
            assert_same(pd.concat(parts), make_frame(3))
            assert all(list(part.columns) == ["n", "x", "s", "b"] for part in parts)

    def test_shards_have_the_requested_columns(self, file: Path) -> None:
        if isinstance(registry.load(self.name), SupportsRowShards):
            parts = [shard_rows(file, 2, index, columns=["s", "n"]) for index in range(2)]
            assert_same(pd.concat(parts), make_frame()[["s", "n"]])

    # size_cluster

    def test_the_size_in_memory_is_estimated(self, folder: Path) -> None:
        if not isinstance(registry.load(self.name), SupportsSize):
            with pytest.raises(RequestError, match="size such as"):
                measure_files(str(folder))
            return
        size, how = measure_files(str(folder))
        real = int(make_frame().memory_usage(deep=True).sum())
        assert real / self.size_factor < size < real * self.size_factor
        assert "file" in how

    def test_a_damaged_file_has_no_size_estimate(self, tmp_path: Path) -> None:
        if isinstance(registry.load(self.name), SupportsSize) and not self.takes_any_bytes:
            (tmp_path / f"a{self.suffix}").write_bytes(b"\x00\xff no file of any format")
            with pytest.raises(RequestError) as failed:
                measure_files(str(tmp_path))
            assert "readable files" in failed.value.faults[0].allowed
