"""Errors in rows of text files name the file and the line."""

from __future__ import annotations

import gzip
import re

import dask
import pytest

import hyperplane
from hyperplane.dataframe import read
from hyperplane.errors import ReadError
from hyperplane.formats import partition_sizes, text_errors, text_samples

ROWS = 4_000


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    monkeypatch.setattr(text_samples, "HEAD", 3_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 100)
    monkeypatch.setattr(text_samples, "SHORT_HEAD", 1_000)
    monkeypatch.setattr(text_errors, "STEP", 1_000)
    with dask.config.set(scheduler="sync"):
        yield


def rows(wrong, end="\n"):
    """Return rows with quoted line ends and blank lines, and the line of an invalid row."""
    lines = ["n,s,t"]
    for number in range(ROWS):
        if number == ROWS * 3 // 4:
            text = end.join(lines) + end
            line = text.count("\n") + 1
            lines.append(wrong)
        lines.append(
            f'{number},"two{end}lines",2024-01-01' if number % 3 else f"{number},a,2024-01-02"
        )
        if number % 5 == 0:
            lines.append("")
    return end.join(lines) + end, line


WRONG = {
    "value": ("x,a,2024-01-01", {}, "column 'n' holds 'x'"),
    "hexadecimal": ("0x1f,a,2024-01-01", {"dtypes": {"n": "int64"}}, "column 'n' holds '0x1f'"),
    "missing": (",a,2024-01-01", {"dtypes": {"n": "int64"}}, "column 'n' has a missing value"),
    "long": ("1,a,2024-01-01,9", {}, "Expected 3 columns, got 4"),
    "short": ('1,"a\nb"', {}, "Expected 3 columns, got 2"),
    "time": ("1,a,noon", {"parse_dates": ["t"]}, "column 't' holds 'noon'"),
    "format": ("1,a,noon", {"parse_dates": {"t": "%Y-%m-%d"}}, "column 't' holds 'noon'"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_csv(tmp_path, kind, end):
    wrong, options, message = WRONG[kind]
    text, line = rows(wrong, end)
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode())
    for parts in (1, 7):
        frame = read(file, partition_size=len(text) // parts, multiline=True, **options)
        assert frame.npartitions >= parts
        with pytest.raises(ReadError, match=rf"{message}|line {line} .*{message}") as raised:
            frame.compute()
        assert str(raised.value).startswith(str(file))
        assert re.findall(r"line (\d+)", str(raised.value)) == [str(line)]
    with pytest.raises(ReadError, match=rf"\bline {line} of the file"):
        hyperplane.shard_rows(file, 2, 1, **options)


def test_an_error_in_compressed_csv_names_the_line(tmp_path):
    text, line = rows("x,a,2024-01-01")
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ReadError, match=rf"holds 'x'.*\(line {line} of the file\)"):
        read(file).compute()


def test_text_in_another_encoding_is_an_error_that_names_the_line(tmp_path):
    text, line = rows("1,\xfc,2024-01-01")
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(
        ReadError, match=rf"'s': invalid UTF8.*\(line {line} of the file\).*latin-1"
    ):
        read(file, multiline=True).compute()


@pytest.mark.parametrize("wrong", ['{"n": "x"}', '{"n": 1', "[1]", '{"m": 1}'])
def test_an_error_in_json_lines_names_the_line(tmp_path, wrong):
    lines = ['{"n": 1}', "", '{"n": 2}'] * 1_000
    lines.insert(2_500, wrong)
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(lines))
    for size in ("1MB", 4_000):
        frame = read(file, partition_size=size)
        with pytest.raises(ReadError, match=r"\bline 2501 of the file"):
            frame.compute()


def test_an_invalid_line_in_a_later_sample_is_named(tmp_path):
    lines = ['{"n": 1}'] * 3_000
    lines[-2] = "no"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        ReadError, match=r"line 2999 of the file is not JSON.*; correct the line, or .*on_error"
    ):
        read(tmp_path / "a.jsonl")


def test_far_from_the_beginning_the_byte_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(text_errors, "MAX_LOCAL_COUNT", 2_000)
    text, _ = rows("x,a,2024-01-01")
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ReadError, match=r"holds 'x'.*\(line \d+ after byte \d+\)"):
        read(tmp_path / "a.csv", partition_size=10_000, multiline=True).compute()
