"""Inferred record boundaries of CSV equal those of a parser that reads from the beginning."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.formats import text_samples
from hyperplane.formats.csv import record_starts
from hyperplane.formats.csv.record_starts import RecordLayout, find_record_start
from hyperplane.objectstore import listing

VALUES = st.text(alphabet='ab,\n"\r', max_size=6)


@pytest.fixture
def make_file(tmp_path):
    def make(text: bytes):
        path = tmp_path / "one.csv"
        path.write_bytes(text)
        [file] = listing.find_files(path)
        return file

    return make


def starts(text: bytes) -> list[int]:
    """Return the next record start for each byte, the end of the text included."""
    offsets, within = [0], False
    for position, byte in enumerate(text):
        if byte == ord('"'):
            within = not within
        elif byte == ord("\n") and not within:
            offsets.append(position + 1)
    return sorted({*offsets, len(text)})


def unquoted(text: bytes, target: int) -> int:
    """Return the offset where the search begins: the target, or the end of quotes around it."""
    if text[target - 1] == ord('"'):
        while target < len(text) and text[target] == ord('"'):
            target += 1
    return target


def written(rows, newline, quoting, last):
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=newline, quoting=quoting).writerows(rows)
    text = out.getvalue().encode()
    return text if last else text.removesuffix(newline.encode())


@settings(max_examples=scaled(60, 300))
@given(
    width=st.integers(1, 3),
    data=st.data(),
    newline=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    last=st.booleans(),
    step=st.sampled_from([1, 2, 5, 1 << 16]),
)
def test_every_boundary_is_the_next_record_start(
    width, data, newline, quoting, last, step, tmp_path_factory
):
    rows = data.draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=8))
    text = written(rows, newline, quoting, last)
    path = tmp_path_factory.mktemp("cut") / "one.csv"
    path.write_bytes(text)
    if not text:
        return
    [file] = listing.find_files(path)
    true = starts(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_starts, "READ_BYTES", step)
        for target in range(1, len(text)):
            after = unquoted(text, target)
            expected = min(start for start in true if start > after or start == len(text))
            assert find_record_start(file, target, RecordLayout(width, ",")) == expected, (
                text,
                target,
            )


@settings(max_examples=scaled(20, 100))
@given(
    rows=st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=1, max_size=8),
    step=st.sampled_from([1, 3, 1 << 16]),
)
def test_counting_all_quotes_gives_the_same_boundaries(rows, step, tmp_path_factory):
    text = written(rows, "\n", csv.QUOTE_MINIMAL, last=True)
    path = tmp_path_factory.mktemp("cut") / "one.csv"
    path.write_bytes(text)
    [file] = listing.find_files(path)
    true = starts(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_samples, "STEP", step)
        for target in range(1, len(text)):
            start = next(text_samples.find_record_starts(file, 0, [target]), len(text))
            assert start == min(start for start in true if start > target or start == len(text))


@pytest.mark.parametrize(
    ("text", "within"),
    [
        (b'xab,"cd",e\n', False),  # can only begin a value
        (b'xab",c\nd,"e"\n', True),  # can only end one
        (b'xa""b\n', True),  # doubled within a value
        (b'x,""a\n', True),  # an empty value would end here
        (b'x,"""a",\n', False),  # begins a value with a quote
        (b'xb""",\n', True),  # ends one with a quote
        (b'x,",",",a\n",b\n', None),  # may be either, again and again
        (b"xab\ncd\n", None),
    ],
)
def test_one_run_of_quotes_determines_the_state(text, within):
    state = record_starts.infer_quote_state(text, False, RecordLayout(3, ","))
    assert (state.in_quotes if state else None) is within


def test_a_quote_in_a_value_without_quotes_is_text(make_file):
    text = b'5" pipe,1\n6" pipe,2\n7" pipe,3\n'
    cuts = [
        find_record_start(make_file(text), target, RecordLayout(2, ","))
        for target in range(1, len(text))
    ]
    assert set(cuts) <= {text.find(f'{n}"'.encode()) for n in (5, 6, 7)} | {len(text)}


def test_without_a_deciding_quote_the_number_of_values_per_line_decides(make_file, monkeypatch):
    monkeypatch.setattr(record_starts, "READ_BYTES", 16)
    monkeypatch.setattr(record_starts, "MAX_LOOKAHEAD", 64)
    rows = b"1,2\n" * 500
    assert find_record_start(make_file(rows), 42, RecordLayout(2, ",")) == 44
    poem = b'1,"' + b"a line\n" * 300 + b'"\n2,b\n'
    assert find_record_start(make_file(poem), 42, RecordLayout(2, ",")) == poem.index(b"2,b")
    empty = b'1,"",3\n' * 100
    assert find_record_start(make_file(empty), 43, RecordLayout(3, ",")) == 49


def test_few_bytes_are_read_where_there_are_no_quotes(make_file, monkeypatch):
    file = make_file(b"1,2\n" * 5_000_000)
    read = []
    read_range = type(file).read_range

    def counted(self, start, stop):
        read.append(stop - start)
        return read_range(self, start, stop)

    monkeypatch.setattr(type(file), "read_range", counted)
    assert find_record_start(file, 10_000_001, RecordLayout(2, ",")) == 10_000_004
    assert sum(read) <= record_starts.MAX_LOOKAHEAD
