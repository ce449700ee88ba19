"""Uncompressed size of files."""

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from measured_files import FRAME, ROWS, decoded_of, fault_of, frame_of, in_memory, size_of
from scale import combinations

from hyperplane.calculator.measure import measure_files
from hyperplane.formats import size_estimates
from hyperplane.formats.parquet import footer_size


class TestParquet:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "data"
        for number, day in enumerate(["day=1", "day=2"]):
            (folder / day).mkdir(parents=True)
            frame_of(2000, number).to_parquet(folder / day / "part-0.parquet", row_group_size=300)
        frame_of(1000, 7).to_parquet(folder / "part-9.parquet", compression=None)
        return folder

    @staticmethod
    def _parts(folder):
        return sorted(folder.rglob("part-*.parquet"))

    @pytest.mark.parametrize("name", ["a.parquet", "a.parq", "a.pq", "A.PARQUET"])
    def test_the_size_of_a_file_is_read_from_its_footer(self, tmp_path, name):
        FRAME.to_parquet(tmp_path / name, row_group_size=1000)
        size, how = measure_files(str(tmp_path / name))
        assert size == decoded_of(tmp_path / name) > (tmp_path / name).stat().st_size
        assert how.startswith("footers of 1 Parquet file, ")

    @pytest.mark.parametrize("ending", ["", "/"])
    def test_the_size_of_a_folder_includes_its_subfolders(self, folder, ending):
        size, how = measure_files(f"{folder}{ending}")
        assert size == decoded_of(*self._parts(folder))
        assert how.startswith("footers of 3 Parquet files, ")

    @pytest.mark.parametrize(
        ("pattern", "count"),
        [("*.parquet", 1), ("**/*.parquet", 3), ("day=*", 2), ("day=1/*", 1), ("day=[12]", 2)],
    )
    def test_the_size_of_a_glob_is_the_sum_of_its_files(self, folder, pattern, count):
        size, how = measure_files(f"{folder}/{pattern}")
        found = {
            "*.parquet": [folder / "part-9.parquet"],
            "**/*.parquet": self._parts(folder),
            "day=1/*": [folder / "day=1" / "part-0.parquet"],
        }.get(pattern, self._parts(folder)[:2])
        assert len(found) == count
        assert size == decoded_of(*found)
        assert how.startswith(f"footers of {count} Parquet file")

    def test_markers_and_temporary_folders_of_writers_are_ignored(self, folder):
        clean = size_of(folder)
        (folder / "_SUCCESS").touch()
        (folder / "_metadata").write_bytes(b"xxxx")
        (folder / ".part-0.parquet.crc").write_bytes(b"xxxx")
        for name in ("_delta_log", "_temporary", ".ipynb_checkpoints", "day=1/.tmp"):
            (folder / name).mkdir()
            (folder / name / "0.json").write_text("{}")
            FRAME.to_parquet(folder / name / "part-0.parquet")
        assert size_of(folder) == clean
        assert size_of(f"{folder}/*") == clean

    def test_files_below_a_hidden_folder_are_measured_if_it_is_named(self, tmp_path):
        place = tmp_path / ".cache" / "_work"
        place.mkdir(parents=True)
        FRAME.to_parquet(place / "a.parquet")
        assert size_of(place) == size_of(place / "a.parquet") == decoded_of(place / "a.parquet")

    def test_a_hidden_file_is_measured_if_it_is_named(self, tmp_path):
        FRAME.to_parquet(tmp_path / "_a.parquet")
        assert size_of(tmp_path / "_a.parquet") == decoded_of(tmp_path / "_a.parquet")

    def test_only_some_of_many_footers_are_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(footer_size, "SAMPLED_FOOTERS", 4)
        for number in range(20):
            frame_of(200 + 10 * number, number).to_parquet(tmp_path / f"{number:02}.parquet")
        size, how = measure_files(str(tmp_path))
        assert size == pytest.approx(decoded_of(*tmp_path.iterdir()), rel=0.05)
        assert how.startswith("footers of 4 Parquet files, ")

    def test_a_damaged_file_is_a_fault(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 but not really")
        fault = fault_of(tmp_path / "a.parquet")
        assert fault.allowed.startswith("readable files (")


NUMBERS = FRAME[["id", "x"]]
WORDS = pd.DataFrame({"text": ["the quick brown fox jumps over the lazy dog"] * ROWS})
WIDE = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (2000, 60))).add_prefix("c")
FRAMES = {"mixed": FRAME, "numbers": NUMBERS, "words": WORDS, "one": FRAME[["id"]], "wide": WIDE}


class TestText:
    """Estimates within 25 % of the memory that pandas uses for the same file."""

    @pytest.mark.parametrize(
        ("ending", "name"), combinations(["", ".gz", ".bz2", ".xz", ".zip"], FRAMES)
    )
    def test_csv_size_is_close_to_that_in_pandas(self, tmp_path, name, ending):
        path = tmp_path / f"a.csv{ending}"
        FRAMES[name].to_csv(path, index=False)
        size, how = measure_files(str(path))
        assert size == pytest.approx(in_memory(pd.read_csv(path)), rel=0.25)
        assert how.startswith("1 CSV file of ")
        assert how.endswith("(expansion of a sample)")

    @pytest.mark.parametrize(
        ("name", "compression"), combinations(FRAMES, [(".zst", "zstd"), (".lz4", "lz4")])
    )
    def test_csv_in_zstd_and_lz4(self, tmp_path, name, compression):
        ending, codec = compression
        text = FRAMES[name].to_csv(index=False).encode()
        (tmp_path / f"a.csv{ending}").write_bytes(pa.compress(text, codec, asbytes=True))
        expected = in_memory(pd.read_csv(io.BytesIO(text)))
        assert size_of(tmp_path / f"a.csv{ending}") == pytest.approx(expected, rel=0.25)

    @pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zip", ".zst", ".lz4"])
    def test_a_file_that_is_not_compressed_as_its_suffix_says_is_a_fault(self, tmp_path, ending):
        (tmp_path / f"a.csv{ending}").write_text("n\n1\n" * 100)
        assert "readable files (" in fault_of(tmp_path / f"a.csv{ending}").allowed

    @pytest.mark.parametrize("separator", ["\t", ";", "|"])
    def test_csv_with_other_separators(self, tmp_path, separator):
        path = tmp_path / "a.tsv"
        WIDE.to_csv(path, sep=separator, index=False)
        assert size_of(path) == pytest.approx(in_memory(WIDE), rel=0.25)

    @pytest.mark.parametrize(
        ("name", "ending"), combinations(FRAMES, ["jsonl", "ndjson", "json", "json.gz"])
    )
    def test_json_lines_size_is_close_to_that_in_pandas(self, tmp_path, name, ending):
        path = tmp_path / f"a.{ending}"
        FRAMES[name].to_json(path, orient="records", lines=True, date_format="iso")
        assert size_of(path) == pytest.approx(in_memory(pd.read_json(path, lines=True)), rel=0.25)

    @pytest.mark.parametrize(("rows", "indent"), combinations([10, 200, ROWS], [None, 2]))
    def test_a_json_array_of_any_length(self, tmp_path, rows, indent):
        path = tmp_path / "a.json"
        frame_of(rows).to_json(path, orient="records", indent=indent, date_format="iso")
        assert size_of(path) == pytest.approx(in_memory(pd.read_json(path)), rel=0.25)

    def test_a_json_array_whose_sample_ends_within_an_item(self, tmp_path, monkeypatch):
        monkeypatch.setattr(size_estimates, "SAMPLE", 10_000)
        items = [{"a": {"b": [1, {"c": "ü"}]}, "text": "]},{" * 20} for _ in range(500)]
        path = tmp_path / "a.json"
        path.write_text(json.dumps(items, ensure_ascii=False), encoding="utf-8")
        assert size_of(path) == pytest.approx(in_memory(pd.read_json(path)), rel=0.25)

    @pytest.mark.parametrize(
        ("ending", "buffer"), combinations(["gz", "bz2", "xz"], [8192, 131_072])
    )
    def test_highly_compressed_files_are_not_underestimated(
        self, tmp_path, monkeypatch, ending, buffer
    ):
        # Newer versions of Python read compressed files in blocks larger than this file.
        monkeypatch.setattr(io, "DEFAULT_BUFFER_SIZE", buffer)
        frame = pd.DataFrame({"id": [1_234_567] * 200_000, "name": ["alphabetagamma"] * 200_000})
        path = tmp_path / f"a.csv.{ending}"
        frame.to_csv(path, index=False)
        assert size_of(path) == pytest.approx(in_memory(frame), rel=0.25)

    @pytest.mark.parametrize("buffer", [8192, 131_072])
    def test_the_expansion_of_compressed_files_is_measured_on_the_sample(
        self, tmp_path, monkeypatch, buffer
    ):
        monkeypatch.setattr(io, "DEFAULT_BUFFER_SIZE", buffer)
        monkeypatch.setattr(size_estimates, "UNPACKED", 0)
        digits = np.random.default_rng(0).integers(0, 3, 300_000)
        frame = pd.DataFrame({"name": ["alphabetagamma"] * 300_000, "digit": digits})
        frame.to_csv(tmp_path / "a.csv.gz", index=False)
        assert size_of(tmp_path / "a.csv.gz") == pytest.approx(in_memory(frame), rel=0.25)

    def test_several_files_are_weighted_by_their_size(self, tmp_path):
        frames = [frame_of(rows, rows) for rows in (100, 4000, 500, 2000, 3000, 1000)]
        for number, frame in enumerate(frames):
            frame.to_csv(tmp_path / f"{number}.csv", index=False)
        read = [pd.read_csv(path) for path in tmp_path.iterdir()]
        assert size_of(tmp_path) == pytest.approx(sum(map(in_memory, read)), rel=0.25)

    def test_only_a_sample_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(size_estimates, "SAMPLE", 10_000)
        FRAME.to_csv(tmp_path / "a.csv", index=False)
        read, sizes = pd.read_csv, []

        def counting(file, **how):
            sizes.append(len(file.getvalue()))
            return read(file, **how)

        monkeypatch.setattr(pd, "read_csv", counting)
        assert size_of(tmp_path / "a.csv") > 0
        assert len(sizes) == 1
        assert 9_000 < sizes[0] <= 10_000

    def test_a_sample_ends_with_a_whole_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(size_estimates, "SAMPLE", 1000)
        (tmp_path / "a.csv").write_text("a,b\n" + "1,2222222222\n" * 500)
        frame = pd.read_csv(tmp_path / "a.csv")
        assert size_of(tmp_path / "a.csv") == pytest.approx(in_memory(frame), rel=0.25)

    def test_a_sample_may_end_inside_a_quoted_text(self, tmp_path):
        frame = pd.DataFrame(
            {"id": range(4000), "text": ["first, line\nand second\n\n" * 25] * 4000}
        )
        frame.to_csv(tmp_path / "a.csv", index=False)
        assert (tmp_path / "a.csv").stat().st_size > 2 * size_estimates.SAMPLE
        assert size_of(tmp_path / "a.csv") == pytest.approx(in_memory(frame), rel=0.25)

    @pytest.mark.parametrize("text", ["", "a,b\n"])
    def test_a_file_without_rows_has_a_small_size(self, tmp_path, text):
        (tmp_path / "a.csv").write_text(text)
        assert 0 <= size_of(tmp_path / "a.csv") < 1000

    def test_text_that_is_not_a_table_is_measured(self, tmp_path):
        (tmp_path / "a.txt").write_text("Call me Ishmael.\nSome years ago, never mind\n" * 400)
        assert size_of(tmp_path / "a.txt") > 10_000

    def test_text_that_cannot_be_decoded_is_a_fault(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"\xb5\xff\xfe\x00" * 100)
        assert fault_of(tmp_path / "a.csv").allowed.startswith("readable files (")
