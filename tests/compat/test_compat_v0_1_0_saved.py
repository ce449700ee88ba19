"""Data saved by version 0.1.0 is loaded, appended to, completed and cleaned by this version."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from release import DATA, Release, contains, digest

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, StorageError
from hyperplane.storage import clean, missing_shards
from scripts.compat.fixtures.descriptions import describe
from scripts.compat.fixtures.killed_saves import fill
from scripts.compat.fixtures.relocation import this_system
from scripts.compat.fixtures.saved_data import OBJECTS

#: Descriptions of saved data as 0.1.0 has loaded it.
LOADED = json.loads((DATA / "v0.1.0" / "expected" / "saved.json").read_text())

COPIED = ("frame.parquet", "frame.csv", "array.zarr")


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Files that no test changes."""
    return Release("0.1.0", tmp_path_factory.mktemp("released") / "release")


def copy(release: Release, folder: Path) -> Path:
    """Copy saved data, with manifests named after the inodes of the copies."""
    shutil.copytree(release.place / "saved", folder)
    for beside in folder.glob(".*.hyperplane"):
        target = folder / beside.name[1:].removesuffix(".hyperplane")
        manifests = list(beside.glob("*-*.json"))
        if target.exists() and len(manifests) == 1:
            key = manifests[0].stem.rpartition("-")[0]
            manifests[0].rename(beside / f"{key}-{target.stat().st_ino}.json")
    return folder


@pytest.fixture(scope="module")
def unchanged(release: Release) -> Path:
    return copy(release, release.top / "unchanged")


@pytest.fixture
def saved(release: Release, tmp_path: Path) -> Path:
    return copy(release, tmp_path / "saved")


@pytest.fixture
def bucket(release: Release, monkeypatch: pytest.MonkeyPatch) -> str:
    """An object store with the files that 0.1.0 has saved to one."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    fill(release.place / "objects")
    return "memory://bucket"


def rows_of(loaded: Any) -> list[tuple[Any, ...]]:
    return list(loaded.compute().itertuples(index=False, name=None))


def rows(version: str) -> Any:
    frame = pd.DataFrame({"row": range(4), "version": version})
    return dd.from_pandas(frame, npartitions=2)


@pytest.mark.parametrize("name", [name for name in LOADED if "://" not in name])
def test_saved_data_is_loaded_with_the_same_types_and_values(
    release: Release, unchanged: Path, name: str
) -> None:
    expected = release.expected("saved")[name]
    assert contains(describe(hyperplane.load(unchanged / name)), expected) == []


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_of_saved_data_is_loaded(release: Release, name: str) -> None:
    expected = release.expected("saved")[name]
    found = hyperplane.load(release.place / "saved" / name)
    assert contains(describe(found), expected) == []


def test_the_manifest_is_read(saved: Path) -> None:
    (saved / "frame.csv" / "part-00000-more.csv").write_text("a\n")
    with pytest.raises(StorageError, match="part-00000-more"):
        hyperplane.load(saved / "frame.csv")


def test_checksums_are_checked(saved: Path) -> None:
    part = next((saved / "frame.csv").iterdir())
    part.write_bytes(part.read_bytes().replace(b"0.5", b"0.6").replace(b"True", b"Tru3"))
    with pytest.raises(hyperplane.errors.ReadError):
        hyperplane.load(saved / "frame.csv").compute()


def test_the_same_is_not_saved_again(saved: Path) -> None:
    assert not hyperplane.save({"depth": 3, "names": ["a", "ß"]}, saved / "settings.json").changed
    assert not hyperplane.save(rows("any"), saved / "frame.parquet", mode="skip").changed
    with pytest.raises(OutputExists):
        hyperplane.save(rows("other"), saved / "frame.csv")


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_rows_are_appended_once_for_each_run(saved: Path, end: str) -> None:
    url = saved / f"appended.{end}"
    before = rows_of(hyperplane.load(url))
    if end == "csv":  # whose bytes no library changes
        same = rows("first").assign(version="more")
        assert not hyperplane.save(same, url, mode="append", run="monday").changed
    with pytest.raises(OutputConflict):
        hyperplane.save(rows("other"), url, mode="append", run="monday")
    hyperplane.save(rows("tuesday"), url, mode="append", run="tuesday")
    after = [(row, "tuesday") for row in range(4)]
    assert rows_of(hyperplane.load(url)) == before + after


def test_saved_data_is_replaced(saved: Path) -> None:
    hyperplane.save(rows("third"), saved / "overwritten.parquet", mode="overwrite")
    assert {version for _, version in rows_of(hyperplane.load(saved / "overwritten.parquet"))} == {
        "third"
    }
    assert len(list((saved / ".overwritten.parquet.hyperplane").glob("*.json"))) == 1


def shard(number: int) -> pd.DataFrame:
    return pd.DataFrame({"row": [2 * number, 2 * number + 1], "shard": f"number {number}"})


def complete(url: str) -> None:
    """Save the shards that 0.1.0 has not saved."""
    assert missing_shards(url) == [1, 3]
    with pytest.raises(OutputConflict):
        hyperplane.save(shard(9), url, shard=(2, 4))
    assert not hyperplane.save(shard(1), url, shard=(1, 4)).complete
    assert hyperplane.save(shard(3), url, shard=(3, 4)).complete
    expected = [(row, f"number {row // 2}") for row in range(8)]
    assert rows_of(hyperplane.load(url)) == expected
    assert missing_shards(url) == []


def test_shards_of_a_run_are_completed(saved: Path) -> None:
    complete(str(saved / "half.parquet"))


def test_shards_of_a_run_that_is_complete_are_known(saved: Path) -> None:
    url = str(saved / "sharded.parquet")
    assert missing_shards(url, run="night-1") == []
    with pytest.raises(OutputConflict):
        hyperplane.save(shard(9), url, shard=(2, 3), run="night-1")


def test_leftovers_of_a_killed_save_are_not_read_and_are_removed(saved: Path) -> None:
    url = saved / "killed.parquet"
    [left] = (saved / ".killed.parquet.hyperplane").glob("attempt-*")
    assert list(left.rglob("*.parquet"))
    assert {version for _, version in rows_of(hyperplane.load(url))} == {"first"}
    # It is of another machine, where the save may still run.
    assert clean(url).kept == (left.name,)
    here = f"{socket.gethostname()}-{digest(this_system(), 8)}"
    token = left.name.rpartition("-")[2]
    number = Path("/proc/sys/kernel/pid_max").read_text().strip()  # of no process
    dead = left.rename(left.with_name(f"attempt-{here}-{number}-{token}"))
    assert clean(url).removed == (dead.name,)
    assert not dead.exists()
    assert {version for _, version in rows_of(hyperplane.load(url))} == {"first"}


def test_leftovers_of_another_machine_are_removed_when_they_are_old(saved: Path) -> None:
    [left] = (saved / ".killed.parquet.hyperplane").glob("attempt-*")
    yesterday = time.time() - 100_000
    for file in left.rglob("*"):
        os.utime(file, (yesterday, yesterday))
    assert clean(saved / "killed.parquet").removed == (left.name,)


def test_a_folder_moved_for_a_rename_is_restored(saved: Path) -> None:
    assert not (saved / "aside.parquet").exists()
    found = rows_of(hyperplane.load(saved / "aside.parquet"))
    assert found == [(row, "first") for row in range(4)]


def test_a_folder_of_files_is_known(unchanged: Path) -> None:
    with pytest.raises(StorageError):
        hyperplane.load(unchanged / "report")
    assert hyperplane.load(unchanged / "report" / "index.html") == "<p>1</p>\n"


def test_a_frozen_listing_is_read(release: Release) -> None:
    inputs, listing = release.place / "inputs", release.place / "saved" / "listing.json"
    (inputs / "part-3.csv").write_text("a\n1\n")
    found = [
        Path(file).name
        for number in range(2)
        for file in hyperplane.shard_files(f"{inputs}/*.csv", 2, number, frozen=listing)
    ]
    assert found == ["part-1.csv", "part-2.csv", "part-10.csv"]


@pytest.mark.parametrize("name", OBJECTS)
def test_data_saved_to_an_object_store_is_loaded(release: Release, bucket: str, name: str) -> None:
    url = f"{bucket}/{name}"
    assert contains(describe(hyperplane.load(url)), release.expected("saved")[url]) == []


def test_a_commit_whose_parts_were_not_copied_is_loaded_and_finished(bucket: str) -> None:
    url = f"{bucket}/published.parquet"
    names = {Path(name).name for name in MemoryFileSystem().ls("/bucket/published.parquet", False)}
    assert rows_of(hyperplane.load(url)) == [(row, "second") for row in range(6)]
    clean(url)
    files = MemoryFileSystem().ls("/bucket/published.parquet", False)
    assert not names & {Path(name).name for name in files}
    assert MemoryFileSystem().exists("/bucket/.published.parquet.hyperplane/commit-00000002.done")
    assert rows_of(hyperplane.load(url)) == [(row, "second") for row in range(6)]
    hyperplane.save(rows("third"), url, mode="overwrite")
    assert MemoryFileSystem().exists("/bucket/.published.parquet.hyperplane/commit-00000003.json")


def test_shards_of_a_run_are_completed_on_an_object_store(bucket: str) -> None:
    complete(f"{bucket}/half.parquet")
