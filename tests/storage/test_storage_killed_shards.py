"""Killed shards and workers: no data is lost, and committed shards are not written again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import dask.dataframe as dd
import killing
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from scale import FULL, scaled

import hyperplane

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, pathlib, random, signal, sys, time
import dask, dask.dataframe as dd, pandas as pd, pyarrow
import hyperplane, hyperplane.storage
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.objectstore.save_target import resolve_target

sys.path.insert(0, sys.argv[3])
kind, place, _, rounds = sys.argv[1:]
if kind == "object store":
    import faulty
    store = faulty.Store(pathlib.Path(place))
    url, options = store.url + "/out", store.options
else:
    url, options = place + "/out", {}
COUNT = 4

def rows(shard, version):
    return pd.DataFrame({"row": range(shard * 50, shard * 50 + 50), "version": version})

def save(shard, version, change=None):
    obj = rows(shard, version)
    if change:
        df = dd.from_pandas(obj, npartitions=2)
        obj = df.map_partitions(change, meta=df._meta)
    return hyperplane.save(
        obj, url, shard=(shard, COUNT), mode="overwrite", run=f"v{version}",
        storage_options=options,
    )

def killed_halfway(part):
    if part.row.max() % 50 == 49:  # the partition before it is written
        os.kill(os.getpid(), signal.SIGKILL)
    return part

def version_seen():
    found = hyperplane.load(url, storage_options=options).compute(scheduler="sync")
    assert found.row.to_list() == list(range(50 * COUNT)), len(found)
    (version,) = set(found.version)
    return version

def published(version):
    try:
        return version_seen() == version
    except hyperplane.errors.ReadError:  # the version it began to read was removed
        return False

for shard in range(COUNT):
    save(shard, 0)
began = time.monotonic()
if not (child := os.fork()):
    save(0, 0)
    os._exit(0)
os.waitpid(child, 0)
full = 1.3 * (time.monotonic() - began)
dice = random.Random(3)
seen = {"uncommitted": 0, "committed": 0, "published": 0}
for number in range(int(rounds)):
    version, killed = number + 1, number % COUNT
    if number % 2:  # the killed one is the last of its run: it publishes the output
        for shard in range(COUNT):
            if shard != killed:
                assert not save(shard, version).complete
    halfway = number in (1, 2)  # however slow the machine is, these end before they are committed
    child = os.fork()
    if child == 0:
        with dask.config.set(scheduler="sync"):
            save(killed, version, killed_halfway if halfway else None)
        os._exit(0)
    if not halfway:
        time.sleep((number and number + dice.random()) / int(rounds) * full)
        while number == int(rounds) - 1 and not published(version):  # however slow
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or not halfway, status
    now = version_seen()
    assert now in (version - 1, version)
    if now == version:
        seen["published"] += 1
        assert not save(killed, version).changed
        continue
    missing = hyperplane.storage.missing_shards(url, storage_options=options)
    again = save(killed, version)
    committed = number % 2 and not missing or not number % 2 and missing and killed not in missing
    seen["committed" if committed else "uncommitted"] += 1
    assert (again.written > 0) == (not committed), (missing, killed, number)
    assert again.published == bool(number % 2), (missing, killed, number)
    for shard in range(COUNT):
        if shard != killed and not number % 2:
            save(shard, version)
    assert version_seen() == version
hyperplane.storage.clean(url, older_than=0, storage_options=options)
target = resolve_target(url, options)
seen["kept"] = len(commit_protocol_for(target).store_files.list_files(target.metadata_folder))
seen["parts"] = len(commit_protocol_for(target).store_files.list_files(target.path))
print(json.dumps(seen))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", scaled(["disk"], ["disk", "object store"]))
def test_a_killed_shard_runs_again_and_all_rows_are_saved_once(kind: str, tmp_path: Path) -> None:
    rounds = scaled(4, 40)  # even: the last one publishes
    seen = killing.run_reporting(
        SCRIPT, kind, str(tmp_path), str(Path(__file__).parent), str(rounds)
    )
    assert seen["uncommitted"] >= 2, seen
    assert seen["published"] >= 1, seen
    assert (seen["parts"], seen["kept"]) == (4, 2)


def slowly(part: pd.DataFrame) -> pd.DataFrame:
    time.sleep(0.05)
    return part


def one_pid(client: Client) -> int:
    """Return the process of a worker; the scheduler may still list a previous worker."""
    while True:
        with contextlib.suppress(OSError):
            return next(iter(client.run(os.getpid).values()))


@pytest.mark.skipif(not FULL, reason="starts a cluster: at full scale")
@pytest.mark.cluster
def test_a_killed_worker_does_not_change_the_saved_output(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": np.arange(4000), "x": np.random.default_rng(0).random(4000)})
    df = dd.from_pandas(frame, npartitions=40)
    client, cluster = hyperplane.initialize_cluster(
        nprocs=2, nthreads=1, num_workers=1, ram_gb_per_proc=0.6
    )
    try:
        for moment in (0.1, 0.4, 0.8):
            pid = one_pid(client)
            killer = threading.Timer(moment, os.kill, [pid, signal.SIGKILL])
            killer.start()
            url = str(tmp_path / f"out-{moment}")
            result = hyperplane.save(df.map_partitions(slowly, meta=df._meta), url)
            killer.join()
            assert (result.files, result.rows) == (40, 4000)
            assert len(list(Path(url).iterdir())) == 40
            found = pd.read_parquet(url).sort_values("n", ignore_index=True)
            pd.testing.assert_frame_equal(found, df.compute().reset_index(drop=True))
            client.wait_for_workers(2, timeout=250)
    finally:
        client.close()
        cluster.close()
