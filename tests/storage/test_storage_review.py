"""Cases found in a review of saving: late writers, interrupted writers, equal names."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, RequestError, StorageError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage import missing_shards, part_saving
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.manifest_commit import ManifestCommit
from hyperplane.storage.rename_commit import RenameCommit
from hyperplane.storage.staging_folders import staging_folder


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def frame(version, partitions=4):
    table = pd.DataFrame({"n": range(40), "v": version})
    return dd.from_pandas(table, npartitions=partitions)


def version_of(url, options):
    found = hyperplane.load(url, storage_options=options).compute()
    assert found.n.to_list() == list(range(40))
    (version,) = set(found.v)
    return version


def test_a_temporary_file_of_a_killed_shard_does_not_count_as_a_shard(tmp_path):
    url = str(tmp_path / "out")
    rows = pd.DataFrame({"n": [1, 2]})
    for index in (0, 1):
        hyperplane.save(rows + index, url, shard=(index, 3))
    records = tmp_path / ".out.hyperplane" / "shards-3-first" / "records"
    (records / ".00002.json.0123456789ab.part").write_text("half")
    assert not hyperplane.save(rows + 1, url, shard=(1, 3)).complete
    assert missing_shards(url) == [2]
    assert hyperplane.save(rows + 2, url, shard=(2, 3)).complete
    assert hyperplane.load(url).n.compute().to_list() == [1, 2, 2, 3, 3, 4]


def test_shards_that_commit_concurrently_are_all_published(tmp_path):
    for turn in range(20):
        url = str(tmp_path / f"out-{turn}")

        def one(index, url=url):
            return hyperplane.save(pd.DataFrame({"n": [index]}), url, shard=(index, 3))

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, range(3)))
        assert missing_shards(url) == []
        assert hyperplane.load(url).n.compute().to_list() == [0, 1, 2]


def test_a_writer_overtaken_by_two_others_gets_an_error(faulty_store):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options
    hyperplane.save(frame(0), url, storage_options=options)
    overtaken = []

    def slow(part):
        if not overtaken:
            overtaken.append(1)
            for version in (1, 2):
                hyperplane.save(frame(version), url, mode="overwrite", storage_options=options)
        return part

    late = frame(9).map_partitions(slow, meta=frame(9)._meta)
    with pytest.raises(OutputConflict):
        hyperplane.save(late, url, mode="overwrite", storage_options=options)
    assert version_of(url, options) == 2
    assert len([name for name in store.objects() if name.startswith("bucket/out/")]) == 4


def test_a_late_commit_does_not_remove_a_newer_version(faulty_store, monkeypatch):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options
    hyperplane.save(frame(0), url, storage_options=options)
    copy, overtaken = StoreFiles.copy, []

    def overtaking(self, path, to):
        copy(self, path, to)
        if not overtaken:
            overtaken.append(1)
            hyperplane.save(frame(2), url, mode="overwrite", storage_options=options)

    monkeypatch.setattr(StoreFiles, "copy", overtaking)
    hyperplane.save(frame(1), url, mode="overwrite", storage_options=options)
    assert version_of(url, options) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_commit_interrupted_before_its_copies_is_completed(faulty_store, monkeypatch, error):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options
    hyperplane.save(frame(0), url, storage_options=options)

    def fail(self, path, to):
        raise error("now")

    with monkeypatch.context() as patch:
        patch.setattr(StoreFiles, "copy", fail)
        with pytest.raises(error):
            hyperplane.save(frame(1), url, mode="overwrite", storage_options=options)
    assert version_of(url, options) == 1
    assert not hyperplane.save(frame(1), url, storage_options=options).changed
    plain = [name for name in store.objects() if name.startswith("bucket/out/")]
    assert len(plain) == 4
    assert version_of(url, options) == 1


def test_arrays_of_one_shape_are_distinguished_after_an_interrupted_save(tmp_path, monkeypatch):
    url = str(tmp_path / "a.zarr")
    hyperplane.save(da.ones((4, 4), chunks=2), url)

    def cut_off(staged, path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hyperplane.storage.rename_commit._exchange", cut_off)
        with pytest.raises(KeyboardInterrupt):
            hyperplane.save(da.ones((4, 4), chunks=2) * 7, url, mode="overwrite")
    assert (hyperplane.load(url).compute() == 1).all()
    assert hyperplane.save(da.ones((4, 4), chunks=2) * 7, url, mode="overwrite").changed
    assert (hyperplane.load(url).compute() == 7).all()


def test_one_of_two_array_writers_gets_an_error(tmp_path, monkeypatch):
    url = str(tmp_path / "a.zarr")
    hyperplane.save(da.ones((4, 4), chunks=2), url)
    publish, overtaken = RenameCommit.publish, []

    def overtaking(self, manifest, staged, base):
        if not overtaken:
            overtaken.append(1)
            hyperplane.save(da.ones((4, 4), chunks=2) * 5, url, mode="overwrite")
        return publish(self, manifest, staged, base)

    monkeypatch.setattr(RenameCommit, "publish", overtaking)
    with pytest.raises(OutputConflict):
        hyperplane.save(da.ones((4, 4), chunks=2) * 6, url, mode="overwrite")
    assert (hyperplane.load(url).compute() == 5).all()


def test_a_file_does_not_replace_a_folder(faulty_store, tmp_path):
    store = faulty_store()
    for url, options in ((f"{store.url}/out", store.options), (str(tmp_path / "out"), {})):
        hyperplane.save(frame(0), url, storage_options=options)
        for mode in ("error", "overwrite"):
            with pytest.raises(OutputExists, match="is a folder"):
                hyperplane.save(b"x", url, mode=mode, storage_options=options)
        assert version_of(url, options) == 0


def test_appending_parts_of_another_format_is_refused(tmp_path):
    url = str(tmp_path / "out")
    hyperplane.save(frame(0), url)
    with pytest.raises(RequestError, match="dataframe as parquet"):
        hyperplane.save(frame(1), url, mode="append", format="csv")
    assert version_of(url, {}) == 0


def test_saving_fewer_partitions_replaces_the_output(tmp_path):
    url = str(tmp_path / "out")
    df = frame(0)
    hyperplane.save(df, url)
    result = hyperplane.save(df.partitions[:2], url, mode="overwrite")
    assert (result.written, result.changed) == (0, True)
    assert len(list(Path(url).iterdir())) == 2


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_formats_round_trip_numbers_text_and_empty_partitions(tmp_path, form):
    table = pd.DataFrame(
        {
            "x": [0.12345678901234567, 1e-12, np.pi],
            "text": ["01234x", "1e5y", "c"],
            "n": [1, 2, 3],
        },
        index=[0, 1, 3],
    )
    df = dd.concat([dd.from_pandas(table.iloc[:0], npartitions=1), dd.from_pandas(table, 2)])
    hyperplane.save(df, tmp_path / "out", format=form)
    found = hyperplane.load(tmp_path / "out").compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, table.reset_index(drop=True), rtol=0, atol=0)


def test_a_cleanup_where_nothing_was_saved_says_so(tmp_path):
    report = hyperplane.storage.clean(tmp_path / "typo")
    assert (report.found, report.files) == (False, 0)
    assert str(report) == f"{tmp_path / 'typo'}: nothing was saved there; check the name"
    for name, content in (
        ("file.json", {"a": 1}),
        ("folder", dd.from_pandas(pd.DataFrame({"a": [1]}))),
    ):
        hyperplane.save(content, tmp_path / name)
        assert hyperplane.storage.clean(tmp_path / name).found
    for url in ("memory://docs/typo", "memory://docs/typo.parquet"):
        assert not hyperplane.storage.clean(url).found


def test_a_cleanup_removes_the_folder_of_a_first_save_that_failed(tmp_path):
    folder = tmp_path / ".out.hyperplane"
    attempt = folder / "attempt-other-1-0123456789ab" / "data"
    attempt.mkdir(parents=True)
    (attempt / "part-00000-1.parquet").write_bytes(b"half")
    report = hyperplane.storage.clean(tmp_path / "out", older_than=0, dry_run=True)
    assert (report.found, folder.exists()) == (True, True)
    hyperplane.storage.clean(tmp_path / "out")  # may still be in use
    assert attempt.exists()
    report = hyperplane.storage.clean(tmp_path / "out", older_than=0)
    assert (report.files, report.found, folder.exists()) == (1, True, False)
    hyperplane.save(dd.from_pandas(pd.DataFrame({"a": [1]})), tmp_path / "out")
    hyperplane.storage.clean(tmp_path / "out", older_than=0)
    assert folder.exists()  # of a saved output


def test_a_full_disk_names_the_command_that_removes_leftovers(tmp_path, monkeypatch):
    def fill_disk(*arguments):
        raise StorageError(str(tmp_path), "no space left; free some space, or save elsewhere (28)")

    monkeypatch.setattr(part_saving, "write_part", fill_disk)
    url = str(tmp_path / "out")
    with pytest.raises(StorageError, match="no space left") as caught:
        hyperplane.save(dd.from_pandas(pd.DataFrame({"a": [1]})), url)
    assert str(caught.value).endswith(
        f"hyperplane storage clean {url} removes what the save has left"
    )
    assert str(caught.value).count(str(tmp_path)) == 2


def test_cleanup_of_one_output_keeps_files_of_another(tmp_path):
    hyperplane.save(b"PAR1x", tmp_path / "cl.parquet")
    draft = tmp_path / ".cl.parquet.0123456789ab.part"
    draft.write_bytes(b"half")
    assert hyperplane.storage.clean(tmp_path / "cl", older_than=0).files == 0
    assert draft.exists()
    os.utime(draft, (0, 0))
    found = hyperplane.storage.clean(tmp_path / "cl.parquet")
    assert (found.files, found.nbytes, draft.exists()) == (1, 4, False)


def test_manifest_commits_remove_only_files_that_they_replace(faulty_store):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options
    hyperplane.save(frame(0), url, storage_options=options)
    hyperplane.save(b"notes", f"{url}/notes.txt", storage_options=options)
    hyperplane.save(frame(1), url, mode="overwrite", storage_options=options)
    assert "bucket/out/notes.txt" in store.objects()


@pytest.mark.process
@pytest.mark.parametrize("place", ["disk", "store"])
def test_leftovers_of_a_failed_save_are_removed_while_its_process_runs(
    place, tmp_path, faulty_store
):
    store = faulty_store() if place == "store" else None
    url, options = (f"{store.url}/out", store.options) if store else (str(tmp_path / "out"), {})
    hyperplane.save(frame(0), url, storage_options=options)
    commits = commit_protocol_for(resolve_target(url, options, {}))

    def left():
        return sorted(commits.store_files.list_files(commits.target.metadata_folder))

    before, goes_on = left(), staging_folder(commits)
    with staging_folder(commits) as staged:
        commits.store_files.put(f"{staged}/part", b"12")
    # A late task writes after its save has failed and cleaned up.
    commits.store_files.put(f"{staged}/late", b"123")
    running = goes_on.__enter__()
    commits.store_files.put(f"{running}/part", b"1234")
    look = [sys.executable, "-c", f"import hyperplane; print(hyperplane.storage.clean({url!r}))"]
    if store is None:  # other processes see the same files
        output = subprocess.run(look, capture_output=True, text=True, check=True).stdout
        assert output.startswith(f"{url}: 1 leftover file, 3 B\n"), output
    else:
        assert hyperplane.storage.clean(url, storage_options=options).nbytes == 3
    assert [name for name in left() if name not in before] == [
        running.removeprefix(f"{commits.target.metadata_folder}/") + "/part"
    ]
    goes_on.__exit__(None, None, None)
    assert left() == before


def test_cleanup_does_not_remove_published_parts_before_they_are_copied(faulty_store, monkeypatch):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options
    hyperplane.save(frame(0), url, storage_options=options)

    def fails(self, manifest):
        raise StorageError(url, "now")

    with monkeypatch.context() as patch:
        patch.setattr(ManifestCommit, "finish_commit", fails)
        with pytest.raises(StorageError):
            hyperplane.save(frame(1), url, mode="overwrite", storage_options=options)
        patch.setattr(
            ManifestCommit, "finish_interrupted", lambda self, state: None
        )  # it has published but not finished
        found = hyperplane.storage.clean(url, older_than=0, storage_options=options)
        assert [name[:8] for name in found.kept] == ["attempt-"]
    assert version_of(url, options) == 1
    hyperplane.storage.clean(url, older_than=0, storage_options=options)
    assert version_of(url, options) == 1
    assert not [name for name in store.objects() if "attempt-" in name]


def test_cleanup_removes_copied_parts_of_an_interrupted_save(faulty_store, monkeypatch):
    store = faulty_store()
    url, options = f"{store.url}/out", store.options

    def ends(self, folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreFiles, "remove_folder", ends)
        with pytest.raises(KeyboardInterrupt):
            hyperplane.save(frame(1), url, storage_options=options)
    assert [name for name in store.objects() if "attempt-" in name]
    found = hyperplane.storage.clean(url, older_than=0, storage_options=options)
    assert [name[:8] for name in found.removed] == ["attempt-"]
    assert not [name for name in store.objects() if "attempt-" in name]
    assert version_of(url, options) == 1
