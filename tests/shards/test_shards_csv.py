"""Shares of CSV: concatenated, they equal what pandas reads, however the file is divided."""

from __future__ import annotations

import csv
import gzip
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from counting_store import fresh, read_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas_versions import read_csv
from scale import scaled

import hyperplane
from hyperplane import RequestError, shard_rows
from hyperplane.errors import ReadError
from hyperplane.formats import text_samples, text_shards
from hyperplane.formats.csv import record_starts

VALUES = {
    "whole": st.integers(-(2**62), 2**62),
    "gaps": st.none() | st.integers(-9, 9),
    "real": st.none() | st.floats(allow_nan=False),
    "text": st.none() | st.text(alphabet="aé中😀 ,;\"'\t", max_size=5).filter(str.strip),
    "lines": st.text(alphabet='ab\n",', max_size=9),
    "truth": st.booleans(),
}


def same(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    assert list(ours.columns) == list(theirs.columns)
    for name in ours:
        a = [None if pd.isna(value) else value for value in ours[name].tolist()]
        b = [None if pd.isna(value) else value for value in theirs[name].tolist()]
        assert a == b, name


def shares(url, n, **options):
    shares_read = [shard_rows(url, n, idx, **options) for idx in range(n)]
    for share in shares_read:
        assert share.dtypes.equals(shares_read[0].dtypes)
        assert share.index.equals(pd.RangeIndex(len(share)))
    return shares_read


def whole(url, n, **options):
    return pd.concat(shares(url, n, **options), ignore_index=True)


@settings(max_examples=scaled(10, 80), suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    n=st.integers(1, 14),
    newline=st.sampled_from(["\n", "\r\n"]),
    blank=st.booleans(),
    last=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    step=st.sampled_from([2, 1 << 16]),
    piece=st.sampled_from([3, 20, 1 << 25]),
)
def test_shares_of_any_file_equal_what_pandas_reads(
    tmp_path_factory, data, n, newline, blank, last, quoting, step, piece
):
    path = tmp_path_factory.mktemp("csv") / "one.csv"
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    row = st.fixed_dictionaries({name: VALUES[name] for name in names})
    frame = pd.DataFrame(data.draw(st.lists(row, max_size=10)), columns=names, dtype=object)
    text = frame.to_csv(index=False, lineterminator=newline, quoting=quoting)
    if blank:
        text += newline * 2 + text.partition(newline)[2] + newline
    text = text if last else text.rstrip("\r\n")
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_starts, "READ_BYTES", step)
        patch.setattr(text_shards, "PIECE_BYTES", piece)
        df = whole(path, n)
    assert df.dtypes.equals(shard_rows(path, 1, 0).dtypes)
    same(df.astype(object), read_csv(path).astype(object))


@pytest.mark.slow
@settings(max_examples=scaled(6, 30), suppress_health_check=list(HealthCheck))
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), n=st.integers(1, 9))
def test_several_files_are_one_table(tmp_path_factory, lengths, n):
    folder, start = tmp_path_factory.mktemp("csv"), 0
    for number, length in enumerate(lengths):
        rows = pd.DataFrame({"n": range(start, start + length), "s": 'a\n"b'})
        rows.to_csv(folder / f"part-{number}.csv", index=False)
        start += length
    for multiline in (None, True):
        df = whole(folder / "*.csv", n, multiline=multiline)
        assert df["n"].to_list() == list(range(start))
        assert set(df["s"]) <= {'a\n"b'}


@pytest.mark.parametrize("multiline", [None, True])
def test_a_share_may_begin_within_a_value_of_many_lines(tmp_path, multiline):
    path = tmp_path / "poems.csv"
    poem = 'roses, are "red"\n\nviolets,are,blue\n' * 200
    frame = pd.DataFrame({"n": range(30), "poem": [poem * (i % 3) + "end" for i in range(30)]})
    frame.to_csv(path, index=False)
    for n in (2, 7, 40):
        same(whole(path, n, multiline=multiline), read_csv(path))


def test_without_multiline_every_line_is_a_record(tmp_path):
    path = tmp_path / "inches.csv"
    path.write_text("".join(f'{n}" pipe,"{n}"" wide, long"\n' for n in range(1000)))
    df = whole(path, 5, names=["a", "b"], multiline=False, dtypes={"a": "str"})
    assert df["b"].to_list() == [f'{n}" wide, long' for n in range(1000)]


def test_shares_are_about_equal_bytes(tmp_path):
    pd.DataFrame({"n": range(10_000), "s": "word"}).to_csv(tmp_path / "a.csv", index=False)
    sizes = [len(share) for share in shares(tmp_path / "a.csv", 8)]
    assert sum(sizes) == 10_000
    assert max(sizes) < 1.2 * min(sizes)


def test_little_more_than_the_share_is_read(monkeypatch):
    store = fresh()
    monkeypatch.setattr(text_samples, "HEAD", 10_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 2_000)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": range(100_000), "s": rng.choice(["a\nb", "c", "d,e"], 100_000)})
    text = frame.to_csv(index=False).encode()
    store.pipe_file("/big.csv", text)
    shares_read = []
    for idx in range(8):
        share, nbytes, ranges = read_of(lambda idx=idx: shard_rows("tally://big.csv", 8, idx))
        shares_read.append(share)
        # The share, the samples, and two searches for a record.
        assert nbytes < len(text) / 8 + 14_000 + 2 * 2 * record_starts.READ_BYTES
        assert max(stop - start for start, stop in ranges) < len(text) / 8 + 1000
    same(pd.concat(shares_read, ignore_index=True), frame)


@pytest.mark.slow
def test_every_share_has_the_types_of_the_whole_table(tmp_path):
    path = tmp_path / "late.csv"
    rows = scaled(100, 500)
    path.write_text("a,b\n" + "1,\n" * rows + "2.5,x\n")
    shares_read = shares(path, rows + rows // 5)
    assert {str(share.dtypes["a"]) for share in shares_read} == {"float64"}
    assert {str(share.dtypes["b"]) for share in shares_read} == {"str"}
    assert sum(map(len, shares_read)) == rows + 1


@pytest.mark.parametrize("text", ["a,b\n", "a,b"])
def test_a_file_of_no_rows_has_columns(tmp_path, text):
    (tmp_path / "none.csv").write_text(text)
    for share in shares(tmp_path / "none.csv", 3):
        assert list(share.columns) == ["a", "b"]
        assert len(share) == 0


def test_columns_types_times_and_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t;x;y\n" + "".join(f"2024-01-0{n};{n};é\n" for n in range(1, 8)), "latin-1")
    options = {"separator": ";", "encoding": "latin-1", "parse_dates": ["t"]}
    df = whole(path, 3, columns=["y", "t", "x"], dtypes={"x": "int8"}, **options)
    assert list(df.columns) == ["y", "t", "x"]
    assert [str(kind) for kind in df.dtypes] == ["str", "datetime64[us]", "int8"]
    assert df["t"].dt.day.to_list() == df["x"].to_list() == list(range(1, 8))
    assert set(df["y"]) == {"é"}


def test_a_byte_order_mark_and_blank_lines_before_the_header_are_skipped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeff\n\r\nn,s\n1,a\n2,b\n3,c\n".encode())
    for n in (1, 2, 5):
        assert whole(path, n).to_dict("list") == {"n": [1, 2, 3], "s": ["a", "b", "c"]}


def test_compressed_files_are_not_divided(tmp_path):
    for number in range(5):
        text = "n\n" + "".join(f"{100 * number + row}\n" for row in range(100))
        (tmp_path / f"{number}.csv.gz").write_bytes(gzip.compress(text.encode()))
    shares_read = shares(tmp_path / "*.gz", 3)
    assert {len(share) % 100 for share in shares_read} == {0}
    assert min(map(len, shares_read)) > 0
    assert pd.concat(shares_read)["n"].to_list() == list(range(500))
    assert len(whole(tmp_path / "*.gz", 9)) == 500
    (tmp_path / "5.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(500, 900)))
    assert whole(tmp_path / "*.csv*", 7)["n"].to_list() == list(range(900))


def test_a_single_compressed_file_is_refused(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"n\n1\n"))
    assert len(shard_rows(tmp_path / "a.csv.gz", 1, 0)) == 1
    with pytest.raises(RequestError, match="decompress it, or split it"):
        shard_rows(tmp_path / "a.csv.gz", 2, 0)


def test_a_wrong_boundary_is_an_error_that_multiline_avoids(tmp_path, monkeypatch):
    monkeypatch.setattr(record_starts, "READ_BYTES", 64)
    monkeypatch.setattr(record_starts, "MAX_LOOKAHEAD", 256)
    path = tmp_path / "nested.csv"
    inner = "7,8\n" * 2000  # a value that looks like rows, longer than the lookahead
    pd.DataFrame({"a": [1, 2, 3], "b": ["x", inner, "y"]}).to_csv(path, index=False)
    errors = 0
    for idx in range(4):
        with suppress(ReadError):
            shard_rows(path, 4, idx)
            continue
        with pytest.raises(ReadError, match="multiline=True"):
            shard_rows(path, 4, idx)
        errors += 1
    assert errors > 0
    same(whole(path, 4, multiline=True), pd.read_csv(path))


def test_the_environment_determines_the_share(tmp_path, monkeypatch):
    pd.DataFrame({"n": range(10)}).to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setenv("HYPERPLANE_SHARD_INDEX", "1")
    monkeypatch.setenv("HYPERPLANE_SHARD_COUNT", "2")
    first = shard_rows(tmp_path / "a.csv", 2, 0)
    second = shard_rows(tmp_path / "a.csv")
    assert [*first["n"], *second["n"]] == list(range(10))


def test_invalid_requests_are_refused(tmp_path):
    (tmp_path / "a.avro").write_bytes(b"Obj")
    with pytest.raises(RequestError, match="shard_files"):
        shard_rows(tmp_path / "a.avro", 2, 0)
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(RequestError, match=r"idx = 2: .*0 to 1"):
        shard_rows(tmp_path / "a.csv", 2, 2)
    with pytest.raises(RequestError) as raised:
        shard_rows(tmp_path / "a.csv", 0, -1)
    assert [fault.where for fault in raised.value.faults] == ["idx", "n_machines"]
    with pytest.raises(RequestError, match="separator"):
        shard_rows(tmp_path / "a.csv", 2, 0, separator="ab")
    assert hyperplane.shard_rows is shard_rows


def test_faults_of_files_name_the_argument_url(tmp_path):
    for name in ("empty.csv", "a.unknown", "a.jsonl"):
        (tmp_path / name).write_text("")
    for name in ("empty.csv", "a.unknown", "a.jsonl", "missing.csv"):
        with pytest.raises(RequestError) as raised:
            shard_rows(tmp_path / name, 2, 0)
        assert [fault.where for fault in raised.value.faults] == ["url"], name
