"""Formats by file names, and compressed files."""

import bz2
import gzip
import io
import lzma
import zipfile

import pyarrow as pa
import pytest

from hyperplane import bag
from hyperplane.calculator.measure import measure_files
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats.suffixes import detect_common_format
from hyperplane.objectstore.file_names import (
    COMPRESSIONS,
    DAMAGE_ERRORS,
    decompress,
    detect_compression,
    suffix_of,
)
from hyperplane.objectstore.listing import find_files
from hyperplane.objectstore.locations import File, Store

TEXT = b"".join(b"%d,%d\n" % (n, n * 7919 % 1000) for n in range(50_000))


def zipped(data):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", data)
    return target.getvalue()


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    ".zip": zipped,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    ".lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
}


def files(*names):
    return [File(Store("file", "file:///", {}), f"/d/{name}", 1, "") for name in names]


@pytest.mark.parametrize(
    ("path", "suffix", "compression"),
    [
        ("a.csv", ".csv", ""),
        ("/d.x/A.CSV.GZ", ".csv", "gzip"),
        ("a.jsonl.zst", ".jsonl", "zstd"),
        ("a.tar.gz", ".tar", "gzip"),
        ("a.gz", "", "gzip"),
        ("/d.x/README", "", ""),
        ("https://host/a.csv.gz?signature=b.json", ".csv", "gzip"),
        ("/d/what?.csv.xz", ".csv", "xz"),
    ],
)
def test_suffix_and_compression_of_a_name(path, suffix, compression):
    assert (suffix_of(path), detect_compression(path)) == (suffix, compression)


def test_every_compression_has_an_example_here():
    assert set(PACK) == set(COMPRESSIONS)


@pytest.mark.parametrize("data", [TEXT, b""], ids=["text", "nothing"])
@pytest.mark.parametrize("ending", PACK)
def test_compressed_files_are_decompressed(tmp_path, ending, data):
    (tmp_path / f"a.csv{ending}").write_bytes(PACK[ending](data))
    [file] = find_files(tmp_path)
    with file.open() as opened:
        assert opened.read(10) == data[:10]
        assert opened.read() == data[10:]


@pytest.mark.parametrize("ending", PACK)
def test_a_truncated_file_raises_a_damage_error(ending):
    raw = io.BytesIO(PACK[ending](TEXT)[:-2000])
    with pytest.raises(DAMAGE_ERRORS), decompress(raw, COMPRESSIONS[ending]) as opened:
        opened.read()


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst", ".lz4"])
def test_concatenated_compressed_files_are_both_read(ending):
    raw = io.BytesIO(PACK[ending](b"a\n") + PACK[ending](b"b\n"))
    with decompress(raw, COMPRESSIONS[ending]) as opened:
        assert opened.read() == b"a\nb\n"


def test_an_uncompressed_file_is_returned_unchanged():
    raw = io.BytesIO(b"a")
    with decompress(raw, "") as opened:
        assert opened is raw


def archive(*entries):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as opened:
        for name in entries:
            opened.writestr(name, "" if name.endswith("/") else name)
    return target


@pytest.mark.parametrize(
    "entries",
    [("d/", "d/b.csv"), ("b.csv", "__MACOSX/._b.csv"), ("e/", "d/b.csv", "f/"), ("_b.csv",)],
)
def test_the_only_file_of_an_archive_is_read(entries):
    [only] = [name for name in entries if name.endswith("b.csv") and "MACOSX" not in name]
    with decompress(archive(*entries), "zip") as opened:
        assert opened.read() == only.encode()


@pytest.mark.parametrize(
    ("entries", "holds"),
    [
        (("a.csv", "b.csv"), r"holds 2 files \(a\.csv, b\.csv\), expected exactly one"),
        (tuple("abcd"), r"holds 4 files \(a, b, c, \.\.\.\)"),
        ((), "holds 0 files, expected"),
        (("d/",), "holds 0 files, expected"),
    ],
)
def test_an_archive_without_exactly_one_file_is_a_damage_error(tmp_path, entries, holds):
    (tmp_path / "a.csv.zip").write_bytes(archive(*entries).getvalue())
    [file] = find_files(tmp_path)
    assert zipfile.BadZipFile in DAMAGE_ERRORS
    with pytest.raises(zipfile.BadZipFile, match=holds), file.open():
        pass


def test_errors_name_an_unreadable_archive(tmp_path):
    path = tmp_path / "a.csv.zip"
    path.write_bytes(archive().getvalue())
    with pytest.raises(RequestError) as caught:
        measure_files(str(path))
    assert repr(str(path)) in str(caught.value)
    assert "BadZipFile: the archive holds 0 files" in str(caught.value)
    with pytest.raises(ReadError, match="BadZipFile: the archive holds 0 files") as read:
        bag.read_records(str(path), format="text").compute(scheduler="sync")
    assert read.value.url == str(path)


FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json"}


def test_suffixes_of_one_format_are_detected_in_any_case():
    assert detect_common_format(files("a.csv", "b.tsv.gz", "c.CSV"), FORMATS) == "csv"


def test_each_unknown_suffix_is_reported_once():
    with pytest.raises(RequestError) as caught:
        detect_common_format(files("a.csv", "b.x", "c.x", "README"), FORMATS, "or say it")
    assert [fault.asked for fault in caught.value.faults] == ["'/d/b.x'", "'/d/README'"]
    assert "one of .csv, .tsv, .json, also with .gz" in caught.value.faults[0].allowed
    assert caught.value.faults[0].advice == "or say it"


def test_files_of_several_formats_are_an_error_with_an_example_of_each():
    with pytest.raises(RequestError) as caught:
        detect_common_format(files("b.json", "a.csv", "c.csv"), FORMATS)
    [fault] = caught.value.faults
    assert fault.asked == "csv (/d/a.csv) and json (/d/b.json)"
    assert fault.allowed == "files of one format"
    assert "'*.json'" in fault.advice
