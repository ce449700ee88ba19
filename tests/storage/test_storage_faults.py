"""Faults of a store are retried or become errors with advice; no data is lost either way."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
import store_errors
from scale import scaled

import hyperplane
from hyperplane.errors import StorageError
from hyperplane.objectstore import retrying
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage.commit_protocol import commit_protocol_for


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "threads", "dataframe.convert-string": False}):
        yield


OBJECTS = scaled(300, 4_000)


@pytest.mark.slow
def test_many_small_files_are_saved_on_a_store_with_faults(faulty_store, tmp_path, monkeypatch):
    monkeypatch.setattr(
        retrying, "FIRST_WAIT", 0.02
    )  # shortens the waits, not the number of attempts
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(OBJECTS):
        (folder / f"{number:05d}.txt").write_text(f"object {number}\n" * (number % 5 + 1))
    store = faulty_store(
        transient=0.05,
        lost=0.01,
        slow=0.01,
        slow_seconds=0.05,
        writes_per_second=3000,
        listing_delay=0.5,
    )
    url, options = f"{store.url}/many", store.options
    result = hyperplane.save(folder, url, storage_options=options)
    assert (result.files, result.written) == (OBJECTS, OBJECTS)
    found = store.objects()
    for file in folder.iterdir():
        assert found[f"bucket/many/{file.name}"] == file.read_bytes()
    failed = [call for call in store.journal() if call.outcome not in ("ok", "lost")]
    assert len(failed) > OBJECTS // 20
    assert not hyperplane.save(folder, url, storage_options=options).changed


def frame(version=0):
    return dd.from_pandas(pd.DataFrame({"n": range(100), "v": version}), npartitions=10)


@pytest.mark.slow
@pytest.mark.parametrize("like", ["plain", "gcs", "s3"])
def test_a_dataframe_is_saved_despite_faults_of_every_kind(faulty_store, monkeypatch, like):
    monkeypatch.setattr(retrying, "FIRST_WAIT", 0.02)
    store = faulty_store(like=like, transient=0.2, lost=0.1, seed=3)
    url = f"{store.url}/out"
    for version in range(3):
        hyperplane.save(frame(version), url, mode="overwrite", storage_options=store.options)
        found = hyperplane.load(url, storage_options=store.options).compute()
        assert found.n.to_list() == list(range(100))
        assert set(found.v) == {version}
    kinds = {call.outcome for call in store.journal()}
    assert len(kinds & {"429", "500", "503", "timeout", "reset"}) >= 3, kinds


@pytest.mark.parametrize("like", ["plain", "gcs", "s3"])
@pytest.mark.parametrize(
    ("permanent", "says"),
    [("403", "credentials"), ("404", "create it"), ("ENOSPC", "no space left")],
)
def test_permanent_errors_fail_immediately_with_advice(faulty_store, like, permanent, says):
    store = faulty_store(like=like, permanent=permanent)
    computed = []

    def watched(part):
        computed.append(1)
        return part

    df = frame().map_partitions(watched, meta=frame()._meta)
    computed.clear()
    with pytest.raises(StorageError, match=says) as caught:
        hyperplane.save(df, f"{store.url}/out", storage_options=store.options)
    assert "faulty://bucket/" in str(caught.value)
    assert not computed
    assert len(store.journal()) < 8


class Clock:
    """A ``time`` module by which each attempt takes a second."""

    now = 0

    def monotonic(self):
        self.now += 1
        return self.now


def test_retries_end_if_the_store_does_not_recover(faulty_store, monkeypatch):
    monkeypatch.setattr(retrying, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(retrying, "RETRY_SECONDS", 5)
    monkeypatch.setattr(retrying, "time", Clock())
    store = faulty_store(transient=1.0)
    with pytest.raises(StorageError, match="try again later"):
        hyperplane.save(b"x", f"{store.url}/a.bin", storage_options=store.options)
    assert len(store.journal()) == 6


def test_a_transient_error_after_a_refusal_is_retried(faulty_store, monkeypatch):
    """The answer to the first request is lost, and reading the existing file fails at first."""
    monkeypatch.setattr(retrying, "FIRST_WAIT", 0.001)
    store = faulty_store(like="s3")
    store_files = commit_protocol_for(resolve_target(f"{store.url}/out", store.options)).store_files
    store_files.put_new("bucket/new", b"held")
    look, failed = store_files.store.system.cat_file, []

    def fail_once(path, **options):
        if not failed:
            failed.append(path)
            raise store_errors.make("timeout", "s3", path)
        return look(path, **options)

    def refuse(path, data):
        raise store_errors.make("exists", "s3", path)

    monkeypatch.setattr(store_files, "_upload_new", refuse)
    monkeypatch.setattr(store_files.store.system, "cat_file", fail_once)
    store_files.put_new("bucket/new", b"held")
    assert failed == ["bucket/new"]
