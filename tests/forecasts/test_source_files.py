"""Files that tasks read, on local disks and in object stores, and their keys."""

from __future__ import annotations

import dask
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from pyarrow.fs import S3FileSystem

import hyperplane
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.forecasts.key_columns import find_key_columns
from hyperplane.forecasts.key_statistics import measure_keys
from hyperplane.forecasts.source_files import SourceFile, find_source_files, measure_files

FILES, ROWS = 6, 2_000


def write_tables(system, top):
    """Write Parquet, CSV and text files of increasing size; return their bytes by format."""
    sizes = {}
    for number in range(FILES):
        count = ROWS * (number + 1)
        frame = pd.DataFrame({"k": np.arange(count) % 700, "v": np.arange(count) * 0.5})
        frame.loc[: count // 2, "k"] = 7
        for name, content in (
            ("parquet", frame.to_parquet(index=False)),
            ("csv", frame.to_csv(index=False).encode()),
            ("txt", b"some words\n" * count),
        ):
            path = f"{top}/{name}/part-{number}.{name}"
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(path, content)
            sizes[name] = sizes.get(name, 0) + len(content)
    return sizes


READERS = {
    "parquet": lambda url, options: dd.read_parquet(f"{url}/parquet", storage_options=options),
    "csv": lambda url, options: dd.read_csv(f"{url}/csv/*.csv", storage_options=options),
    "txt": lambda url, options: db.read_text(f"{url}/txt/*.txt", storage_options=options),
}


def check_sizes(url, options, sizes):
    for name, read in READERS.items():
        graph = materialize(read(url, options), {})
        assert graph.read_bytes == sizes[name], name
        assert sum(graph.info.weights.values()) == pytest.approx(sizes[name])
        assert len(set(graph.info.weights.values())) == len(graph.info.weights) > 1


def test_sizes_of_files_in_a_file_system_of_fsspec():
    system = fsspec.filesystem("memory")
    try:
        check_sizes("memory://source", {}, write_tables(system, "/source"))
        # The optimizer joins files, and a filter is in their tasks.
        log = dd.read_parquet("memory://source/parquet")
        graph = materialize(log[log.v > 5].k.sum(), {})
        assert graph.read_bytes == sum(file["size"] for file in system.ls("/source/parquet"))
    finally:
        system.rm("/source", recursive=True)


def test_files_that_are_gone_have_no_size():
    system = fsspec.filesystem("memory")
    file = SourceFile("/nowhere/a.parquet", "fsspec 1", system)
    assert measure_files([file, SourceFile("/nowhere/b.csv")]) == {
        file: 0, SourceFile("/nowhere/b.csv"): 0,
    }  # fmt: skip


def test_a_path_of_this_machine_is_no_file_of_an_object_store(tmp_path):
    write_tables(fsspec.filesystem("file"), str(tmp_path))
    [*nodes] = materialize(dd.read_parquet(tmp_path / "parquet"), {}).tasks.values()
    files = set().union(*map(find_source_files, nodes))
    assert {file.system for file in files} == {None}
    assert {file.path for file in files} >= {str(each) for each in (tmp_path / "parquet").iterdir()}


@pytest.mark.service
@pytest.mark.parametrize("store", ["s3", "gcs"])
def test_sizes_and_keys_in_an_object_store(store, request):
    bucket = request.getfixturevalue(store)
    system, top = fsspec.url_to_fs(bucket.url, **bucket.options)
    sizes = write_tables(system, top)
    check_sizes(bucket.url, bucket.options, sizes)
    log = READERS["parquet"](bucket.url, bucket.options)
    [key] = find_key_columns(log.groupby("k").v.sum())
    assert (key.columns, len(key.parts)) == (("k",), FILES)
    [found] = measure_keys([key], lambda files: 10.0)
    assert (found.distinct, found.frequent) == (pytest.approx(700, rel=0.1), "7")
    assert found.share == pytest.approx(0.5, abs=0.01)


@pytest.mark.service
def test_sizes_with_a_file_system_of_pyarrow(s3):
    system, top = fsspec.url_to_fs(s3.url, **s3.options)
    sizes = write_tables(system, top)
    arrow = S3FileSystem(
        access_key=s3.options["key"], secret_key=s3.options["secret"], region="eu-west-1",
        endpoint_override=s3.options["endpoint_url"].removeprefix("http://"), scheme="http",
    )  # fmt: skip
    log = dd.read_parquet(f"{top}/parquet", filesystem=arrow)
    assert materialize(log.v.sum(), {}).read_bytes == sizes["parquet"]
    [key] = find_key_columns(log.groupby("k").v.sum())
    [found] = measure_keys([key], lambda files: 10.0)
    assert (found.frequent, found.distinct) == ("7", pytest.approx(700, rel=0.1))


@pytest.mark.service
@pytest.mark.process
def test_a_job_on_an_object_store_is_forecast_with_its_largest_file_and_its_keys(s3):
    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=2, engine="local", local_fit="exact"
    )
    system, top = fsspec.url_to_fs(s3.url, **s3.options)
    sizes = write_tables(system, top)
    log = READERS["parquet"](s3.url, s3.options)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        found = hyperplane.forecast(log.groupby("k").v.sum(), plan)
    assert not found.refused, found.reasons
    assert found.read == sizes["parquet"]
    [key] = found.keys
    assert (key.frequent, key.distinct) == ("7", pytest.approx(700, rel=0.1))
