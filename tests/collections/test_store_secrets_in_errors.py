"""Errors of a store while it is read or written contain none of its options."""

from __future__ import annotations

import io
import threading
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import hyperplane
from hyperplane.bag import bad_records, read_records, to_dataframe
from hyperplane.dataframe import read, sort_values
from hyperplane.errors import BadLines, BadLinesWarning, HyperplaneError, WrongType

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


class QueryIgnoringHandler(SimpleHTTPRequestHandler):
    """Handler that serves a file with any query, as object stores serve signed URLs."""

    def translate_path(self, path):
        return super().translate_path(path.partition("?")[0])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def signed_url(tmp_path):
    """A signed URL of a file with five records, one of them with text, and an invalid line."""
    lines = ['{"x": 1}'] * 4 + ['{"x": "text"}', "{invalid"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    handler = partial(QueryIgnoringHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.jsonl?X-Amz-Signature={SECRET}"
        server.shutdown()


def test_messages_about_lines_of_a_signed_url_contain_no_signature(signed_url):
    url = signed_url.partition("?")[0]
    with dask.config.set(scheduler="sync"):
        with pytest.raises(BadLines) as caught:
            read_records(signed_url, limit=0).compute()
        assert caught.value.file == url
        assert SECRET not in str(caught.value)
        records = read_records(signed_url)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", BadLinesWarning)
            assert len(records.compute()) == 5
            with pytest.raises(WrongType) as caught:
                to_dataframe(records, types={"x": "int64"}).compute()
        assert f"line 5 of {url} is" in str(caught.value)
        assert f"line 6 of {url}" in str(warned[0].message)
        for message in (caught.value, *(warning.message for warning in warned)):
            assert SECRET not in str(message)
        assert [bad["file"] for bad in bad_records(records).compute()] == [url]


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
