"""The uncompressed size of real files."""

import importlib
import io
import json

import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from hyperplane.errors import RequestError
from hyperplane.sizing import files
from hyperplane.sizing.files import measure_files
from hyperplane.sizing.footers import decoded

ROWS = 30_000


def _frame(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "name": random.choice(["alpha", "beta", "gamma"], rows),
            "x": random.normal(size=rows),
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), unit="s"),
        }
    )


FRAME = _frame()


def _in_memory(frame):
    return int(frame.memory_usage(deep=True).sum())


def _size(path):
    return measure_files(str(path))[0]


def _fault(path):
    with pytest.raises(RequestError) as caught:
        measure_files(str(path))
    [fault] = caught.value.faults
    assert fault.where == "data"
    return fault


def _decoded(*paths):
    """What the footers of Parquet files say, all of them."""
    return sum(decoded(pyarrow.parquet.read_metadata(path)) for path in paths)


class TestParquet:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "data"
        for number, day in enumerate(["day=1", "day=2"]):
            (folder / day).mkdir(parents=True)
            _frame(2000, number).to_parquet(folder / day / "part-0.parquet", row_group_size=300)
        _frame(1000, 7).to_parquet(folder / "part-9.parquet", compression=None)
        return folder

    @staticmethod
    def _parts(folder):
        return sorted(folder.rglob("part-*.parquet"))

    @pytest.mark.parametrize("name", ["a.parquet", "a.parq", "a.pq", "A.PARQUET"])
    def test_one_file_is_what_its_footer_says(self, tmp_path, name):
        FRAME.to_parquet(tmp_path / name, row_group_size=1000)
        size, how = measure_files(str(tmp_path / name))
        assert size == _decoded(tmp_path / name) > (tmp_path / name).stat().st_size
        assert how.startswith("footers of 1 Parquet file, ")

    @pytest.mark.parametrize("ending", ["", "/"])
    def test_a_folder_is_the_sum_of_all_in_it(self, folder, ending):
        size, how = measure_files(f"{folder}{ending}")
        assert size == _decoded(*self._parts(folder))
        assert how.startswith("footers of 3 Parquet files, ")

    @pytest.mark.parametrize(
        ("pattern", "count"),
        [("*.parquet", 1), ("**/*.parquet", 3), ("day=*", 2), ("day=1/*", 1), ("day=[12]", 2)],
    )
    def test_a_glob_is_the_sum_of_what_it_matches(self, folder, pattern, count):
        size, how = measure_files(f"{folder}/{pattern}")
        found = {
            "*.parquet": [folder / "part-9.parquet"],
            "**/*.parquet": self._parts(folder),
            "day=1/*": [folder / "day=1" / "part-0.parquet"],
        }.get(pattern, self._parts(folder)[:2])
        assert len(found) == count
        assert size == _decoded(*found)
        assert how.startswith(f"footers of {count} Parquet file")

    def test_what_the_writers_leave_behind_is_ignored(self, folder):
        clean = _size(folder)
        (folder / "_SUCCESS").touch()
        (folder / "_metadata").write_bytes(b"xxxx")
        (folder / ".part-0.parquet.crc").write_bytes(b"xxxx")
        for name in ("_delta_log", "_temporary", ".ipynb_checkpoints", "day=1/.tmp"):
            (folder / name).mkdir()
            (folder / name / "0.json").write_text("{}")
            FRAME.to_parquet(folder / name / "part-0.parquet")
        assert _size(folder) == clean
        assert _size(f"{folder}/*") == clean

    def test_data_below_a_hidden_folder_is_data(self, tmp_path):
        place = tmp_path / ".cache" / "_work"
        place.mkdir(parents=True)
        FRAME.to_parquet(place / "a.parquet")
        assert _size(place) == _size(place / "a.parquet") == _decoded(place / "a.parquet")

    def test_a_file_named_outright_is_never_hidden(self, tmp_path):
        FRAME.to_parquet(tmp_path / "_a.parquet")
        assert _size(tmp_path / "_a.parquet") == _decoded(tmp_path / "_a.parquet")

    def test_of_very_many_files_some_are_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "SAMPLED_FOOTERS", 4)
        for number in range(20):
            _frame(200 + 10 * number, number).to_parquet(tmp_path / f"{number:02}.parquet")
        size, how = measure_files(str(tmp_path))
        assert size == pytest.approx(_decoded(*tmp_path.iterdir()), rel=0.05)
        assert how.startswith("footers of 4 Parquet files, ")

    def test_a_broken_file_is_a_fault(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 but not really")
        fault = _fault(tmp_path / "a.parquet")
        assert fault.allowed.startswith("readable files (")


NUMBERS = FRAME[["id", "x"]]
WORDS = pd.DataFrame({"text": ["the quick brown fox jumps over the lazy dog"] * ROWS})
WIDE = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (2000, 60))).add_prefix("c")
FRAMES = {"mixed": FRAME, "numbers": NUMBERS, "words": WORDS, "one": FRAME[["id"]], "wide": WIDE}
each_frame = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


class TestText:
    """An estimate, within a quarter of what pandas needs for the same file."""

    @each_frame
    @pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zip"])
    def test_csv(self, tmp_path, frame, ending):
        path = tmp_path / f"a.csv{ending}"
        frame.to_csv(path, index=False)
        size, how = measure_files(str(path))
        assert size == pytest.approx(_in_memory(pd.read_csv(path)), rel=0.25)
        assert how.startswith("1 CSV file of ")
        assert how.endswith("(expansion of a sample)")

    @pytest.mark.parametrize("separator", ["\t", ";", "|"])
    def test_other_separators(self, tmp_path, separator):
        path = tmp_path / "a.tsv"
        WIDE.to_csv(path, sep=separator, index=False)
        assert _size(path) == pytest.approx(_in_memory(WIDE), rel=0.25)

    @each_frame
    @pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "json.gz"])
    def test_json_lines(self, tmp_path, frame, ending):
        path = tmp_path / f"a.{ending}"
        frame.to_json(path, orient="records", lines=True, date_format="iso")
        assert _size(path) == pytest.approx(_in_memory(pd.read_json(path, lines=True)), rel=0.25)

    @pytest.mark.parametrize("rows", [10, 200, ROWS])
    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_json_array_of_any_length(self, tmp_path, rows, indent):
        path = tmp_path / "a.json"
        _frame(rows).to_json(path, orient="records", indent=indent, date_format="iso")
        assert _size(path) == pytest.approx(_in_memory(pd.read_json(path)), rel=0.25)

    def test_a_json_array_of_nested_items_that_the_sample_cuts(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "SAMPLE", 10_000)
        items = [{"a": {"b": [1, {"c": "ü"}]}, "text": "]},{" * 20} for _ in range(500)]
        path = tmp_path / "a.json"
        path.write_text(json.dumps(items, ensure_ascii=False), encoding="utf-8")
        assert _size(path) == pytest.approx(_in_memory(pd.read_json(path)), rel=0.25)

    @pytest.mark.parametrize("buffer", [8192, 131_072])
    @pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
    def test_what_is_packed_tightly_is_not_underestimated(
        self, tmp_path, monkeypatch, ending, buffer
    ):
        # Newer Pythons read packed files in larger bites than all of this one has.
        monkeypatch.setattr(io, "DEFAULT_BUFFER_SIZE", buffer)
        frame = pd.DataFrame({"id": [1_234_567] * 200_000, "name": ["alphabetagamma"] * 200_000})
        path = tmp_path / f"a.csv.{ending}"
        frame.to_csv(path, index=False)
        assert _size(path) == pytest.approx(_in_memory(frame), rel=0.25)

    @pytest.mark.parametrize("buffer", [8192, 131_072])
    def test_what_is_packed_is_counted_as_far_as_it_was_read(self, tmp_path, monkeypatch, buffer):
        monkeypatch.setattr(io, "DEFAULT_BUFFER_SIZE", buffer)
        monkeypatch.setattr(files, "UNPACKED", 0)
        digits = np.random.default_rng(0).integers(0, 3, 300_000)
        frame = pd.DataFrame({"name": ["alphabetagamma"] * 300_000, "digit": digits})
        frame.to_csv(tmp_path / "a.csv.gz", index=False)
        assert _size(tmp_path / "a.csv.gz") == pytest.approx(_in_memory(frame), rel=0.25)

    def test_several_files_count_by_their_size(self, tmp_path):
        frames = [_frame(rows, rows) for rows in (100, 4000, 500, 2000, 3000, 1000)]
        for number, frame in enumerate(frames):
            frame.to_csv(tmp_path / f"{number}.csv", index=False)
        read = [pd.read_csv(path) for path in tmp_path.iterdir()]
        assert _size(tmp_path) == pytest.approx(sum(map(_in_memory, read)), rel=0.25)

    def test_only_a_sample_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "SAMPLE", 10_000)
        FRAME.to_csv(tmp_path / "a.csv", index=False)
        read, sizes = pd.read_csv, []

        def counting(file, **how):
            sizes.append(len(file.getvalue()))
            return read(file, **how)

        monkeypatch.setattr(pd, "read_csv", counting)
        assert _size(tmp_path / "a.csv") > 0
        assert len(sizes) == 1
        assert 9_000 < sizes[0] <= 10_000

    def test_a_sample_ends_with_a_whole_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "SAMPLE", 1000)
        (tmp_path / "a.csv").write_text("a,b\n" + "1,2222222222\n" * 500)
        frame = pd.read_csv(tmp_path / "a.csv")
        assert _size(tmp_path / "a.csv") == pytest.approx(_in_memory(frame), rel=0.25)

    def test_a_sample_may_end_inside_a_quoted_text(self, tmp_path):
        frame = pd.DataFrame(
            {"id": range(4000), "text": ["first, line\nand second\n\n" * 25] * 4000}
        )
        frame.to_csv(tmp_path / "a.csv", index=False)
        assert (tmp_path / "a.csv").stat().st_size > 2 * files.SAMPLE
        assert _size(tmp_path / "a.csv") == pytest.approx(_in_memory(frame), rel=0.25)

    @pytest.mark.parametrize("text", ["", "a,b\n"])
    def test_a_file_without_rows(self, tmp_path, text):
        (tmp_path / "a.csv").write_text(text)
        assert 0 <= _size(tmp_path / "a.csv") < 1000

    def test_text_that_is_no_table_is_measured_all_the_same(self, tmp_path):
        (tmp_path / "a.txt").write_text("Call me Ishmael.\nSome years ago, never mind\n" * 400)
        assert _size(tmp_path / "a.txt") > 10_000

    def test_text_that_cannot_be_decoded_is_a_fault(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"\xb5\xff\xfe\x00" * 100)
        assert _fault(tmp_path / "a.csv").allowed.startswith("readable files (")


class TestZarr:
    @pytest.fixture
    def zarr(self):
        return importlib.import_module("zarr")

    @pytest.mark.parametrize("version", [2, 3])
    def test_an_array_is_what_its_metadata_says(self, tmp_path, zarr, version):
        path = tmp_path / "a.zarr"
        array = zarr.create_array(
            str(path), shape=(1000, 30), chunks=(100, 30), dtype="f8", zarr_format=version
        )
        assert measure_files(str(path)) == (240_000, "metadata of 1 Zarr array, 240 kB")
        array[:] = 1.0
        assert _size(path) == 240_000

    @pytest.mark.parametrize("version", [2, 3])
    def test_a_group_is_the_sum_of_its_arrays_at_every_depth(self, tmp_path, zarr, version):
        path = tmp_path / "g.zarr"
        group = zarr.open_group(str(path), mode="w", zarr_format=version)
        group.create_array("a", shape=(10, 10), dtype="f4")
        group.create_group("s").create_group("t").create_array("b", shape=(7,), dtype="i8")
        assert measure_files(str(path)) == (456, "metadata of 2 Zarr arrays, 456 B")

    def test_a_dataset_of_xarray(self, tmp_path, zarr):
        xarray = importlib.import_module("xarray")
        data = xarray.Dataset({"t": (("y", "x"), np.ones((50, 40)))}, {"x": np.arange(40)})
        data.to_zarr(tmp_path / "d.zarr", consolidated=False)
        assert _size(tmp_path / "d.zarr") == data.nbytes

    def test_needs_no_ending(self, tmp_path, zarr):
        zarr.create_array(str(tmp_path / "weather"), shape=(10,), dtype="f8")
        assert _size(tmp_path / "weather") == 80


class TestPlaces:
    def test_a_url_of_another_store(self, tmp_path):
        FRAME.to_csv(tmp_path / "a.csv", index=False)
        local = _size(tmp_path / "a.csv")
        store = fsspec.filesystem("memory")
        store.pipe("/bucket/data/a.csv", (tmp_path / "a.csv").read_bytes())
        store.pipe("/bucket/data/_SUCCESS", b"")
        try:
            for url in ("memory://bucket/data/a.csv", "memory://bucket/data"):
                assert _size(url) == local
            assert _size("memory://bucket/*/*.csv") == local
        finally:
            store.rm("/bucket", recursive=True)

    def test_a_zarr_array_on_another_store(self):
        zarr = importlib.import_module("zarr")
        store = fsspec.filesystem("memory")
        try:
            zarr.create_array("memory://bucket/a.zarr", shape=(10, 10), dtype="f4")
            assert _size("memory://bucket/a.zarr") == 400
        finally:
            store.rm("/bucket", recursive=True)

    def test_a_file_url(self, tmp_path):
        FRAME.to_parquet(tmp_path / "a.parquet")
        assert _size(f"file://{tmp_path}/a.parquet") == _size(tmp_path / "a.parquet")

    def test_a_relative_path(self, tmp_path, monkeypatch):
        FRAME.to_parquet(tmp_path / "a.parquet")
        monkeypatch.chdir(tmp_path)
        assert _size("a.parquet") == _size(".") == _size("./*.parquet") == _decoded("a.parquet")


class TestFaults:
    @pytest.mark.parametrize("name", ["nothing.csv", "no/such/folder", "*.csv", "**/*.parquet"])
    def test_where_nothing_is(self, tmp_path, name):
        fault = _fault(tmp_path / name)
        assert fault.asked == repr(f"{tmp_path}/{name}")
        assert fault.allowed.endswith("where there are files; none were found")
        assert "a size such as '100GB'" in fault.allowed

    def test_an_empty_folder(self, tmp_path):
        assert _fault(tmp_path).allowed.endswith("none were found")

    def test_files_of_several_formats(self, tmp_path):
        (tmp_path / "a.csv").write_text("a\n1\n")
        (tmp_path / "a.json").write_text('{"a": 1}\n')
        fault = _fault(tmp_path)
        assert fault.allowed == "files of one format; here are csv and json"
        assert "*.csv" in fault.advice
        assert _size(tmp_path / "*.csv") > 0

    @pytest.mark.parametrize("name", ["a.xlsx", "README", "a.tar.gz", "part-00000"])
    def test_a_format_that_is_not_known(self, tmp_path, name):
        (tmp_path / name).write_bytes(b"x")
        fault = _fault(tmp_path / name)
        assert fault.asked == repr(str(tmp_path / name))
        for known in (".parquet", ".csv", ".jsonl", ".zarr", ".gz"):
            assert known in fault.allowed

    def test_a_protocol_that_is_not_known(self):
        assert "Protocol not known: nowhere" in _fault("nowhere://bucket/a.csv").allowed

    def test_a_protocol_whose_package_is_not_installed(self, monkeypatch):
        def absent(url):
            raise ImportError("Please install s3fs to access S3")

        monkeypatch.setattr(fsspec, "url_to_fs", absent)
        assert "Please install s3fs" in _fault("s3://bucket/a.csv").allowed
