"""Readers of files as XShards."""

from __future__ import annotations

import pytest
from ml.shards.row_comparison import same_rows

import hyperplane.orca.data.pandas as orca_pandas
from hyperplane.errors import (
    ReadError,
    RequestError,
    UnknownArgument,
)
from hyperplane.ml import read_csv, read_json, read_parquet
from hyperplane.orca import OrcaContext

pytestmark = pytest.mark.usefixtures("compute_here")


@pytest.fixture
def files(tmp_path, frame):
    for number in range(3):
        part = frame[number * 3 : number * 3 + 3]
        part.to_csv(tmp_path / f"{number}.csv", index=False)
        part.to_json(tmp_path / f"{number}.json", orient="records", lines=True)
        part.to_parquet(tmp_path / f"{number}.parquet")
    return tmp_path


def test_files_without_a_header(tmp_path):
    (tmp_path / "rows.csv").write_text("1,a\n2,b\n")
    assert list(read_csv(tmp_path, header=None).first()) == ["0", "1"]
    assert list(read_csv(tmp_path, header=None, names=["n", "t"]).first()) == ["n", "t"]
    OrcaContext.pandas_read_backend = "pandas"
    try:
        assert list(read_csv(tmp_path, header=None).first()) == [0, 1]
    finally:
        OrcaContext.pandas_read_backend = "spark"


def test_the_first_column_as_index_is_kept(files, frame):
    found = read_csv(files / "*.csv", index_col=0)
    assert found.concat_to_pdf().index.tolist() == frame["city"].tolist()


@pytest.mark.parametrize("column", ["city", "price"])
def test_folders_of_parquet_files_are_columns(tmp_path, frame, column):
    frame.to_parquet(tmp_path / "flat", partition_cols=[column])
    same_rows(read_parquet(tmp_path / "flat").concat_to_pdf()[list(frame)], frame)
    named = read_parquet(tmp_path / "flat", columns=["rate", column]).concat_to_pdf()
    assert sorted(named[column]) == sorted(frame[column])
    file = next((tmp_path / "flat").glob("*/*.parquet"))
    assert column not in read_parquet(file).first()
    assert column not in read_parquet(f"{file.parent}/").first()
    assert column not in read_parquet(f"{file}, {file}").first()


def test_readers_accept_files_lists_globs_and_commas(files, frame):
    paths = [files / f"{number}.csv" for number in range(3)]
    for given in (paths, files / "*.csv", ",".join(map(str, paths))):
        same_rows(read_csv(given).concat_to_pdf(), frame)
    same_rows(read_json(files / "*.json", lines=True).concat_to_pdf(), frame)
    same_rows(read_parquet(files / "*.parquet").concat_to_pdf(), frame)
    assert list(read_parquet(files / "0.parquet", columns=["rate"]).first()) == ["rate"]
    assert list(orca_pandas.read_csv(paths, usecols=["city"]).first()) == ["city"]


def test_faults_of_the_readers(files):
    with pytest.raises(RequestError, match="missing"):
        read_csv([files / "missing.csv"])
    with pytest.raises(UnknownArgument, match="did you mean usecols"):
        read_csv(files / "0.csv", usecol=["city"])
    (files / "bad.csv").write_text('a,b\n1,2\n1,2,3\n"')
    with pytest.raises(ReadError, match=r"bad\.csv: ParserError"):
        read_csv(files / "bad.csv").collect()


def test_json_with_one_value_per_line(files, frame, tmp_path):
    same_rows(read_json(files / "*.json").concat_to_pdf(), frame)
    (tmp_path / "one.json").write_text('{"city": "a", "price": 4}\n')
    assert read_json(tmp_path / "one.json").first().to_dict("list") == {"city": ["a"], "price": [4]}
    frame.to_json(tmp_path / "array.json", orient="records")
    same_rows(read_json(tmp_path / "array.json").first(), frame)
    (tmp_path / "bad.json").write_text('{"city": "a"}\n{"city": ')
    for options in ({}, {"lines": True}):
        with pytest.raises(ReadError, match=r"bad\.json: ValueError"):
            read_json(tmp_path / "bad.json", **options).first()
    with pytest.raises(ReadError, match="Trailing data"):
        read_json(files / "0.json", lines=False).first()


def test_options_of_orca_for_csv_files(files, tmp_path, frame):
    prices = read_csv(files / "*.csv", usecols=["price"], squeeze=True)
    assert prices.unique().tolist() == frame["price"].unique().tolist()
    assert list(read_csv(files / "0.csv", squeeze=True).first()) == list(frame)
    (tmp_path / "null.csv").write_text("a,b\nnone,1\nx,2\n")
    assert read_csv(tmp_path / "null.csv", nullValue="none").first()["a"].isna().tolist() == [
        True,
        False,
    ]
    types = {0: "float32", 1: "int32"}
    typed = read_csv(tmp_path / "null.csv", header=0, names=["x", "y"], usecols=[1], dtype=types)
    assert typed.first().dtypes.to_dict() == {"y": "int32"}
    with pytest.raises(RequestError) as caught:
        read_csv(files / "0.csv", squeeze=1, nullValue="", na_values=["x"])
    assert [fault.where for fault in caught.value.faults] == ["squeeze", "nullValue"]


def test_types_by_position(tmp_path):
    (tmp_path / "rows.dat").write_text("1::a::5\n2::b::6\n")
    options = {"sep": "::", "header": None, "engine": "python"}
    short = {"names": ["n", "m"], "usecols": [2, 0], "dtype": {0: "int32", 2: "float32"}}
    found = read_csv(tmp_path / "rows.dat", **options, **short).first()
    assert found.dtypes.astype(str).to_dict() == {"n": "int32", "m": "float32"}
    all_names = {"names": ["n", "t", "m"], "dtype": {2: "str", "n": "int8"}}
    found = read_csv(tmp_path / "rows.dat", **options, **all_names).first()
    assert (found["n"].dtype, found["m"].tolist()) == ("int8", ["5", "6"])
    used = read_csv(tmp_path / "rows.dat", **options, **all_names, usecols=[0, 2]).first()
    assert (list(used), used["m"].tolist()) == (["n", "m"], ["5", "6"])
    ignored = {**short, "dtype": {1: "str", 7: "int8", 0: "int16"}}
    assert read_csv(tmp_path / "rows.dat", **options, **ignored).first()["n"].dtype == "int16"
