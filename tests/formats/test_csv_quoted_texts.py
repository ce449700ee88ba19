"""Texts of single CSV files that pandas reads as missing values."""

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyperplane
from hyperplane.formats.csv.missing_values import PANDAS_MISSING
from hyperplane.formats.csv.write import parse_csv


def as_objects(column):
    return [None if value != value or value is None else value for value in column.tolist()]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_texts_that_look_missing_are_loaded_from_a_single_file(tmp_path, suffix):
    frame = pd.DataFrame(
        {
            "country": ["NA", "DE", None],
            "name": ["null", "", 'a,\t"b'],
            "code": ["007", "NA", "8"],
            "size": [1.5, None, 2.0],
            "kind": pd.Categorical(["NA", "b", "NA"]),
        }
    )
    url = str(tmp_path / f"a{suffix}")
    hyperplane.save(frame, url)
    loaded = hyperplane.load(url)
    for name in frame.columns:
        assert as_objects(loaded[name]) == as_objects(frame[name])
    assert loaded["size"].dtype == "float64"


@pytest.mark.parametrize("text", PANDAS_MISSING)
def test_each_text_that_pandas_reads_as_missing_is_in_quotes(tmp_path, text):
    url = str(tmp_path / "a.csv")
    hyperplane.save(pd.DataFrame({"a": [text, None], "b": [1, 2]}), url)
    assert as_objects(hyperplane.load(url)["a"]) == [text, None]
    assert f'"{text}",1' in (tmp_path / "a.csv").read_text()


def test_missing_numbers_are_not_in_quotes(tmp_path):
    frame = pl.DataFrame({"a": ["nan", None], "x": [float("nan"), None]})
    hyperplane.save(frame, str(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text() == 'a,x\n"nan",nan\n,\n'


def test_texts_of_a_single_column(tmp_path):
    url = str(tmp_path / "a.csv")
    hyperplane.save(pd.DataFrame({"a": ["NA", None, "b"]}), url)
    assert as_objects(hyperplane.load(url)["a"]) == ["NA", None, "b"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_empty_text_of_a_single_column_is_a_warning(tmp_path, suffix):
    frame = pd.DataFrame({"a": ["", "b"]})
    with pytest.warns(
        UserWarning, match=f"column 'a' has the value '', .*single {suffix.upper()}"
    ) as record:
        hyperplane.save(frame, str(tmp_path / f"a.{suffix}"))
    assert [warning.filename for warning in record] == [__file__]
    hyperplane.save(frame.assign(b=1), str(tmp_path / f"b.{suffix}"))
    hyperplane.save(pd.DataFrame({"a": ["x", None]}), str(tmp_path / f"c.{suffix}"))


@pytest.mark.parametrize(
    "text",
    [
        '"a","b"\n"x",1.0\n"",""\n',  # quotes around all values
        'a,b\n"x",1.0\n"",\n',  # and around all texts
        'a,b\n"NA",1\n2\n',  # a short row
        "a,b\nNA,1\n,2\n",
    ],
)
def test_files_of_other_programs_are_loaded_as_pandas_reads_them(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    loaded = hyperplane.load(str(tmp_path / "a.csv"))
    expected = pd.read_csv(tmp_path / "a.csv")
    assert loaded.isna().equals(expected.isna())


def test_names_of_columns_may_repeat_in_files_of_others():
    frame = parse_csv(b'a,a\n"NA",1\nx,NA\n', ",")
    assert as_objects(frame.iloc[:, 0]) == ["NA", "x"]
    assert frame.iloc[:, 1].isna().tolist() == [False, True]


TEXTS = st.sampled_from([*PANDAS_MISSING, None, "x", " NA", 'N"A', 'a,"NA",b', 'a\n"",b'])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_any_texts_and_missing_values_are_loaded_as_saved(tmp_path, rows):
    frame = pd.DataFrame(rows, columns=["a", "b"], dtype="object")
    url = str(tmp_path / "any.csv")
    hyperplane.save(frame, url, mode="overwrite")
    loaded = hyperplane.load(url)
    assert len(loaded) == len(frame)
    for name in frame.columns:
        assert as_objects(loaded[name]) == as_objects(frame[name])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("texts", [["x", " ", "\t", "y"], ["  "], [" ", "NA"], ["a", None, " "]])
def test_blanks_of_a_single_column_are_rows(tmp_path, texts, suffix):
    """Readers skip a line of blanks; it is in quotes, as is a name of blanks."""
    url = str(tmp_path / f"a.{suffix}")
    hyperplane.save(pd.DataFrame({" ": texts}), url)
    assert as_objects(hyperplane.load(url)[" "]) == texts
    assert as_objects(pd.read_csv(url, sep="," if suffix == "csv" else "\t")[" "]) == [
        None if text in (None, "NA") else text for text in texts
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [("5.5 7", [None, 5.5, 7.0]), ("True False", [None, True, False]), ("x y", ["", "x", "y"])],
)
def test_empty_quotes_of_another_program_are_missing_numbers(tmp_path, values, expected):
    first, second = values.split()
    (tmp_path / "a.csv").write_text(f'id,price\n1,""\n2,{first}\n3,{second}\n')
    assert as_objects(hyperplane.load(str(tmp_path / "a.csv"))["price"]) == expected
