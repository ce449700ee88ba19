"""Choice of the number of partitions."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.distributed import wait

import hyperplane
from hyperplane.collections.frames import repartition as module
from hyperplane.collections.frames.repartition import measure_persisted_size
from hyperplane.dataframe import read, repartition
from hyperplane.errors import RequestError


def fail(*_, **__):
    raise AssertionError("it was computed")


@pytest.fixture(autouse=True)
def nothing_computes(monkeypatch):
    monkeypatch.setattr(module, "count_threads", lambda: 2)
    with dask.config.set(scheduler=fail):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """16 MB in memory, in sixteen row groups."""
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame({"n": np.arange(10**6), "x": np.arange(10**6) / 2})
    frame.to_parquet(folder / "a.parquet", row_group_size=62_500)
    return read(folder, partition_size="1MB")


def rows(result):
    return result.n.compute(scheduler="sync").to_list()


@pytest.mark.parametrize(
    ("size", "number"), [("4MB", 4), ("1MB", 16), ("500kB", 32), (8_000_000, 2)]
)
def test_the_size_of_read_files_is_known(files, size, number):
    assert files.npartitions == 16
    result = repartition(files, size)
    assert result.npartitions == number
    assert rows(result) == list(range(10**6))


def test_the_fraction_applies_after_a_filter(files):
    kept = files[files.n < 250_000]
    assert repartition(kept, "1MB").npartitions == 16
    result = repartition(kept, "1MB", fraction=0.25)
    assert result.npartitions == 4
    assert rows(result) == list(range(250_000))


def test_a_given_size_overrides_the_known_one(files):
    assert repartition(files, "1MB", data_size="3MB").npartitions == 3
    other = dd.from_pandas(pd.DataFrame({"n": range(100)}), npartitions=50)
    result = repartition(other, "1MB", data_size="5MB")
    assert result.npartitions == 5
    assert rows(result) == list(range(100))


def test_there_is_a_partition_for_each_thread(files):
    assert repartition(files, "50MB").npartitions == 2
    assert repartition(files, "1GB").npartitions == 1  # too little data for several tasks


def test_an_unknown_size_must_be_given():
    df = dd.from_pandas(pd.DataFrame({"n": range(100)}), npartitions=5)
    for needs_all in (df.merge(df, on="n"), df.groupby("n").n.count().to_frame()):
        with pytest.raises(RequestError, match=r"data_size='20GB'"):
            repartition(needs_all, "1MB")


def test_the_size_of_frames_and_of_parquet_is_known_without_computing(files):
    frame = pd.DataFrame({"n": np.arange(10**6), "x": np.arange(10**6) / 2})
    assert repartition(dd.from_pandas(frame, npartitions=3), "1MB").npartitions == 16
    assert repartition(files.assign(y=files.x * 2), "1MB").npartitions == 24


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Three CSV files, together 10 to 11 MB in memory."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(3):
        frame = pd.DataFrame({"n": np.arange(10**5), "s": "a text of some length"})
        frame.to_csv(folder / f"{number}.csv", index=False)
    return folder


@pytest.mark.parametrize("reader", [read, dd.read_csv], ids=["read", "read_csv"])
def test_the_size_of_csv_is_measured(texts, reader):
    df = reader(str(texts / "*.csv"))
    changed = df.assign(m=df.n * 2)
    with dask.config.set(scheduler="sync"):
        for result in (repartition(df, "1MB"), repartition(changed[["n", "s"]], "1MB")):
            assert 8 <= result.npartitions <= 14
            assert sorted(rows(result)) == sorted([*range(10**5)] * 3)
        assert 10 <= repartition(changed, "1MB").npartitions <= 17
        # The sample is filtered, so the fraction is not applied again.
        few = changed[changed.m < 100_000]
        assert 5 <= repartition(few, "1MB", fraction=0.5).npartitions <= 9


def test_all_faults_are_reported_together():
    with pytest.raises(RequestError) as caught:
        repartition([1], "much", fraction=1.5, data_size="-3GB")
    asked = [fault.where for fault in caught.value.faults]
    assert asked == ["df", "fraction", "partition_size", "data_size"]
    with pytest.raises(
        RequestError, match=r"read the files first with hyperplane\.dataframe\.read"
    ):
        repartition("n.parquet")
    df = dd.from_pandas(pd.DataFrame({"n": range(100)}), npartitions=5)
    with pytest.raises(RequestError, match="fraction = 'half': expected a number above 0"):
        repartition(df, fraction="half", data_size=1000)
    assert repartition(df, "1MB", fraction=np.float32(0.5), data_size="8MB").npartitions == 4


@pytest.mark.cluster
def test_on_a_cluster_the_size_of_persisted_data_is_known(files):
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=2, num_workers=1, ram_gb_per_proc=1
    )
    try:
        assert module._choose_partition_size() == pytest.approx(10**9 / 2 / 10, rel=0.01)
        computed = files.assign(y=files.x * 2)
        with dask.config.set(scheduler="dask.distributed"):
            kept = client.persist(computed)
            wait(kept)
        known = measure_persisted_size(kept)
        assert known == pytest.approx(24 * 10**6, rel=0.01)
        assert repartition(kept, "5MB").npartitions == 5
        assert repartition(kept).npartitions == 2
    finally:
        client.close()
        cluster.close()
