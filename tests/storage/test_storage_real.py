"""Save to servers of the Google Cloud Storage and S3 protocols."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scale import scaled

import hyperplane
from hyperplane.errors import OutputConflict, OutputExists, StorageError
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.storage.commit_protocol import commit_protocol_for

pytestmark = [
    pytest.mark.service,
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    # Raised by Dask with pandas 3.
    pytest.mark.filterwarnings("ignore:The inplace keyword"),
]


PARTS = scaled(4, 8)


@pytest.fixture(params=["gcs", "s3"])
def bucket(request):
    with dask.config.set({"scheduler": "threads", "dataframe.convert-string": False}):
        yield request.getfixturevalue(request.param)


def frame(version=0, rows=200):
    frame = pd.DataFrame({"n": np.arange(rows), "v": version, "text": "ü"})
    return dd.from_pandas(frame, npartitions=PARTS)


@pytest.mark.slow
def test_versions_of_a_dataframe_replace_each_other(bucket):
    url, options = f"{bucket.url}/a b/out", bucket.options
    for version in range(3):
        result = hyperplane.save(frame(version), url, mode="overwrite", storage_options=options)
        assert (result.files, result.rows, result.written) == (PARTS, 200, PARTS)
        found = hyperplane.load(url, storage_options=options).compute()
        pd.testing.assert_frame_equal(found, frame(version).compute())
    assert not hyperplane.save(frame(2), url, storage_options=options).changed
    with pytest.raises(OutputExists):
        hyperplane.save(frame(3), url, storage_options=options)
    plain = dd.read_parquet(url, storage_options=options).compute()
    assert sorted(plain.n) == list(range(200))
    assert hyperplane.save(frame(3), url, mode="append", storage_options=options).files == 2 * PARTS
    assert hyperplane.load(url, storage_options=options).v.compute().value_counts().to_dict() == {
        2: 200,
        3: 200,
    }


def test_one_of_several_concurrent_writers_succeeds(bucket):
    url, options = f"{bucket.url}/out", bucket.options

    def one(version):
        try:
            return hyperplane.save(frame(version), url, storage_options=options).changed
        except (OutputConflict, OutputExists):
            return False

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(4)))
    assert sum(found) == 1
    seen = set(hyperplane.load(url, storage_options=options).v.compute())
    assert seen == {found.index(True)}


def test_shards_are_published_together(bucket):
    url, options = f"{bucket.url}/out", bucket.options
    rows = frame().compute()
    for index in (2, 0, 1):
        part = rows.iloc[index * 60 : index * 60 + 60]
        hyperplane.save(part, url, shard=(index, 3), storage_options=options)
    found = hyperplane.load(url, storage_options=options).compute()
    pd.testing.assert_frame_equal(found, rows.iloc[:180])
    assert hyperplane.storage.missing_shards(url, storage_options=options) == []


def test_arrays_and_files_are_saved(bucket):
    options = bucket.options
    array = da.from_array(np.arange(100).reshape(10, 10), chunks=5)
    for change in (0, 1):
        url = f"{bucket.url}/a.zarr"
        hyperplane.save(array + change, url, mode="overwrite", storage_options=options)
        found = hyperplane.load(url, storage_options=options).compute()
        assert (found == np.arange(100).reshape(10, 10) + change).all()
    big = np.random.default_rng(0).bytes(12_000_000)
    hyperplane.save(big, f"{bucket.url}/big.bin", storage_options=options)
    assert hyperplane.load(f"{bucket.url}/big.bin", storage_options=options) == big
    with pytest.raises(OutputExists):
        hyperplane.save(b"other", f"{bucket.url}/big.bin", storage_options=options)
    hyperplane.save({"a": 1}, f"{bucket.url}/a.json", storage_options=options)
    target = resolve_target(f"{bucket.url}/a.json", options)
    info = target.store.system.info(target.path)
    assert "application/json" in (info.get("contentType"), info.get("ContentType"))


def test_a_missing_bucket_is_reported_immediately(bucket):
    url = f"{bucket.url.partition('://')[0]}://no-such-bucket-here/out"
    computed = []
    df = frame().map_partitions(lambda part: computed.append(1) or part, meta=frame()._meta)
    computed.clear()
    with pytest.raises(StorageError, match=r"bucket .*is not there|create it"):
        hyperplane.save(df, url, storage_options=bucket.options)
    assert not computed


def test_leftovers_are_removed(bucket):
    url, options = f"{bucket.url}/out", bucket.options
    hyperplane.save(frame(), url, storage_options=options)
    target = resolve_target(url, options)
    store_files = commit_protocol_for(target).store_files
    store_files.put(
        f"{target.metadata_folder}/attempt-elsewhere-1-0123456789ab/data/part.parquet", b"half"
    )
    assert hyperplane.storage.clean(url, storage_options=options).files == 0
    assert hyperplane.storage.clean(url, older_than=0, storage_options=options).files == 1
    assert len(store_files.list_files(target.metadata_folder)) == 2
    assert len(hyperplane.load(url, storage_options=options)) == 200
