"""CSV: the same values as pandas reads, however files are divided."""

from __future__ import annotations

import gzip
import math

import dask
import numpy as np
import pandas as pd
import pandas_versions
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale import scaled

from hyperplane.collections.frames.read import read
from hyperplane.demo.data import _find_archive
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats import partition_sizes, text_samples

VALUES = {
    "whole": st.integers(-(2**62), 2**62),
    "gaps": st.none() | st.integers(-9, 9),
    "real": st.none() | st.floats(allow_nan=False),
    # pandas skips lines of spaces only.
    "text": st.none() | st.text(alphabet="aé中😀 ,;\"'\t", max_size=5).filter(str.strip),
    "lines": st.text(alphabet='ab\n"', max_size=4),
    "truth": st.booleans(),
}


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def same(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    assert list(ours.columns) == list(theirs.columns)
    for name in ours:
        a = [None if pd.isna(value) else value for value in ours[name].tolist()]
        b = [None if pd.isna(value) else value for value in theirs[name].tolist()]
        assert a == b, name


@settings(max_examples=scaled(10, 50), suppress_health_check=list(HealthCheck))
@given(data=st.data(), files=st.integers(1, 4), parts=st.sampled_from([1, 2, 7]))
def test_any_files_equal_pandas(tmp_path_factory, monkeypatch, data, files, parts):
    folder = tmp_path_factory.mktemp("csv")
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    row = st.fixed_dictionaries({name: VALUES[name] for name in names})
    frames = []
    for number in range(files):
        rows = data.draw(st.lists(row, max_size=12))
        frames.append(pd.DataFrame(rows, columns=names, dtype=object))
        frames[-1].to_csv(folder / f"{number}.csv", index=False)
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    size = max(1, sum(len(frame) for frame in frames) * 8 * len(names) // parts)
    df = read(folder, partition_size=size)
    ours = df.compute()
    assert ours.dtypes.equals(df.dtypes)
    pieces = [pandas_versions.read_csv(folder / f"{number}.csv") for number in range(files)]
    theirs = pd.concat([p.astype(object) for p in pieces], ignore_index=True)
    same(ours, theirs)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_large_file_is_divided_between_lines(tmp_path, monkeypatch, newline):
    frame = pd.DataFrame(
        {"n": range(20_000), "s": ["ä" * (i % 9) for i in range(20_000)], "x": 0.25}
    )
    frame.to_csv(tmp_path / "large.csv", index=False, lineterminator=newline)
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    df = read(tmp_path / "large.csv", partition_size="20kB")
    assert df.npartitions > 20
    same(df.compute(), pd.read_csv(tmp_path / "large.csv"))
    lengths = [len(part) for part in dask.compute(*df.to_delayed())]
    assert min(lengths) > 0
    only = read(tmp_path / "large.csv", ["x"], [("n", ">=", 19_990)], partition_size="20kB")
    assert only.compute().x.to_list() == [0.25] * 10


def broken_lines(path, rows=5_000):
    frame = pd.DataFrame(
        {"n": range(rows), "s": ['a\nb,"c"\n' if i % 3 else "d" for i in range(rows)]}
    )
    frame.to_csv(path, index=False)
    return frame


def test_quoted_line_ends_are_detected_in_samples(tmp_path, monkeypatch):
    frame = broken_lines(tmp_path / "a.csv")
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    df = read(tmp_path / "a.csv", partition_size="10kB")
    assert df.npartitions > 5
    same(df.compute(), frame)


def test_quoted_line_ends_outside_samples_are_an_error(tmp_path, monkeypatch):
    head = pd.DataFrame({"n": range(5_000), "s": "plain"})
    pd.concat([head, broken_lines(tmp_path / "a.csv"), head]).to_csv(
        tmp_path / "a.csv", index=False
    )
    monkeypatch.setattr(partition_sizes, "MIN_PARTITION_SIZE", 1)
    for name, size in (("HEAD", 2_000), ("EXCERPT", 200)):
        monkeypatch.setattr(text_samples, name, size)
    right = wrong = 0
    sizes = range(5_000, 15_000, scaled(1_000, 500))
    for size in sizes:
        df = read(tmp_path / "a.csv", partition_size=size)
        try:
            assert len(df.compute()) == 15_000
            right += 1
        except ReadError as error:
            wrong += "multiline=True" in str(error) or "columns" in str(error)
    assert wrong
    assert right + wrong == len(sizes)
    assert len(read(tmp_path / "a.csv", partition_size=5_000, multiline=True).compute()) == 15_000


@pytest.mark.slow
def test_the_flights_equal_pandas(tmp_path):
    ours = read(str(_find_archive())).compute()
    theirs = pd.read_csv(_find_archive())
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)
    theirs = theirs[: scaled(100_000, len(theirs))]
    theirs.to_csv(tmp_path / "flights.csv", index=False)
    size = scaled("3MB", "10MB")
    df = read(tmp_path / "flights.csv", parse_dates=["time_hour"], partition_size=size)
    assert df.npartitions > 3
    whole = df.compute().reset_index(drop=True)
    assert whole.time_hour.dtype == theirs.time_hour.astype("datetime64[us, UTC]").dtype
    pd.testing.assert_frame_equal(
        whole.drop(columns="time_hour"), theirs.drop(columns="time_hour"), check_dtype=False
    )


def test_types_do_not_depend_on_the_partition(tmp_path):
    (tmp_path / "0.csv").write_text("a,b,c\n1,,x\n")
    (tmp_path / "1.csv").write_text("a,b,c\n2.5,,\n")
    df = read(tmp_path, partition_size="1B")
    assert [str(dtype) for dtype in df.dtypes] == ["float64", "float64", "str"]
    assert df.compute().dtypes.equals(df.dtypes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,s\n" + "1,a\n" * 400 + "2.5,a\n", r"'n' holds '2\.5'.*dtypes={'n': 'float64'}"),
        ("n,s\n" + "1,a\n" * 400 + "x,a\n", r"'n' holds 'x'.*dtypes={'n': 'str'}"),
        ("n,s\n" + "1,a\n" * 400 + "1,a,3\n", "Expected 2 columns, got 3"),
        ("n,s\n" + "1,a\n" * 400 + "1\n", "Expected 2 columns, got 1"),
    ],
)
def test_a_value_that_does_not_fit_is_named(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr(text_samples, "HEAD", 400)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ReadError, match=message) as caught:
        read(tmp_path / "a.csv").compute()
    assert caught.value.url == str(tmp_path / "a.csv")
    if "holds" in message:
        fixed = read(tmp_path / "a.csv", dtypes={"n": "str"}).compute()
        assert fixed.n.to_list() == pd.read_csv(tmp_path / "a.csv", dtype="str").n.to_list()


def test_options_of_csv(tmp_path):
    (tmp_path / "a.csv").write_bytes("k;when;city\n1;31.12.2023 10:00;Köln\n".encode("latin-1"))
    df = read(
        tmp_path / "a.csv",
        separator=";",
        encoding="latin-1",
        parse_dates={"when": "%d.%m.%Y %H:%M"},
        dtypes={"k": "Int8"},
    ).compute()
    assert df.iloc[0].to_list() == [1, pd.Timestamp("2023-12-31 10:00"), "Köln"]
    assert df.k.dtype == "Int8"
    (tmp_path / "b.tsv").write_bytes(b"\xef\xbb\xbf1\ta\n2\tb\n")
    assert read(tmp_path / "b.tsv", names=["n", "s"]).compute().s.to_list() == ["a", "b"]
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        file.write("n\n1\n2\n")
    assert read(tmp_path / "c.csv.gz").compute().n.to_list() == [1, 2]


def test_times_are_parsed_and_filtered(tmp_path):
    rows = ["2024-03-31 01:30:00", "", "2024-03-31 03:30:00.250"]
    (tmp_path / "a.csv").write_text("t,z\n" + "".join(f"{t},{t}{'Z' if t else ''}\n" for t in rows))
    df = read(tmp_path / "a.csv", parse_dates=["t", "z"]).compute()
    assert [str(dtype) for dtype in df.dtypes] == ["datetime64[us]", "datetime64[us, UTC]"]
    assert df.t[2] == pd.Timestamp(rows[2])
    assert df.t.isna().to_list() == [False, True, False]
    late = read(tmp_path / "a.csv", parse_dates=["t"], filters=[("t", ">", "2024-03-31 02:00")])
    assert len(late) == 1
    with pytest.raises(RequestError, match="parse_dates = t: "):
        read(tmp_path / "a.csv", parse_dates={"t": "%d.%m.%Y"})


def test_headers_with_blank_lines_and_duplicate_names_and_without_rows(tmp_path):
    (tmp_path / "a.csv").write_text('\n"a b",a,a,\n1,2,3,4\n')
    assert list(read(tmp_path / "a.csv").columns) == list(pd.read_csv(tmp_path / "a.csv").columns)
    (tmp_path / "b.csv").write_text("n\n")
    assert len(read(tmp_path / "b.csv")) == 0
    (tmp_path / "c.csv").write_text("")
    with pytest.raises(RequestError, match="not empty"):
        read(tmp_path / "c.csv")


def test_all_faults_are_reported_together(tmp_path):
    (tmp_path / "a.csv").write_text("price,city\n1,Rome\n")
    with pytest.raises(RequestError, match="did you mean 'price'") as caught:
        read(
            tmp_path / "a.csv", dtypes={"prize": "str", "city": "datetime64[ns]"}, parse_dates=["x"]
        )
    assert len(caught.value.faults) == 3
    with pytest.raises(RequestError) as caught:
        read(tmp_path / "a.csv", separator=";;", encoding="utf-16", names=["a", "a"])
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize("encoding", ["utf-8-sig", "UTF_8_SIG"])
def test_utf_8_with_a_byte_order_mark_is_read_by_its_name_of_python(tmp_path, encoding):
    frame = pd.DataFrame({"city": ["Köln", "Rome"], "n": [1, 2]})
    frame.to_csv(tmp_path / "a.csv", index=False, encoding="utf-8-sig")
    frame.to_csv(tmp_path / "b.csv", index=False)
    df = read([tmp_path / "a.csv", tmp_path / "b.csv"], encoding=encoding)
    same(df.compute().reset_index(drop=True), pd.concat([frame, frame], ignore_index=True))


@pytest.mark.parametrize(
    ("encoding", "advice"),
    [("nope", "Python knows no encoding of this name"), ("utf-16", "convert the files to utf-8")],
)
def test_an_encoding_that_cannot_be_read_is_a_fault(tmp_path, encoding, advice):
    (tmp_path / "a.csv").write_text("n\n1\n")
    with pytest.raises(RequestError, match=f"encoding = '{encoding}': .*; {advice}"):
        read(tmp_path / "a.csv", encoding=encoding)


@pytest.mark.parametrize("options", [{}, {"names": ["a", "b"]}])
def test_a_file_in_utf_16_is_named_as_such(tmp_path, options):
    (tmp_path / "a.csv").write_text("a,b\n1,x\n", encoding="utf-16")
    with pytest.raises(ReadError, match=r"encoded in utf-16, .*convert the file to utf-8"):
        read(tmp_path / "a.csv", **options)


@pytest.mark.parametrize("text", ["a,b\r1,x\r2,y\r", 'a,b\r1,"x\ny"\r2,y\r'])
def test_carriage_returns_as_line_ends_are_named_as_such(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, newline="")
    with pytest.raises(ReadError, match=r"end with carriage returns .*pandas\.read_csv"):
        read(tmp_path / "a.csv")


def test_special_numbers_equal_pandas(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\ninf, 1\n-inf,2 \nNA,3\n1e5,\n")
    ours, theirs = read(tmp_path / "a.csv").compute(), pd.read_csv(tmp_path / "a.csv")
    np.testing.assert_array_equal(ours.x, theirs.x)
    assert math.isinf(ours.x[0])
    assert ours.y.astype("float64").fillna(0).to_list() == theirs.y.fillna(0).to_list()


def test_a_row_that_is_longer_than_a_block(tmp_path):
    frame = pd.DataFrame({"n": range(3), "s": ["x" * 2_000_000, "y", "z" * 3_000_000]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    same(read(tmp_path / "a.csv").compute(), frame)
