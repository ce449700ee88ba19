"""Each shard commits once; the output is visible when all shards are committed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, RequestError, StorageError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage import missing_shards
from hyperplane.storage.commit_protocol import commit_protocol_for


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


@pytest.fixture(params=["disk", "memory"])
def url(request, tmp_path, atomic_memory):
    yield f"{tmp_path}/out" if request.param == "disk" else "memory://shards/out"
    fsspec.filesystem("memory").store.clear()


def rows(index, add=0):
    return pd.DataFrame({"n": np.arange(index * 10, index * 10 + 10) + add})


def test_the_output_is_visible_when_all_shards_are_saved(url):
    with pytest.raises(StorageError, match="no shard has been saved"):
        missing_shards(url)
    for done, index in enumerate([2, 0]):
        result = hyperplane.save(rows(index), url, shard=(index, 3))
        assert (result.complete, result.written) == (False, 1)
        assert len(missing_shards(url)) == 2 - done
        with pytest.raises(StorageError, match="nothing is saved there"):
            hyperplane.load(url)
    last = dd.from_pandas(rows(1), npartitions=2)
    assert hyperplane.save(last, url, shard=(1, 3)).complete
    assert missing_shards(url) == []
    assert hyperplane.load(url).compute().n.to_list() == list(range(30))
    if url.startswith("/"):
        assert pd.read_parquet(url).n.to_list() == list(range(30))


def test_the_shard_that_publishes_reports_a_changed_output(url, monkeypatch):
    def fail(*_):
        raise StorageError(url, "the process was killed here")

    assert not hyperplane.save(rows(0), url, shard=(0, 2)).published
    protocol = type(commit_protocol_for(resolve_target(url, None)))
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "publish", fail)
        with pytest.raises(StorageError, match="was killed"):
            hyperplane.save(rows(1), url, shard=(1, 2))
    repeated = hyperplane.save(rows(1), url, shard=(1, 2))
    assert (repeated.written, repeated.published, repeated.changed) == (0, True, True)
    assert hyperplane.load(url).compute().n.to_list() == list(range(20))
    again = hyperplane.save(rows(1), url, shard=(1, 2))
    assert (again.published, again.changed) == (False, False)


def test_a_run_named_first_is_not_the_run_without_a_name(url):
    hyperplane.save(rows(0), url, shard=(0, 2))
    assert not hyperplane.save(rows(1), url, shard=(1, 2), run="first").complete
    with pytest.raises(RequestError) as caught:
        missing_shards(url)
    (fault,) = caught.value.faults
    assert "'' (of 2 shards), 'first' (of 2 shards)" in fault.allowed
    assert (missing_shards(url, run=""), missing_shards(url, run="first")) == ([1], [0])
    assert hyperplane.save(rows(0), url, shard=(0, 2), run="first").complete
    assert missing_shards(url, run="first") == []
    report = hyperplane.storage.clean(url)
    assert report.removed == ()
    report = hyperplane.storage.clean(url, older_than=0)
    assert report.removed == ("shards-2-first",)
    assert hyperplane.load(url).compute().n.to_list() == list(range(20))


def test_a_committed_shard_is_not_written_again(url):
    hyperplane.save(rows(0), url, shard=(0, 2))
    assert not hyperplane.save(rows(0), url, shard=(0, 2)).changed
    with pytest.raises(OutputConflict, match="committed with other rows"):
        hyperplane.save(rows(0, add=1), url, shard=(0, 2))
    assert hyperplane.save(rows(1), url, shard=(1, 2)).complete
    assert [hyperplane.save(rows(i), url, shard=(i, 2)).changed for i in (0, 1)] == [False, False]
    with pytest.raises(OutputExists):
        hyperplane.save(rows(1, add=1), url, shard=(1, 2))
    assert not hyperplane.save(rows(1, add=1), url, shard=(1, 2), mode="skip").changed
    assert hyperplane.load(url).compute().n.to_list() == list(range(20))


def test_a_new_run_replaces_the_output_when_all_its_shards_are_saved(url):
    for index in (0, 1, 2):
        hyperplane.save(rows(index), url, shard=(index, 3))
    for index in (0, 1, 2):
        add = 100 if index else 0  # shard 0 is unchanged
        assert hyperplane.load(url).compute().n.to_list() == list(range(30))
        result = hyperplane.save(
            rows(index, add), url, shard=(index, 3), mode="overwrite", run="second"
        )
        assert result.complete == (index == 2)
    want = [*range(10), *range(110, 130)]
    assert hyperplane.load(url).compute().n.to_list() == want


def test_another_number_of_shards_is_another_run(url):
    for index in (0, 1):
        hyperplane.save(rows(index), url, shard=(index, 2))
    with pytest.raises(OutputExists):
        hyperplane.save(rows(0), url, shard=(0, 3))
    for index in (0, 1, 2):
        hyperplane.save(rows(index), url, shard=(index, 3), mode="overwrite", run="b")
    assert hyperplane.load(url).compute().n.to_list() == list(range(30))


def test_one_of_several_concurrent_attempts_of_a_shard_commits(url):
    def one(add):
        try:
            return hyperplane.save(rows(0, add), url, shard=(0, 2)).changed
        except OutputConflict:
            return "conflict"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(8)))
    assert sorted(map(str, found)) == ["True", *["conflict"] * 7]
    hyperplane.save(rows(1), url, shard=(1, 2))
    winner = found.index(True)
    assert hyperplane.load(url).compute().n.to_list()[:10] == rows(0, winner).n.to_list()


def test_concurrent_shards_publish_the_output(url):
    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda index: hyperplane.save(rows(index), url, shard=(index, 8)), range(8))
        )
    assert any(result.complete for result in results)
    assert missing_shards(url) == []
    assert hyperplane.load(url).compute().n.to_list() == list(range(80))
    beside = commit_protocol_for(resolve_target(url, None)).store_files.list_files(
        resolve_target(url, None).metadata_folder
    )
    assert not [name for name in beside if name.startswith(("attempt", "shards"))]


def test_invalid_shards_are_refused(tmp_path):
    for shard in ((2, 2), (-1, 2), (0,), "0/2", (0.0, 2)):
        with pytest.raises(RequestError, match="0 <= index < count"):
            hyperplane.save(rows(0), tmp_path / "out", shard=shard)
    with pytest.raises(RequestError, match="omit shard="):
        hyperplane.save({"a": 1}, tmp_path / "out", shard=(0, 2))


def test_no_output_mixes_shards_of_two_runs(url):
    def save(index, add, run):
        return hyperplane.save(
            rows(index, add), url, shard=(index, 2), mode="overwrite", run=run
        ).complete

    assert [save(0, 0, "a"), save(1, 0, "a")] == [False, True]
    assert not hyperplane.save(rows(0), url, shard=(0, 2), mode="overwrite", run="a").changed
    with pytest.raises(OutputConflict, match="run="):
        save(0, 5, "a")
    assert [save(0, 5, "b"), save(1, 9, "c")] == [False, False]
    assert hyperplane.load(url).compute().n.to_list() == list(range(20))
    with pytest.raises(RequestError, match=r"'b' \(of 2 shards\), 'c'"):
        missing_shards(url)
    assert missing_shards(url, run="b") == [1]
    assert save(1, 5, "b")
    assert hyperplane.load(url).compute().n.to_list() == [*range(5, 15), *range(15, 25)]
    assert missing_shards(url) == [0]
    with pytest.raises(RequestError, match="shared by all shards of this run"):
        hyperplane.save(rows(0), url, shard=(0, 2), mode="overwrite")


def test_parts_reused_by_a_run_survive_a_save_that_replaces_them(url):
    for index in (0, 1):
        hyperplane.save(rows(index), url, shard=(index, 2))
    same = hyperplane.save(rows(0), url, shard=(0, 2), mode="overwrite", run="b")
    assert (same.written, same.complete) == (0, False)
    hyperplane.save(dd.from_pandas(rows(7), npartitions=1), url, mode="overwrite")
    assert hyperplane.save(rows(1, 5), url, shard=(1, 2), mode="overwrite", run="b").complete
    assert hyperplane.load(url).compute().n.to_list() == [*range(10), *range(15, 25)]


def test_shards_with_mode_error_do_not_replace_a_concurrent_save(url):
    hyperplane.save(rows(0), url, shard=(0, 2))

    def slow(part):
        hyperplane.save(dd.from_pandas(rows(7), npartitions=1), url)
        return part

    late = dd.from_pandas(rows(1), npartitions=1).map_partitions(slow, meta=rows(1))
    with pytest.raises(OutputConflict):
        hyperplane.save(late, url, shard=(1, 2))
    assert hyperplane.load(url).compute().n.to_list() == list(range(70, 80))


def test_a_committed_shard_is_skipped_before_it_is_computed(url):
    hyperplane.save(rows(0), url, shard=(0, 2))

    def never(part):
        raise AssertionError("it was computed")

    lazy = dd.from_pandas(rows(0), npartitions=2).map_partitions(never, meta=rows(0))
    assert not hyperplane.save(lazy, url, shard=(0, 2), mode="skip").changed
    assert missing_shards(url) == [1]


def test_shards_of_different_columns_are_not_published(url):
    hyperplane.save(rows(0), url, shard=(0, 2))
    with pytest.raises(OutputConflict, match="different columns"):
        hyperplane.save(rows(1).rename(columns={"n": "m"}), url, shard=(1, 2))
    with pytest.raises(StorageError, match="nothing is saved there"):
        hyperplane.load(url)


def test_runs_of_several_counts_are_named_by_missing_shards(url):
    """A job whose number of chunks was changed saves another count beside what it has left."""
    hyperplane.save(rows(0), url, shard=(0, 2))
    hyperplane.save(rows(1), url, shard=(1, 3))
    with pytest.raises(RequestError, match=r"'' .of 2 shards., '' .of 3 shards.; .*clean"):
        missing_shards(url)
    hyperplane.storage.clean(url, older_than=0)
    assert not hyperplane.save(rows(1), url, shard=(1, 3)).complete
    assert missing_shards(url) == [0, 2]


def test_load_names_the_missing_shards(url):
    hyperplane.save(rows(1), url, shard=(1, 3))
    with pytest.raises(StorageError, match=r"yet: 2 shards of 3 missing \(0, 2\)"):
        hyperplane.load(url)
    hyperplane.save(rows(1), url, shard=(1, 2), run="b")
    with pytest.raises(StorageError, match=r"1 shard of run 'b' of 2 missing \(0\); 2 shards of 3"):
        hyperplane.load(url)
