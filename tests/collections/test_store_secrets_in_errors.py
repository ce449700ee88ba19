"""Errors of a store while it is read or written contain none of its options."""

from __future__ import annotations

import io

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import hyperplane
from hyperplane.bag import read_records
from hyperplane.dataframe import read, sort_values
from hyperplane.errors import HyperplaneError

SECRET = "s3cret-token"


class LeakingFileSystem(MemoryFileSystem):
    """File system whose errors contain its token."""

    protocol = "leaking"
    fails = False

    def __init__(self, token=None, **options):
        super().__init__(**options)
        self.token = token

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(str(path).replace("leaking://", "memory://"))

    def _fail(self):
        if type(self).fails:
            raise OSError(f"refused with token {self.token}")

    def open(self, *arguments, **options):
        self._fail()
        return super().open(*arguments, **options)

    def cat_file(self, *arguments, **options):
        self._fail()
        return super().cat_file(*arguments, **options)

    def pipe_file(self, *arguments, **options):
        self._fail()
        return super().pipe_file(*arguments, **options)


@pytest.fixture
def options():
    fsspec.register_implementation("leaking", LeakingFileSystem, clobber=True)
    table = io.BytesIO()
    pd.DataFrame({"x": [1, 2]}).to_parquet(table)
    memory = MemoryFileSystem()
    for name, data in (
        ("a.parquet", table.getvalue()),
        ("a.csv", b"x\n1\n"),
        ("a.jsonl", b'{"x": 1}\n'),
    ):
        memory.pipe(f"/data/{name}", data)
    with dask.config.set(scheduler="sync"):
        yield {"token": SECRET}
    LeakingFileSystem.fails = False
    memory.store.clear()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_errors_of_dataframes_contain_no_secret(options, name):
    df = read(f"leaking://data/{name}", storage_options=options)
    LeakingFileSystem.fails = True
    for result in (df, sort_values(df, "x")):
        with pytest.raises(HyperplaneError, match="refused with token") as caught:
            result.compute()
        assert SECRET not in str(caught.value)


def test_errors_of_bags_contain_no_secret(options):
    records = read_records("leaking://data/a.jsonl", storage_options=options)
    LeakingFileSystem.fails = True
    with pytest.raises(HyperplaneError, match="refused with token") as caught:
        records.compute()
    assert SECRET not in str(caught.value)


def test_errors_of_save_and_load_contain_no_secret(options):
    url = "leaking://data/out"
    df = dd.from_pandas(pd.DataFrame({"n": [1]}), npartitions=1)
    hyperplane.save(df, url, storage_options=options)
    saved = hyperplane.load(url, storage_options=options)
    LeakingFileSystem.fails = True
    for call in (
        saved.compute,
        lambda: hyperplane.save(df, "leaking://data/new", storage_options=options),
        lambda: hyperplane.load(url, storage_options=options),
    ):
        with pytest.raises(HyperplaneError, match="refused with token") as caught:
            call()
        assert SECRET not in str(caught.value)
