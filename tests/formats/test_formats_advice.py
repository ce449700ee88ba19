"""Messages of ``read`` for invalid requests, and categories."""

from __future__ import annotations

import dask
import pandas as pd
import polars as pl
import pytest

from hyperplane.collections.frames.join import join
from hyperplane.collections.frames.read import read
from hyperplane.collections.frames.sort_values import sort_values
from hyperplane.errors import ReadError, RequestError
from hyperplane.formats import time_formats

SIZES = ["S", "M", "L", "XL"]


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def sized(path, values, categories=SIZES, *, ordered=True):
    words = pd.Categorical(values, categories=categories, ordered=ordered)
    frame = pd.DataFrame({"n": range(len(values)), "size": words})
    frame.to_parquet(path, row_group_size=2)
    return frame


def test_ordered_categories_keep_their_order(tmp_path):
    frames = [
        sized(tmp_path / "a.parquet", ["L", None, "M", "S", "M"]),
        sized(tmp_path / "b.parquet", ["M", "S"]),
    ]
    theirs = pd.concat(frames, ignore_index=True)
    df = read(tmp_path)
    ours = df.compute().reset_index(drop=True)
    assert df.dtypes["size"] == ours.dtypes["size"] == theirs.dtypes["size"]
    pd.testing.assert_frame_equal(ours, theirs)
    whole = read(tmp_path, partition_size="100MB")
    assert whole["size"].max().compute() == "L" == theirs["size"].max()
    assert df["size"].cat.codes.max().compute() == 2  # Dask's max of two partitions is of text
    assert len(df[df["size"] > "S"]) == 4
    assert read(tmp_path, filters=[("size", "==", "M")]).n.compute().to_list() == [2, 4, 0]
    with pytest.raises(RequestError, match="of type category"):
        sort_values(df, "size")
    joined = join(df, df.drop_duplicates("size"), on="size").compute()
    assert len(joined) == len(theirs.merge(theirs.drop_duplicates("size"), on="size"))


def test_unordered_and_differing_categories_become_text(tmp_path):
    sized(tmp_path / "a.parquet", ["L", "S"])
    sized(tmp_path / "b.parquet", ["L", "S"], SIZES[::-1])
    sized(tmp_path / "c.parquet", ["L", "S"], ordered=False)
    for names in ("ab", "ac", "c"):
        df = read([tmp_path / f"{name}.parquet" for name in names], schema="union")
        assert str(df.dtypes["size"]) == "str"
        assert df.compute()["size"].to_list() == ["L", "S"] * len(names)


def test_the_error_names_the_damaged_file_of_several(tmp_path):
    frame = pd.DataFrame({"n": range(5_000), "s": [f"text {i}" for i in range(5_000)]})
    for number in range(3):
        frame.to_parquet(tmp_path / f"p{number}.parquet")
    data = bytearray((tmp_path / "p1.parquet").read_bytes())
    data[2_000:9_000] = b"\xff" * 7_000
    (tmp_path / "p1.parquet").write_bytes(bytes(data))
    df = read(tmp_path, partition_size="100MB")
    assert df.npartitions == 1
    for collection in (df, sort_values(df, "n")):
        with pytest.raises(ReadError) as caught:
            collection.compute()
        assert caught.value.url == str(tmp_path / "p1.parquet")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["2026-01-01", "2026-01-02 10:00", "no date"],
            r"'no date': expected.*in ISO 8601, like .*to",
        ),
        (["01.02.2026", "31.01.2026"], r"'31\.01\.2026'.*parse_dates={'t': '%d\.%m\.%Y'}"),
        (["01.02.2026", "x"], r"t: 'x': expected a time in the format '%m\.%d\.%Y', like"),
        (["x", "2026-01-01"], r"t: 'x': expected a time in ISO 8601, or"),
        (["1700000000", "1700000001"], r"to_datetime\(df, 't', unit='s'\)"),
        (["1700000000123"], r"to_datetime\(df, 't', unit='ms'\)"),
    ],
)
def test_the_first_value_that_is_not_a_time_is_named(tmp_path, values, message):
    (tmp_path / "a.csv").write_text("t,n\n" + "".join(f"{value},1\n" for value in values))
    with pytest.raises(RequestError, match=message) as caught:
        read(tmp_path / "a.csv", parse_dates=["t"])
    assert "%d.%m.%Y %H:%M" not in str(caught.value)


def test_a_late_value_with_day_and_month_swapped_names_the_format():
    texts = pl.Series("t", ["01.02.2026", None, "31.01.2026"])
    form = time_formats.TimeFormat(polars_format="%m.%d.%Y")
    with pytest.raises(ReadError, match=r"parse_dates={'t': '%d\.%m\.%Y'}") as caught:
        time_formats.parse_column(texts, form, "a.csv", lambda row: f"line {row + 2}")
    assert "'31.01.2026', which is not a time in the format %m.%d.%Y (line 4)" in str(caught.value)


def test_a_day_before_the_month_is_read_without_a_warning(tmp_path):
    (tmp_path / "a.csv").write_text("t\n31.01.2026\n01.02.2026\n")
    df = read(tmp_path / "a.csv", parse_dates=["t"]).compute().t
    assert df.to_list() == [pd.Timestamp("2026-01-31"), pd.Timestamp("2026-02-01")]
    with pytest.raises(RequestError, match="a time such as '2024-01-31 12:00', for column 't'"):
        read(tmp_path / "a.csv", parse_dates=["t"], filters=[("t", ">=", "yesterday")])


@pytest.mark.parametrize(
    ("name", "text", "separator", "advice"),
    [
        ("a.csv", "a;b;c\n1;2;3\n", None, ";"),
        ("a.csv", "a;b\n1,5;2\n", None, ";"),
        ("a.csv", "a;b\n1,5;2,5\n", None, ";"),
        ("a.txt", "a\tb\n1\t2\n", None, "\\\\t"),
        ("a.csv", "a,b,c\n1,2,3\n", ";", ","),
    ],
)
def test_another_separator_is_found_in_the_header(tmp_path, name, text, separator, advice):
    (tmp_path / name).write_text(text)
    with pytest.raises(ReadError, match=rf"write separator='{advice}'"):
        read(tmp_path / name, separator=separator)


def test_files_of_one_column_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1;2\n3\n")
    assert list(read(tmp_path / "a.csv").columns) == ["a;b"]
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    assert list(read(tmp_path / "b.csv", separator=";").columns) == ["a,b"]


def test_similar_names_are_suggested(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "e.csv").write_text("")
    with pytest.raises(RequestError, match=r"urls = a DataFrame: .*from_pandas") as caught:
        read(pd.DataFrame({f"c{i}": [1] for i in range(19)}))
    assert len(caught.value.faults) == 1
    with pytest.raises(RequestError, match=r"write columns=\['a'\]"):
        read(tmp_path / "a.csv", columns="a")
    with pytest.raises(RequestError, match=r"write parse_dates=\['a'\]"):
        read(tmp_path / "a.csv", parse_dates="a")
    with pytest.raises(RequestError, match=r"e\.csv.*not empty"):
        read(tmp_path / "e.csv")
    with pytest.raises(
        RequestError, match=r"(?s)did you mean columns.*mean separator.*mean dtypes"
    ) as caught:
        read(tmp_path / "a.csv", usecols=["a"], sep=";", dtype={"a": "str"}, secret="hush")
    assert len(caught.value.faults) == 4
    assert "hush" not in str(caught.value)
