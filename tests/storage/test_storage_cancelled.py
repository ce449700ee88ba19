"""A save whose tasks are cancelled fails with Dask's error, and the old version stays."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import hyperplane

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("short_grace_period")]

ENDINGS = {
    "the workers restart": lambda client, cluster: client.restart(),
    "the cluster closes": lambda client, cluster: cluster.close(),
    "both close": lambda client, cluster: cluster.close_all(),
}


def slow_frame(begun: str, version: int) -> dd.DataFrame:
    def make(number: int) -> pd.DataFrame:
        Path(begun, str(number)).touch()
        time.sleep(60)
        return pd.DataFrame({"version": [version]})

    return dd.from_map(make, range(4), meta=pd.DataFrame({"version": [1]}))


def slow_array(begun: str, version: int) -> Any:
    def make(block: Any) -> Any:
        Path(begun, "block").touch()
        time.sleep(60)
        return block + version

    zeros = da.zeros(8, chunks=2, dtype="int64")
    # With meta, Dask does not call the function here.
    return zeros.map_blocks(make, dtype="int64", meta=np.array((), dtype="int64"))


@pytest.mark.parametrize("kind", ["dataframe", "array"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cancelled_save_fails_and_leaves_the_old_version(
    ending: str, kind: str, tmp_path: Path
) -> None:
    begun, url = tmp_path / "begun", tmp_path / "saved"
    begun.mkdir()
    if kind == "array":
        old, new = da.ones(8, chunks=2, dtype="int64"), slow_array(str(begun), 2)
        options: dict[str, Any] = {"format": "zarr"}
    else:
        old = dd.from_pandas(pd.DataFrame({"version": [1] * 8}), npartitions=2)
        new = slow_frame(str(begun), 2)
        options = {"format": "parquet"}
    hyperplane.save(old, url, **options)
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1,
        nprocs=2,
        nthreads=1,
        ram_gb_per_proc=0.5,
        local_fit="exact",
        dashboard_port=0,
    )

    def end() -> None:
        while not list(begun.iterdir()):
            time.sleep(0.02)
        ENDINGS[ending](client, cluster)

    thread = threading.Thread(target=end)
    thread.start()
    with cluster, client:
        with pytest.raises(CancelledError):
            hyperplane.save(new, url, mode="overwrite", **options)
        thread.join()
    found = hyperplane.load(url).compute(scheduler="sync")
    assert (found if kind == "array" else found.version).tolist() == [1] * 8
