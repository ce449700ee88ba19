"""Files of different types: an exact common type, or an error."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.dataframe import read
from hyperplane.errors import ReadError
from hyperplane.formats import text_samples

ODD = 2**53 + 1


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


def saved(folder, form, *columns):
    for number, values in enumerate(columns):
        hyperplane.save(pd.DataFrame({"n": values}), folder / f"{number}.{form}")
    return folder / f"*.{form}"


@pytest.mark.parametrize("form", ["parquet", "avro", "csv", "jsonl"])
@pytest.mark.parametrize("values", [[1, ODD], [-ODD, 3], [2**63 - 1]], ids=repr)
def test_integers_that_float64_cannot_represent_are_an_error_with_fractions(tmp_path, form, values):
    files = saved(tmp_path, form, values, [1.5])
    if form in ("csv", "jsonl"):  # the samples show it: text holds both
        assert read(files, schema="union").n.compute().to_list() == [*map(str, values), "1.5"]
        return
    for size in (None, "100MB"):
        with pytest.raises(ReadError, match=r"column 'n' holds -?\d{16,}, which Float64") as raised:
            read(files, schema="union", partition_size=size).compute()
        assert raised.value.url == str(tmp_path / f"0.{form}")
    for filters in ([("n", "<", 10.0)], [("n", "==", values[0])], [("n", "==", ODD)]):
        with pytest.raises(ReadError, match="holds"):
            read(files, schema="union", filters=filters).compute()


@pytest.mark.parametrize("form", ["parquet", "avro", "csv", "jsonl"])
def test_integers_that_float64_represents_exactly_are_read_with_fractions(tmp_path, form):
    files = saved(tmp_path, form, [2**53, -(2**60), 7], [1.5, 1e300])
    assert read(files, schema="union").n.compute().to_list() == [2**53, -(2**60), 7, 1.5, 1e300]


def test_large_unsigned_integers_are_an_error_with_signed_integers(tmp_path):
    large = np.array([2**64 - 1], "uint64")
    with pytest.raises(ReadError, match="holds 18446744073709551615"):
        read(saved(tmp_path, "parquet", large, [-1]), schema="union").compute()


def test_times_beyond_the_finer_unit_are_an_error(tmp_path):
    far, near = np.array(["9999-01-01"], "M8[ms]"), np.array(["2000-01-01"], "M8[ns]")
    with pytest.raises(ReadError, match=r"0\.parquet: .*9999-01-01"):
        read(saved(tmp_path, "parquet", far, near), schema="union").compute()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_late_integer_that_float64_cannot_represent_is_an_error(tmp_path, monkeypatch, form):
    monkeypatch.setattr(text_samples, "HEAD", 1_000)
    monkeypatch.setattr(text_samples, "EXCERPT", 0)
    values = ["1.5"] * 1_000 + [str(ODD)] + ["2.5"] * 1_000
    head, row = ("n\n", "{}\n") if form == "csv" else ("", '{{"n": {}}}\n')
    (tmp_path / f"a.{form}").write_text(head + "".join(row.format(value) for value in values))
    line = 1_002 if form == "csv" else 1_001
    with pytest.raises(ReadError, match=rf"'n' holds {ODD}.*line {line} .*dtypes={{'n': 'str'}}"):
        read(tmp_path / f"a.{form}").compute()
    assert read(tmp_path / f"a.{form}", dtypes={"n": "str"}).n.compute()[1_000] == str(ODD)


def test_a_requested_float64_is_rounded(tmp_path):
    (tmp_path / "a.csv").write_text(f"n\n1.5\n{ODD}\n")
    assert read(tmp_path / "a.csv").n.compute().to_list() == ["1.5", str(ODD)]
    rounded = read(tmp_path / "a.csv", dtypes={"n": "float64"}).n.compute()
    assert rounded.to_list() == [1.5, float(ODD)]


@pytest.mark.parametrize("mixing", ["strict", "union"])
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([[], None], [[ODD], []]),
        ([{"a": [], "b": None}], [{"a": [ODD], "b": "x"}]),
        ([[[]]], [[[1]]]),
    ],
    ids=repr,
)
def test_lists_and_records_without_a_value_in_one_file(tmp_path, mixing, one, two):
    for name, first, second in (("a", one, two), ("b", two, one)):
        (tmp_path / name).mkdir()
        files = saved(tmp_path / name, "parquet", first, second)
        values = read(files, schema=mixing).n.compute().to_list()
        assert [None if value is pd.NA else value for value in values] == first + second


@pytest.mark.parametrize("one", [[["x"]], [[1.5]], [{"a": 1}], [1]], ids=repr)
def test_lists_of_other_values_are_refused(tmp_path, one):
    files = saved(tmp_path, "parquet", one, [[1]])
    with pytest.raises(hyperplane.errors.RequestError, match=r"n: List\(Int64\)"):
        read(files, schema="union")
