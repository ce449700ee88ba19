"""Forecasts of ``hyperplane.save(..., compute=False)``, which write nothing to the target."""

from __future__ import annotations

from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from dask.delayed import Delayed

import hyperplane
from hyperplane.collections.frames import exchange_memory
from hyperplane.core.artifact_reports import REPORTS_FOLDER
from hyperplane.core.dask_internals.tasks import Task
from hyperplane.forecasts.collection_graph import make_request, materialize
from hyperplane.forecasts.exact_inputs import plan_steps
from hyperplane.forecasts.past_runs import JobSize
from hyperplane.forecasts.reasons import find_graph_reasons
from hyperplane.forecasts.sample_process import SampleRunner
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.result import SaveResult


@pytest.fixture(scope="module")
def plan():
    return hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("events")
    numbers = np.arange(20_000)
    for part in range(8):
        frame = pd.DataFrame({"k": numbers + 10_000 * part, "v": numbers * 0.5, "g": numbers % 3})
        frame.to_parquet(path / f"{part}.parquet")
    return path


def list_all(url):
    """Return all files and folders where a target is, with their contents."""
    if "://" in str(url):
        store = fsspec.filesystem("memory")
        return sorted(store.pseudo_dirs), {path: f.getvalue() for path, f in store.store.items()}
    found = sorted(Path(url).parent.rglob("*"))
    return found, {path: path.read_bytes() for path in found if path.is_file()}


def run_sample(job, tmp_path):
    """Run the sample of a job in this process; return its graph, records and results."""
    graph = materialize(job, {})
    assert not find_graph_reasons(graph)
    steps = plan_steps(graph, 0.05)
    (tmp_path / "written").mkdir()
    request = make_request(graph, steps, str(tmp_path / "written"), {})
    runner = SampleRunner(request, tmp_path)
    results = []
    for number, task in enumerate(request.tasks):
        record, values = runner._run_step(number)
        results.append((record, values))
        for key, size in zip(task.outputs, record.outputs, strict=True):
            runner._results[number, key], runner._sizes[number, key] = values[key], size
    return graph, results


SAVES = {
    "frame": (lambda folder: dd.read_parquet(folder), "out"),
    "our reader": (lambda folder: hyperplane.dataframe.read(folder), "out"),
    "text": (lambda folder: dd.read_parquet(folder)[["k"]], "out.csv"),
    "bag": (lambda folder: db.range(8000, npartitions=8).map(lambda n: {"n": n}), "bag"),
    "array": (lambda folder: da.arange(8000, chunks=1000).astype(float), "a.zarr"),
    "table": (lambda folder: pd.DataFrame({"n": range(1000)}), "t.parquet"),
}


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("mode", ["error", "overwrite"])
@pytest.mark.parametrize("kind", SAVES)
def test_a_sample_writes_nothing_to_the_target(kind, mode, place, folder, tmp_path, monkeypatch):
    monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "reports"))
    make, name = SAVES[kind]
    top = "memory://forecast" if place == "memory" else str(tmp_path / "target")
    url = f"{top}/{name}"
    fsspec.filesystem("memory").store.clear()
    if mode == "overwrite":
        monkeypatch.delenv(REPORTS_FOLDER)
        hyperplane.save(make(folder), url)
        monkeypatch.setenv(REPORTS_FOLDER, str(tmp_path / "reports"))
    later = hyperplane.save(make(folder), url, mode=mode, compute=False)
    before = list_all(url)
    sample = tmp_path / "sample"
    sample.mkdir()
    used, call = set(), StoreFiles.call
    monkeypatch.setattr(
        StoreFiles, "call", lambda self, path, *rest: used.add(path) or call(self, path, *rest)
    )
    graph, results = run_sample(later, sample)
    assert list_all(url) == before
    assert used
    assert all(path.startswith(str(sample)) for path in used)  # no request to the target
    assert not (tmp_path / "reports").exists()
    assert not graph.units.kinds[0].startswith("save-start")
    assert sum(record.written > 0 for record, _ in results) >= min(3, len(results) - 1)
    (last,) = results[-1][1].values()
    assert isinstance(last, SaveResult)
    if kind in ("frame", "our reader"):
        files = sum(path.stat().st_size for path in folder.iterdir())
        assert (graph.read_bytes, JobSize.of(graph).input) == (files, files)
        assert JobSize.of(graph).sources == 8
        assert sum(graph.info.weights.values()) == files
    fsspec.filesystem("memory").store.clear()


def test_an_output_that_is_kept_is_not_read(tmp_path):
    url = tmp_path / "target" / "out"
    frame = dd.from_pandas(pd.DataFrame({"n": range(10)}), npartitions=2)
    hyperplane.save(frame, url)
    later = hyperplane.save(frame, url, mode="skip", compute=False)
    before = list_all(url)
    (tmp_path / "sample").mkdir()
    _, results = run_sample(later, tmp_path / "sample")
    assert [record.written for record, _ in results] == [0] * len(results)
    assert list_all(url) == before


def count_rows(result):
    return result.rows


def test_tasks_that_are_fused_are_redirected(folder, tmp_path):
    target = tmp_path / "target" / "out"
    later = hyperplane.save(dd.read_parquet(folder)[["k"]], target, compute=False)
    # A task that uses the result is fused with the one that publishes the output.
    key = "count-rows"
    used = Task(key, count_rows, *[node.ref() for node in [later.dask[later.key]]])
    graph = {**later.dask, key: Task.fuse(later.dask[later.key], used)}
    del graph[later.key]
    (tmp_path / "sample").mkdir()
    _, results = run_sample(Delayed(key, graph), tmp_path / "sample")
    assert results[-1][1][key] > 0
    assert not target.parent.exists()
    # And a task that writes with the one that reads its partition.
    assert not [key for key in graph if "read" in str(key)]


@pytest.mark.parametrize("in_files", [False, True])
def test_joins_and_shuffles_are_found_in_fused_tasks(in_files, tmp_path, monkeypatch):
    if in_files:
        monkeypatch.setattr(exchange_memory, "_SHARE_IN_MEMORY", 0)
    tables = [
        dd.from_pandas(pd.DataFrame({"key": np.arange(256_000), side: 1.0}), npartitions=16)
        for side in ("left", "right")
    ]
    joined = hyperplane.dataframe.join(*tables, "key")
    alone = materialize(joined, {}).info
    saved = materialize(hyperplane.save(joined, tmp_path / "out", compute=False), {}).info
    assert len(saved.receivers) == len(alone.receivers) > 1
    assert len(saved.taken) == len(alone.taken)
    assert bool(saved.taken) == in_files
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        later = hyperplane.save(tables[0].shuffle("key"), tmp_path / "out", compute=False)
    taken = [place[1:] for each in materialize(later, {}).info.takes.values() for place in each]
    assert sorted(taken) == [(number, 16) for number in range(16)]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_forecast_counts_what_the_save_writes(place, plan, folder, tmp_path):
    url = "memory://forecast/out" if place == "memory" else str(tmp_path / "target" / "out")
    later = hyperplane.save(dd.read_parquet(folder), url, compute=False)
    before = list_all(url)
    found = hyperplane.forecast(later, plan, history=False)
    assert not found.refused, found.reasons
    assert list_all(url) == before
    assert found.read == sum(path.stat().st_size for path in folder.iterdir())
    assert found.written == pytest.approx(later.compute().nbytes, rel=0.05)
    assert found.job.model.written > 0  # which chooses the interval


def fail(part):
    raise ValueError("a fault of the user")


@pytest.mark.slow
@pytest.mark.process
def test_a_sample_that_fails_leaves_nothing_at_the_target(plan, folder, tmp_path):
    frame = dd.read_parquet(folder)
    job = frame.map_partitions(fail, meta=frame._meta)
    later = hyperplane.save(job, tmp_path / "target" / "out", compute=False)
    found = hyperplane.forecast(later, plan, history=False)
    assert found.refused
    assert "a fault of the user" in found.reasons[0]
    assert list(tmp_path.iterdir()) == []


def test_jobs_that_cannot_be_forecast_name_the_saves_that_can(folder, tmp_path):
    chunks = da.ones((1_000, 1_000), chunks=500)
    job = chunks.store(np.empty((1_000, 1_000)), compute=False)
    (reason,) = find_graph_reasons(materialize(job, {}))
    assert "only hyperplane.save and to_parquet can be forecast, with compute=False" in reason
