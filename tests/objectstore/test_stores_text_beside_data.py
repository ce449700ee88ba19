"""Text files such as README.txt beside data are errors unless a URL names them."""

from __future__ import annotations

import dask
import pytest

from hyperplane import shard_rows
from hyperplane.calculator.measure import measure_files
from hyperplane.dataframe import read
from hyperplane.errors import RequestError

MESSAGE = r"README\.txt': .*files such as .*/b\.csv, .*'\*\.csv'"


@pytest.fixture(autouse=True)
def _sync():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.csv").write_text("n,s\n1,x\n")
    (tmp_path / "README.txt").write_text("The rows of b.csv, one a day.\nWritten by hand.\n")
    return tmp_path


@pytest.mark.parametrize("glob", ["", "*", "**", "[bR]*", "*.[ct]*"])
def test_a_text_file_beside_data_is_an_error_that_names_it(folder, glob):
    for function in (read, lambda url: shard_rows(url, 1, 0), lambda url: measure_files(str(url))):
        with pytest.raises(RequestError, match=MESSAGE) as caught:
            function(folder / glob)
        assert len(caught.value.faults) == 1
    assert len(read(folder / "*.csv")) == 1


def test_a_text_file_named_by_another_url_does_not_permit_one_in_a_folder(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "c.txt"
    other.write_text("n,s\n2,y\n")
    with pytest.raises(RequestError, match=MESSAGE):
        read([folder, other])
    assert read([folder / "b.csv", other]).compute()["n"].tolist() == [1, 2]
    assert read([folder / "*.csv", other.parent / "*.txt"]).compute()["n"].tolist() == [
        1,
        2,
    ]
    assert read(iter([folder / "b.csv", other])).compute()["n"].tolist() == [1, 2]


def test_text_files_without_other_files_are_csv(tmp_path):
    (tmp_path / "a.txt").write_text("n\n1\n")
    (tmp_path / "b.TXT").write_text("n\n2\n")
    assert read(tmp_path).compute()["n"].tolist() == [1, 2]
    assert read(tmp_path / "a.txt").compute()["n"].tolist() == [1]
    (tmp_path / "c.csv").write_text("n\n3\n")
    assert read(tmp_path, format="csv").compute()["n"].tolist() == [1, 2, 3]
    with pytest.raises(RequestError, match=r"a\.txt': .*files such as .*c\.csv"):
        read(tmp_path)


def test_files_of_unknown_formats_are_reported_with_the_text_file(folder):
    (folder / "notes.md").write_text("x")
    with pytest.raises(RequestError) as caught:
        read(folder)
    asked = [fault.asked.rpartition("/")[2] for fault in caught.value.faults]
    assert asked == ["notes.md'", "README.txt'"]


def test_a_text_file_beside_parquet_is_an_error(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "README.txt").write_text("x")
    with pytest.raises(RequestError, match=r"README\.txt': .*a\.parquet.*'\*\.parquet'"):
        read(tmp_path)
