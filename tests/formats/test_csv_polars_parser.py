"""Polars parses CSV as pyarrow does, or leaves it to pyarrow."""

from __future__ import annotations

from unittest import mock

import dask
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from csv_values import equal
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.dataframe import read
from hyperplane.errors import ReadError
from hyperplane.formats import partition_sizes, text_samples
from hyperplane.formats.csv import decoder, inference, polars_parser, quotes
from hyperplane.formats.csv.decoder import CsvDecoder, CsvDialect, parse_csv, to_arrow_type
from hyperplane.formats.csv.polars_parser import may_have_blanks, parse_records
from hyperplane.formats.csv.sample_types import ColumnValues, infer_types, parse_as_known

USUAL = {
    "Int64": ["0", "1", "-7", "42", "007", ""],
    "UInt64": ["0", "18446744073709551615", "01", ""],
    "Float64": ["1.5", "-0.0", "0.1", "1e300", "7", ""],
    "Boolean": ["True", "false", "TRUE", ""],
    "String": ["a", " a", "b ", '"a,b"', '"q""x"', '"two\nlines"', '"x\r\ny"', "\u00fc", ""],
}
#: Values that a parser may read otherwise than pandas, or that do not fit their column's type.
ODD = {
    "Int64": [
        *("+5", "-0", "  3", "4  ", " ", "\t", "NA", "nan", "null", '""', '"5"', '" 5"', '"NA"'),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "0x1f", "1.0"),
        *("1e3", "1_0", "--1", "\t7", "7\t", "-", "9007199254740993", "\u0661", "1\0", " NA"),
    ],
    "UInt64": ["18446744073709551616", "-1", "+1", "NA", " 1", "-0", " ", "0x1", "1.0"],
    "Float64": [
        *("5e-324", "1e400", "2.", ".5", "1E5", "inf", "-inf", "Infinity", "nan", "NaN", "-nan"),
        *("+1.5", " 3.5", "3.5 ", " ", "NA", "1e", "e5", ".", "1.5.2", "1d5", "0x1p3", "0x1f"),
        *('"1.5"', '""', "9007199254740993", "1e+5", "1.#QNAN", "infin", "1__0", "4,5", "- 5"),
        *("0.1000000000000000055511151231257827", "2.4703282292062327e-324", "1.5f", "\t7.5"),
    ],
    "Boolean": ["tRue", "1", "NA", " True", "True ", '"True"', '""', "yes", "nan", "T"],
    "String": [
        *('"x\ry"', "NA", "nan", '""', '"NA"', '"\n"', '""""', 'a""b', '""""""', "N", "NAN", " "),
        *("\0", "\ufeffx", "a\\", "x" * 40, f'"{"y" * 40}"', '",\n"', '"\n\n"', '5" long', "0x1f"),
    ],
}
ENDS = ["\n", "\n\n", "\r\n\r\n", "\r", "\n \n", "\n,\n", "\r\r\n", "\n\t\n", ""]


@st.composite
def records(draw, kinds=tuple(USUAL)):
    """Draw the types of a few columns, and rows of CSV with usual and odd values."""
    drawn = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4))
    separator = draw(st.sampled_from([",", ",", ";", "|", "\t"]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    with_odd_values = draw(st.integers(0, 2)) == 0
    text = ""
    for _ in range(draw(st.integers(1, 5))):
        values = [
            draw(st.sampled_from(USUAL[kind] + (ODD[kind] if with_odd_values else [])))
            for kind in drawn
        ]
        length = draw(st.sampled_from([0] * 20 + [1, -1]))
        values = [*values, "1"] if length > 0 else values[: len(values) + length]
        text += separator.join(values).replace(",", separator)
        text += draw(st.sampled_from(ENDS)) if draw(st.integers(0, 15)) == 0 else end
    copies = draw(st.sampled_from([1] * 9 + [3_000]))
    return drawn, separator, text.encode() * copies


def as_rows(frame):
    columns = [column.alias("values").to_frame() for column in frame.iter_columns()]
    return [repr(c.with_columns(pl.col(pl.Float64).fill_nan(None)).rows()) for c in columns]


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(300, 3_000))
@given(records())
def test_what_polars_parses_is_what_pyarrow_parses(case):
    drawn, separator, data = case
    names = ["^a$", "*", "a b", " "][: len(drawn)]
    kinds = {name: getattr(pl, kind)() for name, kind in zip(names, drawn, strict=True)}
    if not data.strip(b"\r\n") or not quotes.is_sound(data, separator.encode()):
        return
    records = parse_records(data, separator.encode(), kinds)
    if records is None:
        return
    ours = records.frame
    dialect = CsvDialect(tuple(kinds), separator, "utf-8", True)
    types = {name: to_arrow_type(kind) for name, kind in kinds.items()}
    try:
        expected = pl.DataFrame(pl.from_arrow(parse_csv(data, dialect, types)))
    except pa.ArrowInvalid as error:
        expected = str(error)
    if isinstance(expected, str):
        # pandas reads integers with a plus sign, too.
        assert "invalid value '+" in expected
        return
    assert ours.schema == expected.schema
    assert as_rows(ours) == as_rows(expected)


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(200, 2_000))
@given(
    st.lists(
        st.floats(allow_nan=False).map(repr)
        | st.from_regex(r"-?[0-9]{1,25}\.[0-9]{0,25}", fullmatch=True)
    )
)
def test_floats_with_any_digits_are_rounded_as_python_rounds(texts):
    data = "".join(f"{text},x\n" for text in [*texts, "1.5"]).encode()
    records = parse_records(data, b",", {"f": pl.Float64(), "s": pl.String()})
    assert records is not None
    for value, text in zip(records.frame["f"].to_list(), [*texts, "1.5"], strict=True):
        assert value.hex() == float(text).hex()


@given(st.text('1, \t"\nx', max_size=30), st.sampled_from([",", "\t"]))
def test_values_of_blanks_are_found_in_every_block(text, separator):
    data = text.encode()
    values = text.replace("\n", separator).replace('"', separator)
    blanks = " \t".replace(separator, "")
    found = any(value and not value.strip(blanks) for value in values.split(separator))
    for block in (1, 2, 7, 1 << 18):
        with mock.patch.object(polars_parser, "_BLOCK", block):
            assert may_have_blanks(data, separator.encode()) >= found, block


@pytest.mark.slow
@settings(deadline=None, max_examples=scaled(300, 3_000))
@given(records(("Int64", "Float64", "Boolean", "String")), st.integers(1, 4))
def test_types_of_samples_that_polars_parses_are_those_of_pyarrow(case, count):
    drawn, separator, data = case
    lines = data[:2_000].splitlines(keepends=True)
    step = -(-len(lines) // count)
    samples = [b"".join(lines[start : start + step]) for start in range(0, len(lines), step)]
    dialect = CsvDialect(tuple(f"c{n}" for n in range(len(drawn))), separator, "utf-8", True)
    try:
        first, *others = [infer_types(sample, dialect) for sample in samples]
    except pa.ArrowInvalid:
        return
    ours = parse_as_known([(sample, dialect) for sample in samples[1:]], dialect, first)
    if ours is None:
        return
    ours.add(first)
    expected = ColumnValues()
    for values in (first, *others):
        expected.add(values)
    for name in dialect.names:
        kinds = [inference.choose_type(v.categories[name], False) for v in (ours, expected)]
        assert kinds[0] == kinds[1], name
    # NaN is null for Polars. Whether there are missing values decides nothing for floats.
    floats = {
        name
        for name in dialect.names
        if inference.choose_type(expected.categories[name], False) == pl.Float64
    }
    assert ours.missing - floats == expected.missing - floats
    assert ours.text_bytes == expected.text_bytes


@pytest.mark.parametrize("row", [b"True,false\n", b"1,2.5\n", b"text,1\n", b"True,long text\n"])
def test_the_bytes_of_samples_are_those_of_arrow(row):
    dialect, sample = CsvDialect(("a", "b"), ",", "utf-8", True), row * 800
    expected = infer_types(sample, dialect)
    ours = parse_as_known([(sample, dialect)], dialect, expected)
    assert ours.nbytes == pytest.approx(expected.nbytes, rel=0.01)


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def by_pyarrow(monkeypatch):
    """Return a list with an entry for each partition that pyarrow decodes."""
    calls = []
    decode = CsvDecoder._decode_with_pyarrow

    def count_calls(*arguments):
        calls.append(1)
        return decode(*arguments)

    monkeypatch.setattr(CsvDecoder, "_decode_with_pyarrow", count_calls)
    return calls


PLAIN = {
    "numbers": "n,x\n1,1.5\n-2,\n,1e5\n",
    "CRLF": "n,x,s\r\n1,1.5,a\r\n2,,b\r\n",
    "line ends in quotes": 'n,s\n1,"a\nb, c"\n2,"d ""e"""\n3,\n',
    "byte order mark": "\ufeffn,s\n1,a\n2,b\n",
    "missing numbers": "n,s\nNA,a\n2,NA\nNA,null\n",
    "missing texts": 'n,s\n1,NA\n2,\n3,""\n4,"null"\n5,x\n',
    "booleans": "t,n\nTrue,1\nFALSE,2\n,3\n",
    "hexadecimal ids": "id,n\n0x1f,1\n7e5,2\n0012,3\n1e400,4\n",
    "large ids": "id,n\n9007199254740993,1\n9223372036854775807,2\n",
    "blanks before values": "n,x,s\n1, 2.5, a\n2, , b\n",
    "no line end at the end": "n,s\n1,a\n2,",
    "blank lines at the end": "n,s\n1,a\n2,\n\n\n",
    "dates": "d,n\n2024-02-29,1\n1969-12-31,\n",
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_files_equal_pandas_and_are_decoded_by_polars(tmp_path, by_pyarrow, name):
    (tmp_path / "a.csv").write_text(PLAIN[name], newline="")
    equal(read(tmp_path / "a.csv").compute(), pd.read_csv(tmp_path / "a.csv"))
    assert not by_pyarrow


@pytest.mark.parametrize(
    "text",
    [
        "n,s\n1,a\n\n2,b\n",
        "n,s\r\n1,a\r\n\r\n2,b\r\n",
        "n,s\n1,a\r2,b\n",
        'n,s\n1,5" long\n2,b\n',
        "n,x\n1,2.5 \n2,3.5\n",
        "n\n1\n\n2\n",
    ],
)
def test_what_polars_reads_otherwise_equals_pandas(tmp_path, by_pyarrow, text):
    (tmp_path / "a.csv").write_text(text, newline="")
    equal(read(tmp_path / "a.csv").compute(), pd.read_csv(tmp_path / "a.csv"))
    assert by_pyarrow


def write_late(path, header, usual, late):
    """Write a file whose last row is in no sample."""
    path.write_text(header + usual * 200 + late, newline="")


@pytest.fixture
def short(monkeypatch):
    """Sample only the first lines."""
    monkeypatch.setattr(text_samples, "HEAD", 100)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("header", "usual", "late", "message"),
    [
        ("n,s\n", "1,a\n", "2\n", r"Expected 2 columns, got 1.*"),
        ("n,x\n", "1,2.5\n", "2\n", r"Expected 2 columns, got 1.*"),
        ("n,s\n", "1,a\n", "2,b,c\n", "Expected 2 columns, got 3"),
        ("n,s\n", "1,a\n", "2,b,", "Expected 2 columns, got 3"),
        ("n,s\n", "1,a\n", "2,b,\n\n", "Expected 2 columns, got 3"),
        ("n,s,t\n", "1,a,\n", "2,b\n", "Expected 3 columns, got 2"),
        ("n,s,t\n", '1,"a,b",\n', '2,"c,d"\n', "Expected 3 columns, got 2"),
        ("n,s\n", "1,a\n", " ,b\n", "column 'n' holds '"),
        ("n,s\n", ",a\n1,b\n", " ,b\n", "column 'n' holds '"),
        ("n,x\n", "1,\n1,2.5\n", "2,\t\n", "column 'x' holds '"),
        ("n,s\n", "1,a\n", "0x1f,b\n", "column 'n' holds '0x1f'"),
        ("n,s\n", "1,a\n", "2.5,b\n", "column 'n' holds '2.5'"),
        ("n,s\n", "1,a\n", "1_000,b\n", "column 'n' holds '1_000'"),
        ("n,s\n", "1,a\n", "9223372036854775808,b\n", "column 'n' holds '9223372036854775808'"),
        ("x,s\n", "1.5,a\n", "9007199254740993,b\n", "float64 cannot represent exactly"),
        ("x,s\n", "1.5,a\n", "late,b\n", "column 'x' holds 'late'"),
        ("t,s\n", "True,a\n", "tRue,b\n", "column 't' holds 'tRue'"),
        ("t,s\n", "True,a\n", "1,b\n", "column 't' holds '1'"),
    ],
)
def test_late_rows_that_do_not_fit_are_errors_with_their_line(
    tmp_path, header, usual, late, message
):
    write_late(tmp_path / "a.csv", header, usual, late)
    lines = 2 + 200 * usual.count("\n")
    with pytest.raises(ReadError, match=rf"{message}|line {lines} of the file.*{message}") as found:
        read(tmp_path / "a.csv").compute()
    assert f"line {lines} of the file" in str(found.value)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("header", "usual", "late"),
    [
        ("n,s\n", "1,a\n", "NA,b\n"),
        ("n,s\n", "1,a\n", ",NA\n"),
        ("n,s\n", "1,a\n", '"7","NA"\n'),
        ("n,s\n", "1,a\n", "+7,+7\n"),
        ("x,s\n", "1.5,a\n", 'inf,"x\ny"\n'),
        ("x,s\n", "1.5,a\n", '-nan,"\ufeff"\n'),
        ("x,s\n", "1.5,a\n", '1e400,"""\n"""\n'),
        ("t,s\n", "True,a\n", 'NA,""\n'),
    ],
)
def test_late_values_that_fit_equal_pandas(tmp_path, header, usual, late):
    write_late(tmp_path / "a.csv", header, usual, late)
    equal(read(tmp_path / "a.csv", multiline=True).compute(), pd.read_csv(tmp_path / "a.csv"))


def test_types_that_change_in_later_partitions_equal_pandas(tmp_path, monkeypatch, by_pyarrow):
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    parts = [
        pd.DataFrame({"a": range(500), "b": 1.5, "c": "x", "d": True}),
        pd.DataFrame({"a": 2.5, "b": range(500), "c": "NA", "d": False}),
        pd.DataFrame({"a": None, "b": None, "c": None, "d": None}, index=range(500)),
        pd.DataFrame({"a": -1, "b": np.inf, "c": "7", "d": "text"}, index=range(500)),
    ]
    pd.concat(parts).to_csv(tmp_path / "a.csv", index=False)
    frame = read(tmp_path / "a.csv", partition_size="5kB")
    assert frame.npartitions > 4
    expected = pd.read_csv(tmp_path / "a.csv")
    expected["d"] = expected["d"].astype("str")
    equal(frame.compute().reset_index(drop=True), expected)
    assert not by_pyarrow


def test_samples_of_other_files_change_the_types(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "HEAD", 2_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 200)
    usual = "".join(f"{n},{n}.5,{n},text\n" for n in range(1_000))
    for number, late in enumerate(["1,1.5,1,a", "2,2.5,+3,b", "4.5,2,5,c", "7,8.5,9,", "1,1,x,d"]):
        (tmp_path / f"{number}.csv").write_text(f"i,f,m,s\n{usual}{late}\n")
    frame = read(tmp_path)
    assert frame.dtypes.astype(str).to_list() == ["float64", "float64", "str", "str"]
    files = [tmp_path / f"{number}.csv" for number in range(5)]
    expected = pd.concat([pd.read_csv(file, dtype={"m": "str"}) for file in files])
    expected["i"] = expected["i"].astype("float64")
    equal(frame.compute().reset_index(drop=True), expected.reset_index(drop=True))


@pytest.mark.parametrize("columns", [["n"], ["s", "n"], ["y", "x", "n"]])
def test_some_columns_are_read_in_the_requested_order(tmp_path, columns):
    (tmp_path / "a.csv").write_text('n,s,x,y\n1,"a,b",1.5,0x1\n,NA,,z\n3,c,2.5,""\n')
    expected = pd.read_csv(tmp_path / "a.csv", usecols=columns)[columns]
    equal(read(tmp_path / "a.csv", columns=columns).compute(), expected)


def test_columns_that_are_not_read_may_have_any_values(tmp_path, monkeypatch):
    monkeypatch.setattr(text_samples, "HEAD", 100)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    write_late(tmp_path / "a.csv", "n,x\n", "1,2\n", "3,late\n")
    assert read(tmp_path / "a.csv", columns=["n"]).n.sum().compute() == 203
    write_late(tmp_path / "a.csv", "n,x\n", "1,2\n", "3\n")
    with pytest.raises(ReadError, match="Expected 2 columns, got 1"):
        read(tmp_path / "a.csv", columns=["n"]).compute()


def test_large_blocks_with_line_ends_in_quotes_equal_pandas(tmp_path):
    rng = np.random.default_rng(3)
    size = scaled(30_000, 300_000)
    texts = np.array(["a", 'x\n"y", z\n', "NA", "\n" * 30, "w" * 300, ",", '"', "\r\n", "é"])
    frame = pd.DataFrame({"n": range(size), "s": texts[rng.integers(0, len(texts), size)]})
    frame["t"] = frame["s"].where(frame["n"] % 3 > 0)
    frame.to_csv(tmp_path / "a.csv", index=False)
    result = read(tmp_path / "a.csv", multiline=True).compute()
    equal(result.reset_index(drop=True), pd.read_csv(tmp_path / "a.csv"))


def test_pyarrow_decodes_what_the_caller_declares(tmp_path):
    (tmp_path / "a.csv").write_text("n,s\n1,a\n-,b\n")
    with mock.patch.object(decoder, "parse_records") as parse:
        result = read(tmp_path / "a.csv", na_values="-", dtypes={"n": "Int8"}).compute()
    assert not parse.called
    assert result.n.dtype == "Int8"
    assert result.n.count() == 1
