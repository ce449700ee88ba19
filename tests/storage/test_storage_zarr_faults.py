"""Zarr on a store with faults, and written by tasks that run twice."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import dask
import dask.array as da
import faulty
import numpy as np
import pytest
import store_errors
import xarray as xr
from scale import FULL, scaled

import hyperplane
from hyperplane.errors import StorageError
from hyperplane.objectstore import retrying


@pytest.fixture
def hurried(monkeypatch):
    """Shorten the waits between attempts."""
    monkeypatch.setattr(retrying, "FIRST_WAIT", 0.002)
    monkeypatch.setattr(retrying, "MAX_WAIT", 0.05)


def grid(version=0):
    return da.from_array(np.arange(1.0, 401).reshape(20, 20) + 1000 * version, chunks=2)


@pytest.mark.slow
@pytest.mark.parametrize("like", scaled(["gcs"], ["plain", "gcs", "s3"]))
def test_arrays_are_saved_on_a_store_with_faults(faulty_store, hurried, like):
    store = faulty_store(
        like=like, transient=0.08, lost=0.03, listing_delay=1.0, writes_per_second=400, seed=5
    )
    url, options = f"{store.url}/a.zarr", store.options
    for version in (0, 1):
        dataset = xr.Dataset({"v": (("y", "x"), grid(version)), "n": ("x", np.arange(20))})
        hyperplane.save(dataset, url, mode="overwrite", storage_options=options)
        time.sleep(1.1)  # until other processes see the new version
        found = hyperplane.load(url, storage_options=options).compute()
        assert (found.v == grid(version).compute()).all()
        assert (found.n == np.arange(20)).all()
    objects = store.objects()
    assert sum(name.startswith("bucket/a.zarr/v/c/") for name in objects) == 100
    store.set(transient=0, lost=0, listing_delay=0, writes_per_second=None)
    plain = xr.open_zarr(url, storage_options=options)
    assert (plain.v.compute() == grid(1).compute()).all()
    outcomes = {call.outcome for call in store.journal()}
    assert outcomes >= {"ok", "lost"}
    assert outcomes & set(store_errors.TRANSIENT)


def test_a_permanent_error_is_raised_and_nothing_is_published(faulty_store, hurried):
    store = faulty_store()
    url, options = f"{store.url}/a.zarr", store.options
    hyperplane.save(grid(), url, storage_options=options)
    store.set(permanent="403", only="*/data/c/*")
    with pytest.raises(StorageError, match="permission denied"):
        hyperplane.save(grid(1), url, mode="overwrite", storage_options=options)
    store.set(permanent=None)
    assert (hyperplane.load(url, storage_options=options).compute() == grid().compute()).all()


def test_the_first_result_of_a_task_that_runs_twice_is_saved(tmp_path, monkeypatch):
    from hyperplane.storage import zarr_writing

    counter, write = itertools.count(), zarr_writing.write_block

    def twice(block, path, region, writing):
        first = write(block, path, region, writing)
        again = write(block + next(counter) + 1, path, region, writing)
        assert again == first  # the first file remains
        return again

    monkeypatch.setattr(zarr_writing, "write_block", twice)
    hyperplane.save(grid(), tmp_path / "a.zarr")
    assert (hyperplane.load(tmp_path / "a.zarr").compute() == grid().compute()).all()


def test_results_shared_by_two_variables_are_computed_once(tmp_path):
    seen = []
    source = grid().map_blocks(lambda block: seen.append(1) or block, dtype=float, meta=np.ones(0))
    dataset = xr.Dataset({"a": (("y", "x"), source + 1), "b": (("y", "x"), source * 2)})
    with dask.config.set(scheduler="sync"):
        hyperplane.save(dataset, tmp_path / "a.zarr")
    assert len(seen) == 100
    assert (hyperplane.load(tmp_path / "a.zarr").b.compute() == grid().compute() * 2).all()


@pytest.mark.skipif(not FULL, reason="test_storage_zarr.py has workers, too: at full scale")
@pytest.mark.cluster
def test_workers_write_the_chunks(faulty_store, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    store = faulty_store(transient=0.05)
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    with cluster, client:
        client.run(faulty.register)
        for url, options in ((f"{store.url}/a.zarr", store.options), (f"{tmp_path}/a.zarr", {})):
            dataset = xr.Dataset({"v": (("y", "x"), grid().rechunk(10))})
            result = hyperplane.save(dataset, url, storage_options=options)
            assert (result.files, result.written) == (6, 6)
            assert not hyperplane.save(dataset, url, storage_options=options).changed
            held = hyperplane.load(url, storage_options=options)
            assert (held.v.compute() == grid().compute()).all()
            hyperplane.save(dataset + 1, url, mode="overwrite", storage_options=options)
            with pytest.raises(hyperplane.errors.ReadError, match="load it again"):
                held.compute()
    pids = {call.pid for call in store.journal() if "/c/" in call.path and call.op == "create"}
    assert os.getpid() not in pids
