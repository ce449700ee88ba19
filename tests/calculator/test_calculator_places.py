"""Measuring data in stores, archives and folders, and invalid locations."""

import importlib
import shutil

import fsspec
import numpy as np
import pytest
from measured_files import FRAME, decoded_of, fault_of, size_of

from hyperplane.calculator.measure import measure_files
from hyperplane.errors import RequestError


class TestZarr:
    @pytest.fixture
    def zarr(self):
        return importlib.import_module("zarr")

    @pytest.mark.parametrize("version", [2, 3])
    def test_the_size_of_an_array_is_read_from_its_metadata(self, tmp_path, zarr, version):
        path = tmp_path / "a.zarr"
        array = zarr.create_array(
            str(path), shape=(1000, 30), chunks=(100, 30), dtype="f8", zarr_format=version
        )
        assert measure_files(str(path)) == (240_000, "metadata of 1 Zarr array, 240 kB")
        array[:] = 1.0
        assert size_of(path) == 240_000

    @pytest.mark.parametrize("version", [2, 3])
    def test_the_size_of_a_group_includes_nested_groups(self, tmp_path, zarr, version):
        path = tmp_path / "g.zarr"
        group = zarr.open_group(str(path), mode="w", zarr_format=version)
        group.create_array("a", shape=(10, 10), dtype="f4")
        group.create_group("s").create_group("t").create_array("b", shape=(7,), dtype="i8")
        assert measure_files(str(path)) == (456, "metadata of 2 Zarr arrays, 456 B")

    def test_the_size_of_a_saved_xarray_dataset_is_its_nbytes(self, tmp_path, zarr):
        xarray = importlib.import_module("xarray")
        data = xarray.Dataset({"t": (("y", "x"), np.ones((50, 40)))}, {"x": np.arange(40)})
        data.to_zarr(tmp_path / "d.zarr", consolidated=False)
        assert size_of(tmp_path / "d.zarr") == data.nbytes

    def test_globs_and_lists_of_stores_are_the_sum_of_their_arrays(self, tmp_path, zarr):
        for number, version in enumerate((2, 3, 3)):
            group = zarr.open_group(f"{tmp_path}/{number}.zarr", mode="w", zarr_format=version)
            group.create_array("a", shape=(10, number + 1), dtype="f4")
        expected = (240, "metadata of 3 Zarr arrays, 240 B")
        assert measure_files(str(tmp_path / "*.zarr")) == expected
        assert measure_files(f"file://{tmp_path}/[0-2].zarr") == expected
        stores = [f"{tmp_path}/{number}.zarr" for number in range(3)]
        assert measure_files(stores) == expected
        (tmp_path / "a.csv").write_text("n\n1\n")
        with pytest.raises(RequestError, match="which is Zarr"):
            measure_files([*stores, f"{tmp_path}/a.csv"])
        fault = fault_of(tmp_path / "*")
        assert fault.asked == f"'{tmp_path}/0.zarr', which is Zarr, and '{tmp_path}/a.csv'"
        assert "*.zarr" in fault.advice

    def test_a_store_in_a_zip_archive_is_measured(self, tmp_path, zarr):
        zarr.create_array(str(tmp_path / "a.zarr"), shape=(10, 10), dtype="f4")
        shutil.make_archive(tmp_path / "b.zarr", "zip", tmp_path / "a.zarr")
        assert size_of(tmp_path / "b.zarr.zip") == 400
        (tmp_path / "c.zarr").write_bytes(b"no archive")
        assert "BadZipFile" in fault_of(tmp_path / "c.zarr").allowed

    def test_a_store_without_the_suffix_zarr_is_measured(self, tmp_path, zarr):
        zarr.create_array(str(tmp_path / "weather"), shape=(10,), dtype="f8")
        assert size_of(tmp_path / "weather") == 80


class TestPlaces:
    def test_files_on_another_store_are_measured(self, tmp_path):
        FRAME.to_csv(tmp_path / "a.csv", index=False)
        local = size_of(tmp_path / "a.csv")
        store = fsspec.filesystem("memory")
        store.pipe("/bucket/data/a.csv", (tmp_path / "a.csv").read_bytes())
        store.pipe("/bucket/data/_SUCCESS", b"")
        try:
            for url in ("memory://bucket/data/a.csv", "memory://bucket/data"):
                assert size_of(url) == local
            assert size_of("memory://bucket/*/*.csv") == local
        finally:
            store.rm("/bucket", recursive=True)

    def test_zarr_arrays_on_another_store_are_measured(self):
        zarr = importlib.import_module("zarr")
        store = fsspec.filesystem("memory")
        try:
            zarr.create_array("memory://bucket/a.zarr", shape=(10, 10), dtype="f4")
            zarr.create_array("memory://bucket/b.zarr", shape=(10, 20), dtype="f4")
            assert size_of("memory://bucket/a.zarr") == 400
            assert size_of("memory://bucket/*.zarr") == 1200
        finally:
            store.rm("/bucket", recursive=True)

    def test_a_file_url_has_the_size_of_its_path(self, tmp_path):
        FRAME.to_parquet(tmp_path / "a.parquet")
        assert size_of(f"file://{tmp_path}/a.parquet") == size_of(tmp_path / "a.parquet")

    def test_relative_paths_are_measured(self, tmp_path, monkeypatch):
        FRAME.to_parquet(tmp_path / "a.parquet")
        monkeypatch.chdir(tmp_path)
        assert (
            size_of("a.parquet")
            == size_of(".")
            == size_of("./*.parquet")
            == decoded_of("a.parquet")
        )


class TestFaults:
    @pytest.mark.parametrize("name", ["nothing.csv", "no/such/folder", "*.csv", "**/*.parquet"])
    def test_a_missing_path_is_a_fault(self, tmp_path, name):
        fault = fault_of(tmp_path / name)
        assert fault.asked == repr(f"{tmp_path}/{name}")
        assert fault.allowed.endswith("none were found")
        assert "a size such as '100GB'" in fault.allowed

    def test_an_empty_folder_is_a_fault(self, tmp_path):
        assert fault_of(tmp_path).allowed.endswith("none were found")

    def test_files_of_several_formats_are_a_fault(self, tmp_path):
        (tmp_path / "a.csv").write_text("a\n1\n")
        (tmp_path / "a.json").write_text('{"a": 1}\n')
        fault = fault_of(tmp_path)
        assert fault.asked == f"csv ({tmp_path}/a.csv) and jsonl ({tmp_path}/a.json)"
        assert fault.allowed.endswith("files of one format")
        assert "*.csv" in fault.advice
        assert size_of(tmp_path / "*.csv") > 0

    @pytest.mark.parametrize("name", ["a.xlsx", "README", "a.tar.gz", "part-00000"])
    def test_an_unknown_format_is_a_fault_that_lists_known_suffixes(self, tmp_path, name):
        (tmp_path / name).write_bytes(b"x")
        fault = fault_of(tmp_path / name)
        assert fault.asked == repr(str(tmp_path / name))
        for known in (".parquet", ".csv", ".jsonl", ".zarr", ".gz"):
            assert known in fault.allowed

    def test_secrets_of_a_url_are_not_shown(self):
        store = fsspec.filesystem("memory")
        store.pipe("/me:secret@host/a.parquet", b"PAR1 but not really")
        try:
            assert "secret" not in str(fault_of("memory://me:secret@host/a.parquet"))
            assert "secret" not in str(fault_of("memory://me:secret@host/b.parquet"))
        finally:
            store.rm("/me:secret@host", recursive=True)

    def test_an_unknown_protocol_is_a_fault(self):
        assert "Protocol not known: nowhere" in fault_of("nowhere://bucket/a.csv").allowed

    def test_a_missing_package_of_a_protocol_is_named(self, monkeypatch):
        def absent(url):
            raise ImportError("Please install s3fs to access S3")

        monkeypatch.setattr(fsspec, "url_to_fs", absent)
        assert "Please install s3fs" in fault_of("s3://bucket/a.csv").allowed
