"""A save is correct if another process acts between two of its steps."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import hyperplane
from hyperplane.errors import StorageError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage import shard_saving
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.manifest_commit import ManifestCommit

URL = "memory://moments/out"


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield
    fsspec.filesystem("memory").store.clear()


def rows(index):
    return pd.DataFrame({"n": range(index * 10, index * 10 + 10)})


def save_shard(index, url=URL):
    return hyperplane.save(rows(index), url, shard=(index, 3))


def loaded(url=URL):
    return hyperplane.load(url).compute().n.to_list()


def once(monkeypatch, owner, name, between):
    """Call ``between`` with the result of a method's next call, and return its result instead."""
    method = getattr(owner, name)

    def call(self, *arguments, **options):
        monkeypatch.setattr(owner, name, method)
        result = method(self, *arguments, **options)
        return between(result)

    monkeypatch.setattr(owner, name, call)


def published_files():
    return [name for name in fsspec.filesystem("memory").find(URL) if name.endswith(".parquet")]


def test_a_finished_shard_keeps_parts_that_another_shard_still_copies(monkeypatch):
    save_shard(0)
    save_shard(1)
    copies = []

    def last_shard_publishes(missing):
        with monkeypatch.context() as patch:  # published, but no part is copied yet
            patch.setattr(
                ManifestCommit, "finish_commit", lambda commits, manifest: copies.append(manifest)
            )
            save_shard(2)
        return missing

    # This shard has read the other records just before the last one committed.
    order = []

    def record(run, index, read=shard_saving._ShardRun.read_record):
        found = read(run, index)
        order.append((index, found is not None))
        if len(order) == 4:  # its own record, and those of all three
            monkeypatch.setattr(shard_saving._ShardRun, "read_record", read)
            return last_shard_publishes(found)
        return found

    monkeypatch.setattr(shard_saving._ShardRun, "read_record", record)
    assert save_shard(0).complete
    assert order == [(0, True), (0, True), (1, True), (2, False)]
    assert published_files() == []
    assert loaded() == list(range(30))
    ManifestCommit(
        resolve_target(URL, None), StoreFiles(resolve_target(URL, None).store)
    ).finish_commit(copies[0])
    assert len(published_files()) == 3
    assert loaded() == list(range(30))


def test_a_later_call_copies_parts_that_could_not_be_copied(monkeypatch):
    save_shard(0)
    save_shard(1)
    copy = MemoryFileSystem.cp_file

    def refuses(system, path, to, **options):
        if "part-00001" in to:
            raise PermissionError(13, "no right to write", to)
        copy(system, path, to, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cp_file", refuses)
        with pytest.raises(StorageError, match="part-00001"):
            save_shard(2)
        assert loaded() == list(range(30))
    assert len(published_files()) == 2
    assert save_shard(2).complete
    assert len(published_files()) == 3
    assert loaded() == list(range(30))


def test_a_version_published_during_a_read_is_not_foreign(monkeypatch):
    frame = dd.from_pandas(rows(0), npartitions=2)

    def saved_meanwhile(numbers):
        hyperplane.save(frame, URL)
        return numbers

    once(monkeypatch, ManifestCommit, "_list_numbers", saved_meanwhile)
    state = commit_protocol_for(resolve_target(URL, None)).read_state()
    assert (state.version, state.manifest.format) == ("1", "parquet")


@pytest.mark.parametrize("seen", ["all", "one", "none"])
def test_a_folder_replaced_during_its_listing_is_listed_again(tmp_path, monkeypatch, seen):
    url = str(tmp_path / "out")
    hyperplane.save(dd.from_pandas(rows(0), npartitions=2), url)

    def replaced_meanwhile(listed):
        hyperplane.save(dd.from_pandas(rows(1), npartitions=2), url, mode="overwrite")
        # The files of the old folder are removed one by one.
        return dict(list(listed.items())[: {"all": 2, "one": 1, "none": 0}[seen]])

    once(monkeypatch, StoreFiles, "list_files", replaced_meanwhile)
    state = commit_protocol_for(resolve_target(url, None)).read_state()
    assert state.manifest is not None
    assert (state.manifest.format, state.manifest.rows) == ("parquet", 10)
    assert state == commit_protocol_for(resolve_target(url, None)).read_state()
