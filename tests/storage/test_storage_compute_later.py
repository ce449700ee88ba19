"""``save(..., compute=False)`` returns a Delayed that keeps all promises of ``save``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.delayed import Delayed
from distributed import Client, LocalCluster
from saving_cases import PLACES, flights, in_this_thread, parts_of, places

import hyperplane
from hyperplane.core.artifact_reports import REPORTS_FOLDER
from hyperplane.core.dask_internals.tasks import DataNode
from hyperplane.errors import (
    OutputConflict,
    OutputExists,
    RequestError,
    StorageError,
    WrongType,
)
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage import array_tasks, part_tasks, staging_folders

_here = pytest.fixture(autouse=True)(in_this_thread)
base = pytest.fixture(params=PLACES)(places)


def frame(start=0, parts=4):
    return dd.from_pandas(flights(start=start), npartitions=parts)


def list_all(base):
    """Return all files and folders, and what is in these files."""
    if "://" in base:
        store = fsspec.filesystem("memory").store
        return {path: file.getvalue() for path, file in store.items()}
    return {
        path: path.read_bytes() if path.is_file() else None for path in Path(base).parent.rglob("*")
    }


def find_keys(later):
    """Return the keys of the first task of a save, and of those that write."""
    keys = [key for key in later.dask if isinstance(key, str) and key.startswith("save-")]
    (start,) = [key for key in keys if key.startswith("save-start")]
    return start, [key for key in keys if key not in (start, later.key)]


def compute(later, keys, known):
    """Return results of tasks by key, with known results of others."""
    graph = {**later.dask, **{key: DataNode(key, value) for key, value in known.items()}}
    return dict(zip(keys, dask.get(graph, list(keys)), strict=True))


OBJECTS = {
    "frame": (lambda: frame(), "out"),
    "CSV": (lambda: frame(), "out.csv"),
    "bag": (lambda: db.from_sequence([{"n": n} for n in range(9)], npartitions=3), "bag"),
    "array": (lambda: da.arange(24, chunks=7).astype("float64"), "a.zarr"),
    "dataset": (
        lambda: xr.Dataset({"v": ("x", da.ones(8, chunks=4)), "w": ("x", np.arange(8))}),
        "d.zarr",
    ),
    "table": (lambda: flights(), "t.parquet"),
    "list": (lambda: [1, {"a": 2}], "l.json"),
    "numpy": (lambda: np.arange(5), "n.npy"),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_nothing_is_written_until_it_is_computed(base, kind, monkeypatch):
    make, name = OBJECTS[kind]
    before = list_all(base)
    later = hyperplane.save(make(), f"{base}/{name}", compute=False)
    assert isinstance(later, Delayed)
    assert list_all(base) == before
    result = later.compute()
    at_once = hyperplane.save(make(), f"{base}/{name}")
    assert not at_once.changed
    assert (result.changed, result.url) == (True, at_once.url)
    for figure in ("files", "rows", "nbytes"):
        assert getattr(result, figure) == getattr(at_once, figure)
    assert not [path for path in list_all(base) if "attempt" in str(path)]
    once = list_all(base)
    again = later.compute()
    assert (again.changed, again.files) == (False, result.files)
    assert list_all(base).keys() == once.keys()


def test_modes_are_those_of_the_output_when_it_is_computed(base):
    url = f"{base}/out"
    calls = {
        mode: hyperplane.save(frame(50), url, mode=mode, compute=False)
        for mode in ("error", "append", "overwrite", "skip")
    }
    hyperplane.save(frame(), url)
    first = parts_of(url)
    with pytest.raises(OutputExists) as caught:
        calls["error"].compute()
    with pytest.raises(OutputExists) as at_once:
        hyperplane.save(frame(50), url)
    assert str(caught.value).split("part ")[0] == str(at_once.value).split("part ")[0]
    assert "differs from the saved one; pass mode='overwrite'" in str(caught.value)
    assert (calls["skip"].compute().changed, parts_of(url)) == (False, first)
    assert (calls["append"].compute().files, calls["append"].compute().files) == (8, 12)
    assert set(first) < set(parts_of(url))
    result = calls["overwrite"].compute()
    assert (result.files, result.written) == (4, 4)
    assert len(parts_of(url)) == 4
    pd.testing.assert_frame_equal(hyperplane.load(url).compute(), flights(start=50))
    assert calls["error"].compute().changed is False
    assert not [path for path in list_all(base) if "attempt" in str(path)]


def test_a_run_appends_once(base):
    url = f"{base}/out"
    later = hyperplane.save(frame(), url, mode="append", run="a", compute=False)
    assert [later.compute().changed, later.compute().changed] == [True, False]
    other = hyperplane.save(frame(1), url, mode="append", run="a", compute=False)
    with pytest.raises(OutputConflict, match="has already appended other rows"):
        other.compute()
    assert not [path for path in list_all(base) if "attempt" in str(path)]


def test_arrays_have_the_same_modes(base):
    url = f"{base}/a.zarr"
    numbers = da.arange(24, chunks=6)
    hyperplane.save(numbers, url)
    with pytest.raises(OutputExists):
        hyperplane.save(numbers + 1, url, compute=False).compute()
    with pytest.raises(OutputExists, match=r"zarr\.json differs"):  # known without computing it
        hyperplane.save(numbers.astype("float32"), url, compute=False)
    assert not hyperplane.save(numbers + 1, url, mode="skip", compute=False).compute().changed
    changed = da.where(numbers == 3, 5, numbers)
    assert hyperplane.save(changed, url, mode="overwrite", compute=False).compute().written == 1
    assert (hyperplane.load(url).compute() == changed.compute()).all()


def test_what_is_known_is_an_error_of_the_call(base, tmp_path):
    url = f"{base}/out"
    with pytest.raises(RequestError) as caught:
        hyperplane.save(frame(), f"{url}_{{}}", format="x", mode="y", run="z", compute=False)
    assert len(caught.value.faults) == 4
    with pytest.raises(RequestError, match=r"compute = 'no': expected True or False"):
        hyperplane.save(frame(), url, compute="no")
    with pytest.raises(RequestError, match="as each shard is saved by the process"):
        hyperplane.save(frame(), url, shard=(0, 2), compute=False)
    (tmp_path / "f").write_text("x")
    with pytest.raises(RequestError, match=r"dask\.delayed\(hyperplane\.save\)"):
        hyperplane.save(tmp_path / "f", url, compute=False)
    hyperplane.save(frame(), url)
    before = list_all(base)
    with pytest.raises(OutputExists, match="something else is already saved"):
        hyperplane.save(frame(parts=3), url, compute=False)
    with pytest.raises(RequestError, match="without the columns 'delay'"):
        hyperplane.save(frame()[["n", "carrier", "at"]], url, mode="append", compute=False)
    with pytest.raises(RequestError, match="the kind and format of the saved parts"):
        hyperplane.save(db.from_sequence([{}]), url, mode="append", compute=False)
    assert list_all(base) == before


def test_files_of_others_are_an_error_of_the_call(tmp_path):
    flights().to_parquet(tmp_path / "out.parquet")
    with pytest.raises(OutputExists, match="something else is already saved"):
        hyperplane.save(frame(parts=1), tmp_path / "out.parquet", compute=False)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("text")
    with pytest.raises(OutputExists, match="are no tables"):
        hyperplane.save(frame(), tmp_path / "notes", mode="overwrite", compute=False)
    hyperplane.save(frame().reset_index(drop=True), tmp_path / "in")
    read = hyperplane.dataframe.read(tmp_path / "in")
    with pytest.raises(OutputExists, match="the rows are read from"):
        hyperplane.save(read, tmp_path / "in", mode="overwrite", compute=False)


def test_with_mode_skip_nothing_is_computed_if_something_is_saved(base):
    computed = []

    def watch(part):
        computed.append(1)
        return part

    url = f"{base}/out"
    hyperplane.save(frame(), url)
    watched = frame().map_partitions(watch, meta=frame()._meta)
    later = hyperplane.save(watched, url, mode="skip", compute=False)
    assert (later.compute().files, computed) == (4, [])
    fsspec.filesystem("memory").store.clear()
    shutil.rmtree(base, ignore_errors=True)
    with pytest.raises(OutputConflict, match="call save again"):
        later.compute()


def test_a_task_reads_and_writes_a_partition(tmp_path):
    """Otherwise a worker whose scheduler is slow to answer holds several partitions."""
    hyperplane.save(frame().reset_index(drop=True), tmp_path / "in")
    for source in (dd.read_parquet(tmp_path / "in"), hyperplane.dataframe.read(tmp_path / "in")):
        later = hyperplane.save(source, tmp_path / "out", compute=False)
        start, writes = find_keys(later)
        assert set(later.dask) == {start, later.key, *writes}
        assert len(writes) == 4
        assert {tuple(later.dask[key].dependencies) for key in writes} == {(start,)}


KINDS = {"frame": frame, "array": lambda n=0: da.arange(24, chunks=6) + n}


def save_as(kind, obj, url, **options):
    return hyperplane.save(obj, url, format=None if kind == "array" else "parquet", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_another_save_meanwhile_is_a_conflict(base, kind):
    url, make = f"{base}/o.zarr", KINDS[kind]
    for mode, mine, other in (("error", 0, 1), ("overwrite", 2, 3)):
        later = save_as(kind, make(mine), url, mode=mode, compute=False)
        start, _ = find_keys(later)
        known = compute(later, [start], {})
        save_as(kind, make(other), url, mode=mode)
        published = parts_of(url)
        with pytest.raises(OutputConflict, match="another process has saved there"):
            compute(later, [later.key], known)
        assert parts_of(url) == published
        assert not [path for path in list_all(base) if "attempt" in str(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_task_may_run_again_after_others_have_used_its_result(base, kind):
    """As after the loss of a worker that had its result."""
    url, make = f"{base}/o.zarr", KINDS[kind]
    later = save_as(kind, make(), url, compute=False)
    start, writes = find_keys(later)
    known = compute(later, writes[:2], compute(later, [start], {}))
    result = compute(later, [later.key], known)[later.key]
    assert result.written == len(parts_of(url)) >= 4
    assert not save_as(kind, make(), url).changed
    assert not [path for path in list_all(base) if "attempt" in str(path)]
    later = save_as(kind, make(1), url, mode="overwrite", compute=False)
    start, writes = find_keys(later)
    known = compute(later, writes[:2], compute(later, [start], {}))
    save_as(kind, make(2), url, mode="overwrite")
    with pytest.raises(OutputConflict, match="another process has saved there"):
        compute(later, [later.key], known)
    assert not save_as(kind, make(2), url).changed


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_task_may_run_again(base, kind):
    """As after the loss of a worker that had published the output."""
    url, make = f"{base}/o.zarr", KINDS[kind]
    for mode in ("error", "overwrite"):
        later = save_as(kind, make(len(mode)), url, mode=mode, compute=False)
        start, writes = find_keys(later)
        known = compute(later, [start], {})
        known |= compute(later, writes, known)
        first = compute(later, [later.key], known)[later.key]
        again = compute(later, [later.key], known)[later.key]
        assert replace(again, seconds=first.seconds) == first
        assert first.published
        assert not [path for path in list_all(base) if "attempt" in str(path)]


@pytest.mark.parametrize("begins_again", [False, True])
@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_tasks_may_run_again_after_the_last_one(base, mode, begins_again):
    """As after the loss of a worker that had published parts, and had some of the results."""
    url = f"{base}/out"
    if mode != "error":
        hyperplane.save(frame(1), url)
    later = hyperplane.save(frame(), url, mode=mode, compute=False)
    start, writes = find_keys(later)
    known = compute(later, [start], {})
    known |= compute(later, writes, known)
    first = compute(later, [later.key], known)[later.key]
    published = parts_of(url)
    kept = {key: known[key] for key in [writes[0]] + [start] * (not begins_again)}
    again = compute(later, [later.key], kept)[later.key]
    assert replace(again, seconds=first.seconds) == first
    assert parts_of(url) == published
    assert not [path for path in list_all(base) if "attempt" in str(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_task_may_run_twice_at_once(base, kind, monkeypatch):
    """As on a worker that is taken for lost, and on the one in its place."""
    url, make = f"{base}/o.zarr", KINDS[kind]
    later = save_as(kind, make(), url, compute=False)
    start, writes = find_keys(later)
    known = compute(later, [start], {})
    known |= compute(later, writes, known)
    name = "commit_files" if kind == "array" else "commit_parts"
    module = array_tasks if kind == "array" else part_tasks
    commit, results = getattr(module, name), []

    def let_the_other_finish(*arguments):
        monkeypatch.setattr(module, name, commit)
        results.append(compute(later, [later.key], known)[later.key])
        return commit(*arguments)

    monkeypatch.setattr(staging_folders, "LISTING_TIMEOUT", 0)
    monkeypatch.setattr(module, name, let_the_other_finish)
    results.append(compute(later, [later.key], known)[later.key])
    assert replace(results[0], seconds=results[1].seconds) == results[1]
    assert results[0].published
    assert not save_as(kind, make(), url).changed


def test_the_last_task_may_run_again_after_another_save_has_appended(base):
    url = f"{base}/out"
    hyperplane.save(frame(), url)
    later = hyperplane.save(frame(1), url, mode="append", compute=False)
    start, writes = find_keys(later)
    known = compute(later, [start], {})
    known |= compute(later, writes, known)
    first = compute(later, [later.key], known)[later.key]
    hyperplane.save(frame(2), url, mode="append")
    again = compute(later, [later.key], known)[later.key]
    assert (first.files, again.files, again.written, again.published) == (8, 12, 4, True)
    assert len(parts_of(url)) == 12


def fail(part, least=0):
    if part.n.min() >= least:
        raise ValueError("a fault of the user")
    return part


def test_what_a_failed_run_leaves_is_not_read_and_is_removed(base):
    url = f"{base}/out"
    hyperplane.save(frame(), url)
    meta, before = frame()._meta, list_all(base)
    df = frame(100).map_partitions(fail, 175, meta=meta)
    with pytest.raises(ValueError, match="a fault of the user"):
        hyperplane.save(df, url, mode="overwrite", compute=False).compute()
    left = [path for path in list_all(base) if "attempt" in str(path)]
    assert left
    pd.testing.assert_frame_equal(hyperplane.load(url).compute(), flights())
    assert not hyperplane.storage.clean(url).files  # it may still be in use
    assert hyperplane.storage.clean(url, older_than=0).files
    assert list_all(base).keys() == before.keys()
    only = frame().map_partitions(fail, meta=meta)  # which writes no part
    with pytest.raises(ValueError, match="a fault of the user"):
        hyperplane.save(only, url, mode="overwrite", compute=False).compute()
    hyperplane.storage.clean(url, older_than=0)
    assert list_all(base).keys() == before.keys()


def test_errors_of_tasks_name_the_part(base):
    odd = db.from_sequence([{"n": 1}, {"n": {1}}], npartitions=2)
    with pytest.raises(WrongType, match="part 1, item 0") as caught:
        hyperplane.save(odd, f"{base}/odd", compute=False).compute()
    with pytest.raises(WrongType) as at_once:
        hyperplane.save(odd, f"{base}/odd")
    assert str(caught.value) == str(at_once.value)


def test_a_full_disk_names_the_command_that_removes_leftovers(tmp_path, monkeypatch):
    def fill_disk(*arguments):
        raise StorageError(str(tmp_path), "no space left; free some space, or save elsewhere (28)")

    monkeypatch.setattr(part_tasks, "write_part", fill_disk)
    url = str(tmp_path / "out")
    with pytest.raises(StorageError, match="no space left") as caught:
        hyperplane.save(frame(), url, compute=False).compute()
    assert str(caught.value).endswith(
        f"hyperplane storage clean {url} removes what the save has left"
    )


def test_an_unwritable_target_fails_before_anything_is_computed(tmp_path):
    computed = []

    def watch(part):
        computed.append(1)
        return part

    (tmp_path / "file").write_text("x")
    df = frame().map_partitions(watch, meta=frame()._meta)
    later = hyperplane.save(df, tmp_path / "file" / "out", compute=False)
    with pytest.raises(StorageError):
        later.compute()
    assert not computed


def test_the_process_that_publishes_reports_the_output(tmp_path, monkeypatch):
    monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "reports"))
    calls = [
        hyperplane.save(obj, tmp_path / name, compute=False)
        for obj, name in ((frame(), "days"), ([1], "l.json"), (da.ones(3), "a.zarr"))
    ]
    assert not (tmp_path / "reports").exists()
    for later in calls:
        later.compute()
    [file] = (tmp_path / "reports").iterdir()
    reports = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["kind"], each["folder"], each["files"]) for each in reports] == [
        ("dataframe", True, 4), ("json", False, 1), ("array", True, 2)
    ]  # fmt: skip


@pytest.mark.service
def test_an_object_store_has_the_same_promises(s3):
    url, options = f"{s3.url}/out", s3.options
    later = hyperplane.save(frame(), url, storage_options=options, compute=False)
    files = resolve_target(s3.url + "/x", options).store.system
    assert files.find(s3.url) == []
    assert (later.compute().written, later.compute().written) == (4, 0)
    other = hyperplane.save(frame(9), url, mode="overwrite", storage_options=options, compute=False)
    start, writes = find_keys(other)
    known = compute(other, [start, *writes], {})
    pd.testing.assert_frame_equal(
        hyperplane.load(url, storage_options=options).compute(), flights()
    )
    assert compute(other, [other.key], known)[other.key].published
    files.invalidate_cache()
    assert not [path for path in files.find(s3.url) if "attempt" in path]
    loaded = hyperplane.load(url, storage_options=options).compute()
    pd.testing.assert_frame_equal(loaded, flights(start=9))


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_of_a_cluster_save_it(tmp_path, monkeypatch):
    monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "reports"))
    columns = {"n": np.arange(1000), "text": [f"ü{n}" for n in range(1000)]}
    df = dd.from_pandas(pd.DataFrame(columns), npartitions=8)
    numbers = da.arange(24, chunks=6)
    shuffled = df.assign(k=df.n % 7)
    with (
        dask.config.set(scheduler=None),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        calls = [
            hyperplane.save(df, tmp_path / "frame", compute=False),
            hyperplane.save(numbers, tmp_path / "a.zarr", compute=False),
            hyperplane.save(shuffled.shuffle("k"), tmp_path / "shuffled", compute=False),
        ]
        assert not list(tmp_path.iterdir())
        results = client.gather(client.compute(calls))
    assert [result.rows for result in results] == [1000, None, 1000]
    lines = [file.read_text().splitlines() for file in (tmp_path / "reports").iterdir()]
    assert sorted(json.loads(line)["files"] for each in lines for line in each) == [5, 8, 8]
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "frame").compute(), df.compute())
    assert (hyperplane.load(tmp_path / "a.zarr").compute() == np.arange(24)).all()
    assert hyperplane.load(tmp_path / "shuffled").n.sum().compute() == columns["n"].sum()
    assert not [path for path in tmp_path.rglob("*") if "attempt" in str(path)]


def kill_once(part, folder):
    """End the first worker process that computes the eighth partition."""
    if part.n.iloc[0] == 700 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.slow
@pytest.mark.cluster
def test_a_save_is_complete_after_a_worker_was_killed(tmp_path):
    df = dd.from_pandas(pd.DataFrame({"n": np.arange(1000)}), npartitions=10, sort=False)
    deadly = df.map_partitions(kill_once, tmp_path, meta=df._meta)
    with (
        dask.config.set(scheduler=None),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        later = hyperplane.save(deadly, tmp_path / "out", compute=False)
        result = client.compute(later).result()
    assert (tmp_path / "killed").exists()
    assert (result.rows, result.files, result.written) == (1000, 10, 10)
    pd.testing.assert_frame_equal(hyperplane.load(tmp_path / "out").compute(), df.compute())
    assert len(parts_of(tmp_path / "out")) == 10


@pytest.mark.cluster
def test_an_asynchronous_client_computes_it(tmp_path):
    async def try_it():
        async with Client(
            processes=False, asynchronous=True, dashboard_address=":0", n_workers=1
        ) as client:
            return await client.compute(hyperplane.save(frame(), tmp_path / "out", compute=False))

    with dask.config.set(scheduler=None):
        assert asyncio.run(try_it()).rows == 100
