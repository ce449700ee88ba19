"""Remote file systems: few bytes read, no secrets shown, the same rows."""

from __future__ import annotations

import io
import pickle

import dask
import fastavro
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hyperplane.collections.frames.read import read
from hyperplane.errors import ReadError, RequestError


class Counted(io.RawIOBase):
    """A file that counts the bytes that are read."""

    def __init__(self, file, store):
        self.file, self.store = file, store

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        return self.file.seek(offset, whence)

    def tell(self):
        return self.file.tell()

    def read(self, size=-1):
        data = self.file.read(size)
        type(self.store).bytes += len(data)
        return data


class CountingStore(MemoryFileSystem):
    """A file system that counts the bytes that are read, and requires a key."""

    protocol = "counting"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    bytes = 0
    cachable = False

    def __init__(self, key=None, **options):
        super().__init__(**options)
        if key != "sesame":
            raise ValueError("no key")

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def _open(self, path, mode="rb", **options):
        file = super()._open(path, mode, **options)
        return Counted(file, self) if mode == "rb" else file

    def cat_file(self, path, start=None, end=None, **options):
        data = super().cat_file(path, start=start, end=end, **options)
        type(self).bytes += len(data)
        return data


KEY = {"key": "sesame"}


@pytest.fixture(autouse=True)
def store():
    fsspec.register_implementation("counting", CountingStore, clobber=True)
    with dask.config.set(scheduler="synchronous"):
        yield CountingStore("sesame")
    CountingStore.store.clear()
    CountingStore.pseudo_dirs[:] = [""]


def read_of(action):
    CountingStore.bytes = 0
    result = action()
    return result, CountingStore.bytes


@pytest.fixture
def wide(store):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.random(20_000) for i in range(20)})
    with store.open("/d/wide.parquet", "wb") as file:
        frame.to_parquet(file, row_group_size=5_000)
    return frame


def test_only_needed_columns_and_row_groups_are_fetched(wide, store):
    size = store.size("/d/wide.parquet")
    planned, of_plan = read_of(lambda: read("counting://d/*.parquet", storage_options=KEY))
    assert of_plan < size / 20
    whole, of_all = read_of(planned.compute)
    pd.testing.assert_frame_equal(whole.reset_index(drop=True), wide)
    assert of_all >= size * 0.9
    column, of_one = read_of(planned["c3"].compute)
    assert column.to_list() == wide.c3.to_list()
    assert of_one < size / 20 * 1.5
    wide["c0"] = np.arange(20_000.0)
    with store.open("/d/wide.parquet", "wb") as file:
        wide.to_parquet(file, row_group_size=5_000)
    late = read("counting://d", ["c3"], [("c0", ">=", 19_000)], storage_options=KEY)
    result, of_late = read_of(late.compute)
    assert result.c3.to_list() == wide.c3[19_000:].to_list()
    assert of_late < size / 20


def test_each_format_from_a_store(store):
    frame = pd.DataFrame({"n": range(1_000), "s": ["ä"] * 1_000})
    for name, write in (("a.csv", frame.to_csv), ("a.csv.gz", frame.to_csv)):
        with store.open(f"/{name}", "wb", compression="infer") as file:
            write(file, index=False)
    with store.open("/a.jsonl", "wb") as file:
        frame.to_json(file, orient="records", lines=True)
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]
    with store.open("/a.avro", "wb") as file:
        schema = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(file, schema, frame.to_dict("records"))
    for name in ("a.csv", "a.csv.gz", "a.jsonl", "a.avro"):
        df = read(f"counting://{name}", storage_options=KEY)
        ours = df.compute().reset_index(drop=True)
        pd.testing.assert_frame_equal(ours, frame, check_dtype=False)


@pytest.mark.parametrize(("ending", "codec"), [(".zst", "zstd"), (".lz4", "lz4")])
def test_compressed_text_from_a_store(store, ending, codec):
    text = "n\n" + "".join(f"{n}\n" for n in range(20_000))
    store.pipe_file(f"/a.csv{ending}", pa.compress(text.encode(), codec, asbytes=True))
    df = read(f"counting://a.csv{ending}", storage_options=KEY)
    assert df.npartitions == 1
    assert df.compute().n.to_list() == list(range(20_000))


def test_messages_and_reprs_have_no_secrets(wide):
    planned = read("counting://d/wide.parquet", storage_options=KEY)
    (part,) = planned.expr.iterables[0][:1]
    shown = [repr(planned), str(planned.expr), repr(part), repr(part.pieces), repr(planned.expr)]
    shown += [planned.expr.tree_repr(), repr(list(planned.dask.values()))]
    assert not [text for text in shown if "sesame" in text]
    assert pickle.loads(pickle.dumps(part)).scan().collect().height == 20_000
    with pytest.raises(RequestError) as caught:
        read("counting://user:secret@host/nothing.parquet?sig=secret", storage_options=KEY)
    assert "secret" not in str(caught.value)
    with pytest.raises(RequestError, match="no key"):
        read("counting://d/wide.parquet", storage_options={"key": "wrong"})


def test_a_deleted_file_is_named(wide, store):
    planned = read("counting://d/wide.parquet", storage_options=KEY)
    store.rm("/d/wide.parquet")
    with pytest.raises(ReadError, match=r"counting://.*d/wide\.parquet: FileNotFoundError"):
        planned.compute()


def test_memory_and_local_urls(tmp_path):
    frame = pd.DataFrame({"n": [1, 2]})
    frame.to_parquet(tmp_path / "a b.parquet")
    assert len(read(f"file://{tmp_path}/a b.parquet")) == 2
    (tmp_path / "odd[1].parquet").write_bytes((tmp_path / "a b.parquet").read_bytes())
    assert len(read(tmp_path / "odd[1].parquet").compute()) == 2
    frame.to_parquet("memory://here/a.parquet")
    assert read("memory://here/*.parquet").compute().n.to_list() == [1, 2]
