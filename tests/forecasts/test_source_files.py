"""Files that tasks read, on local disks and in object stores, and their keys."""

from __future__ import annotations

import time
from types import SimpleNamespace

import dask
import dask.bag as db
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from pyarrow.fs import S3FileSystem

import hyperplane
from hyperplane.forecasts import source_files
from hyperplane.forecasts.collection_graph import materialize
from hyperplane.forecasts.key_columns import find_key_columns
from hyperplane.forecasts.key_statistics import measure_keys
from hyperplane.forecasts.past_runs import JobSize
from hyperplane.forecasts.reasons import find_graph_reasons, find_notes
from hyperplane.forecasts.records import SampleResult
from hyperplane.forecasts.source_files import (
    SourceFile,
    find_source_files,
    make_source_file,
    measure_files,
)

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


def test_sizes_of_files_of_this_package_s_reader(tmp_path):
    sizes = write_tables(fsspec.filesystem("file"), str(tmp_path))
    table, small = tmp_path / "parquet", tmp_path / "small.parquet"
    pd.DataFrame({"k": range(700), "w": 1.0}).to_parquet(small)
    rows = hyperplane.dataframe.read(table)
    for name, job, expected in (
        ("parquet", rows.v.sum(), sizes["parquet"]),
        ("csv", hyperplane.dataframe.read(tmp_path / "csv" / "*.csv").v.sum(), sizes["csv"]),
        ("group_agg", hyperplane.dataframe.group_agg(rows, "k", {"v": "sum"}), sizes["parquet"]),
        (
            "join",
            hyperplane.dataframe.join(rows, hyperplane.dataframe.read(small), on="k").w.sum(),
            sizes["parquet"] + small.stat().st_size,
        ),
    ):
        graph = materialize(job, {})
        assert graph.read_bytes == expected, name
        assert sum(graph.info.weights.values()) == pytest.approx(expected), name
        assert JobSize.of(graph).input == expected, name


def test_files_that_are_gone_have_no_size():
    system = fsspec.filesystem("memory")
    file = SourceFile("/nowhere/a.parquet", "fsspec 1", system)
    assert measure_files([file, SourceFile("/nowhere/b.csv")]) == {
        file: None, SourceFile("/nowhere/b.csv"): 0,
    }  # fmt: skip


class URL:
    """As that of yarl, whose part after # is its fragment."""

    fragment = "part"


COLUMNS = ("fragment", "args", "dependencies", "kwargs", "func")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(pd.DataFrame({name: [1, 2] for name in COLUMNS}), id="columns"),
        pytest.param(URL(), id="part of an address"),
    ],
)
def test_arguments_with_the_attributes_of_tasks_and_files_are_neither(value):
    graph = materialize(dask.delayed(len)([value, 1]), {})
    assert graph.read_bytes == graph.unmeasured == 0
    assert find_graph_reasons(graph) == []


class CountingSystem(fsspec.AbstractFileSystem):
    """A file system of which a folder has one file of 5 bytes; those of ``failing`` raise."""

    cachable = False
    failing = ()
    seconds = 0.0

    def ls(self, path, detail=True, **kwargs):
        time.sleep(self.seconds)
        if path in self.failing:
            raise PermissionError(path)
        return [{"name": f"{path}/a.csv", "size": 5, "type": "file"}]


def make_files(system, count):
    return [SourceFile(f"day={number}/a.csv", "fsspec 1", system) for number in range(count)]


def test_all_folders_are_listed():
    assert set(measure_files(make_files(CountingSystem(), 2_500)).values()) == {5}


def test_listings_that_fail_or_take_too_long_leave_sizes_unknown(monkeypatch):
    system = CountingSystem()
    system.failing = ("day=1",)
    sizes = {file.path: size for file, size in measure_files(make_files(system, 3)).items()}
    assert sizes == {"day=0/a.csv": 5, "day=1/a.csv": None, "day=2/a.csv": 5}
    monkeypatch.setattr(source_files, "_SECONDS", 0.1)
    system.seconds = 0.5
    began = time.monotonic()
    assert set(measure_files(make_files(system, 500)).values()) == {None}
    assert time.monotonic() - began < 10, "those in the queue are not asked"


def test_if_one_size_is_unknown_no_file_of_an_object_store_has_a_weight():
    """With the others alone the forecast would be too low."""
    system = fsspec.filesystem("memory")
    try:
        write_tables(system, "/source")
        log = dd.read_csv("memory://source/csv/*.csv")
        system.rm("/source/csv/part-3.csv")
        graph = materialize(log, {})
    finally:
        system.rm("/source", recursive=True)
    assert (graph.info.weights, graph.read_bytes, graph.unmeasured) == ({}, 0, 1)
    model, timeline = SimpleNamespace(extrapolated={}, shuffled=0), SimpleNamespace(terms={})
    [note] = find_notes(graph, SampleResult((), 0, True), model, timeline)
    assert "the sizes of 1 file of object stores were not found" in note


def test_equal_paths_of_two_endpoints_are_two_files():
    options = {"access_key": "a", "secret_key": "b", "region": "eu-west-1", "scheme": "http"}
    one, same, other = (
        S3FileSystem(**options, endpoint_override=place) for place in ("a:1", "a:1", "b:1")
    )
    files = [make_source_file("bucket/a.parquet", system) for system in (one, same, other)]
    assert files[0] == files[1] != files[2]


def test_a_path_of_this_machine_is_no_file_of_an_object_store(tmp_path):
    write_tables(fsspec.filesystem("file"), str(tmp_path))
    [*nodes] = materialize(dd.read_parquet(tmp_path / "parquet"), {}).tasks.values()
    files = set().union(*map(find_source_files, nodes))
    assert {file.system for file in files} == {None}
    assert {file.path for file in files} >= {str(each) for each in (tmp_path / "parquet").iterdir()}


@pytest.mark.slow
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


@pytest.mark.slow
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
