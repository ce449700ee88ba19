"""Regression tests of text files: lost rows, lost digits and other types."""

from __future__ import annotations

import gzip
import json
import time
from types import SimpleNamespace

import dask
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.errors import ReadError
from hyperplane.formats import partition_sizes, text_samples
from hyperplane.formats.csv import quotes
from hyperplane.formats.jsonl import decoder

LARGE = 2**63 + 5


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def stray(count, *numbers):
    lines = [f"{i},x{i}\n" for i in range(count)]
    for number in numbers:
        lines[number] = f'{number},"oops\n'
    return "a,b\n" + "".join(lines)


@pytest.mark.parametrize("multiline", [None, True, False])
@pytest.mark.parametrize("count", [100, 2_500, 20_000, 90_000])
def test_a_quote_that_is_not_closed_is_named(tmp_path, count, multiline):
    (tmp_path / "q.csv").write_text(stray(count, 9))
    with pytest.raises(
        ReadError, match=r"line 11 of the file has an opening quote.*'9,\"oops'"
    ) as caught:
        read(tmp_path / "q.csv", multiline=multiline).compute()
    assert caught.value.url == str(tmp_path / "q.csv")


def test_a_quote_that_is_not_closed_in_a_compressed_file(tmp_path):
    (tmp_path / "q.csv.gz").write_bytes(gzip.compress(stray(100_000, 90_000).encode()))
    with pytest.raises(ReadError, match=r"line 90002 of the file has an opening quote"):
        read(tmp_path / "q.csv.gz").compute()


@pytest.mark.parametrize("multiline", [None, True])
def test_two_unclosed_quotes_lose_no_rows(tmp_path, multiline):
    # pandas reads these rows as one long value.
    (tmp_path / "q.csv").write_text(stray(60_000, 30_000, 40_000))
    with pytest.raises(ReadError, match=r"line 30002 of the file has an opening quote"):
        read(tmp_path / "q.csv", multiline=multiline).compute()


def test_quotes_within_values_are_characters(tmp_path):
    (tmp_path / "q.csv").write_text('a,b\n5" pipe,1\n"6"" pipe",2\n"7"" x",a "b" c\n,"d\ne"\n')
    ours, theirs = read(tmp_path / "q.csv").compute(), pd.read_csv(tmp_path / "q.csv")
    assert ours.a.dropna().to_list() == theirs.a.dropna().to_list()
    assert ours.b.to_list() == theirs.b.to_list()


def test_stray_quotes_do_not_make_planning_slow(tmp_path):
    (tmp_path / "sound.csv").write_text(stray(100_000))
    (tmp_path / "a.csv").write_text(stray(100_000, 9))
    (tmp_path / "b.csv").write_text('a,"b\n' + stray(100_000, 9))
    (tmp_path / "c.csv").write_text(stray(100_000, *range(9, 100_000, 10)))
    begun = time.process_time()
    read(tmp_path / "sound.csv").compute()
    sound = time.process_time() - begun
    begun = time.process_time()
    read(tmp_path / "a.csv")
    for name in "bc":
        with pytest.raises(ReadError, match="has an opening quote"):
            read(tmp_path / f"{name}.csv").compute()
    # Searching the end again from each quote would take minutes for these three files.
    assert time.process_time() - begun < 30 * sound + 1


def test_a_file_whose_head_never_ends_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "HEAD", 1_000)
    monkeypatch.setattr(text_samples, "MAX_HEAD", 10_000)
    (tmp_path / "a.csv").write_text('a,"b\n' + "1,2\n" * 10_000)
    with pytest.raises(ReadError, match="its first 10000 bytes do not contain two complete lines"):
        read(tmp_path / "a.csv")


@settings(max_examples=scaled(30, 150), suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.lists(st.text(alphabet='ab",\n', max_size=5), min_size=2, max_size=2)),
    block=st.integers(1, 9),
)
def test_files_of_csv_writers_have_sound_quotes(monkeypatch, rows, block):
    monkeypatch.setattr(quotes, "BLOCK", block)
    text = pd.DataFrame(rows, columns=["a", "b"]).to_csv(index=False).encode()
    assert quotes.is_sound(text, b",")
    assert quotes.find_unclosed_quote(text, b",") is None
    ends = {text.find(b"\n") + 1} | {
        len(pd.DataFrame(rows[:n], columns=["a", "b"]).to_csv(index=False).encode())
        for n in range(len(rows) + 1)
    }
    for stop in range(len(text) + 1):
        assert quotes.find_last_line_end(text[:stop], b",") == max(
            [e for e in ends if e <= stop], default=0
        )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([LARGE, 1], "uint64"),
        ([1, 2], "int64"),
        ([LARGE, None, 1], "UInt64"),
        ([2**64, 1], "str"),
        ([LARGE, -1], "str"),
        ([LARGE, 1.5], "str"),
        ([2**60, 1.5], "float64"),
        ([1e30, 2], "float64"),
    ],
)
def test_integers_beyond_int64_keep_their_digits(tmp_path, values, kind):
    lines = ["" if value is None else str(value) for value in values]
    (tmp_path / "a.csv").write_text("id,n\n" + "".join(f"{line},1\n" for line in lines))
    df = read(tmp_path / "a.csv")
    assert str(df.dtypes.id) == str(df.compute().dtypes.id) == kind
    values_read = [str(value) for value in df.compute().id.dropna()]
    exact = [str(value) for value in values if value is not None]
    assert values_read == ([str(float(value)) for value in values] if kind == "float64" else exact)


def test_large_integers_in_one_of_several_files(tmp_path):
    for name, value in (("a", 7), ("b", LARGE)):
        (tmp_path / f"{name}.csv").write_text(f"id\n{value}\n")
    assert read(tmp_path).compute().id.to_list() == [7, LARGE]
    (tmp_path / "c.csv").write_text("id\n-7\n")
    assert read(tmp_path).compute().id.to_list() == ["7", str(LARGE), "-7"]


def test_large_integers_in_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"i": {LARGE}, "s": {2**64}}}\n{{"i": 1, "s": 2}}\n')
    df = read(tmp_path / "a.jsonl").compute()
    assert df.i.to_list() == [LARGE, 1]
    assert df.s.to_list() == [str(2**64), "2"]
    assert df.i.dtype == "uint64"


@pytest.mark.parametrize(
    ("value", "advice"), [(LARGE, "uint64"), (2**64, "str"), ("0x1F", "str"), ("2.5", "float64")]
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_error_of_a_late_value_suggests_a_suitable_type(
    tmp_path, monkeypatch, value, advice, suffix
):
    monkeypatch.setattr(text_samples, "HEAD", 2_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 100)
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        early, late = "1,0xa\n" * 1_000, f"{value},0xb\n"
        path.write_text("id,s\n" + early + late + early * 2)
    else:
        written = f'"{value}"' if str(value)[:2] == "0x" else value
        early, late = '{"id": 1, "s": "x"}\n' * 1_000, f'{{"id": {written}, "s": "x"}}\n'
        path.write_text(early + late + early * 2)
    with pytest.raises(ReadError, match=rf"'id' holds.*write dtypes={{'id': '{advice}'}}"):
        read(path).compute()
    ids = read(path, dtypes={"id": advice}).compute().id
    assert str(ids[1_000]) == str(value)
    assert len(ids) == 3_001


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_missing_values_in_integer_columns_are_an_error(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    csv, json = f"id,b\n{LARGE},true\n,\n", f'{{"id": {LARGE}, "b": true}}\n{{"b": null}}\n'
    path.write_text(csv if suffix == "csv" else json)
    line = 3 if suffix == "csv" else 2
    for name, dtype, advice in (("id", "uint64", "UInt64"), ("b", "bool", "boolean")):
        wrong = (
            rf"{name!r} has a missing value.* sets {dtype} \(line {line} .*{{'{name}': '{advice}'}}"
        )
        with pytest.raises(ReadError, match=wrong):
            read(path, dtypes={name: dtype}).compute()
        df = read(path, dtypes={name: advice}).compute()
        assert df.id.dropna().to_list() == [LARGE]


def test_one_invalid_line_of_many_is_found_with_few_parses(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    decoded = []

    def loads(line):
        decoded.append(line)
        return json.loads(line)

    line = '{"id": 1}\n'
    (tmp_path / "a.jsonl").write_text(line * 200_000 + '{"id": "x"}\n' + line * 100_000)
    frame = read(tmp_path / "a.jsonl")
    monkeypatch.setattr(decoder, "json", SimpleNamespace(loads=loads, dumps=json.dumps))
    with pytest.raises(ReadError, match=r"holds 'x'.*line 200001 of"):
        frame.compute()
    lines = b"".join(decoded).count(b"id")  # one by one, or many at once
    assert 0 < lines <= decoder.PIECE // len(line) + 2


def test_pieces_parsed_by_pyarrow_or_python_have_the_same_columns(tmp_path, monkeypatch):
    # Pieces that pyarrow parses and pieces that it rejects have the same columns.
    monkeypatch.setattr(decoder, "PIECE", 300)
    values = [0.5 + i for i in range(400)]
    values[200], values[201] = 2**60, None
    lines = [json.dumps({"x": x, "l": [x, 1.5], "o": {"x": x}}) for x in values]
    lines[30:30] = ["", "  "]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    df = read(tmp_path / "a.jsonl").compute()
    values_read = [None if pd.isna(x) else x for x in df.x]
    assert values_read == values
    assert [list(inner) for inner in df.l] == [[x, 1.5] for x in values]
    assert list(df.o) == [{"x": x} for x in values]


def test_nested_integers_keep_their_digits(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "HEAD", 400)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    for value in ([2**53 + 1], {"a": 2**53 + 1}):
        early = json.dumps({"v": [1.5] if isinstance(value, list) else {"a": 1.5}}) + "\n"
        (tmp_path / "a.jsonl").write_text(early * 100 + json.dumps({"v": value}) + "\n")
        with pytest.raises(ReadError, match=r"'v' holds .*9007199254740993.*line 101 "):
            read(tmp_path / "a.jsonl").compute()


def test_an_unpaired_surrogate_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"s": "x"}\n{"s": "\\ud800"}\n')
    with pytest.raises(ReadError, match=r"column 's': .*surrogates"):
        read(tmp_path / "a.jsonl").compute()


def test_hexadecimal_text_stays_text(tmp_path):
    (tmp_path / "a.csv").write_text("h,g,n\n0x1F,2,1\n17,0X2,2\n")
    ours, theirs = read(tmp_path / "a.csv").compute(), pd.read_csv(tmp_path / "a.csv")
    assert ours.to_dict("list") == theirs.to_dict("list")
    with pytest.raises(ReadError, match=r"'h' holds '0x1F', but dtypes sets int64"):
        read(tmp_path / "a.csv", dtypes={"h": "int64"}).compute()


def test_an_error_of_a_declared_type_does_not_name_the_sample(tmp_path):
    (tmp_path / "a.csv").write_text("carrier\nUA\n")
    (tmp_path / "a.jsonl").write_text('{"carrier": "UA"}\n')
    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(ReadError, match=r"(?i)'UA', but dtypes sets int64"):
            read(tmp_path / name, dtypes={"carrier": "int64"}).compute()


def test_the_line_of_a_short_row_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 200_000 + "1\n" + "1,2\n" * 200_000)
    wrong = (
        r"line 200002 of the file: Expected 2 columns, got 1: '1'; correct the line, "
        r".*on_error=\"skip\""
    )
    df = read(tmp_path / "a.csv", partition_size="1MB")
    assert df.npartitions > 3
    with pytest.raises(ReadError, match=wrong):
        df.compute()
