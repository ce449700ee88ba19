"""Zarr written by processes that are killed."""

from __future__ import annotations

from pathlib import Path

import killing
import pytest
from scale import scaled

#: Forks a process per round, so that modules are imported only once.
SCRIPT = """
import json, os, pathlib, random, signal, sys, time
sys.path.insert(0, sys.argv[3])
import dask, dask.array as da, numpy as np, xarray as xr
import hyperplane, hyperplane.storage
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.objectstore.save_target import resolve_target

dask.config.set({"scheduler": "sync"})
kind, place, _, rounds = sys.argv[1:]
if kind == "object store":
    import faulty
    store = faulty.Store(pathlib.Path(place))
    url, options = store.url + "/out", store.options
else:
    url, options = place + "/out", {}

def save(version, change=None):
    # The upper half is equal in all versions.
    values = np.arange(1.0, 401).reshape(20, 20)
    values[10:] += 1000 * version
    array = da.from_array(values, chunks=5)
    array = array.map_blocks(change, dtype=float, meta=np.ones((0, 0))) if change else array
    dataset = xr.Dataset({"v": (("y", "x"), array)})
    return hyperplane.save(dataset, url, mode="overwrite", storage_options=options)

def version_in(found):
    values = found.v.compute().values
    assert (values[:10] == np.arange(1.0, 201).reshape(10, 20)).all()
    versions = set(((values[10:] - np.arange(201.0, 401).reshape(10, 20)) / 1000).ravel())
    assert len(versions) == 1, versions
    return int(versions.pop())

def version_seen():
    version = version_in(hyperplane.load(url, storage_options=options))
    if kind == "disk":
        assert version_in(xr.open_zarr(url)) == version
    return version

def killed_halfway(block):
    if block[0, 0] % 1000 == 216:  # the blocks before it are written
        os.kill(os.getpid(), signal.SIGKILL)
    return block

def forked(version, change=None):
    child = os.fork()
    if child == 0:
        save(version, change)
        os._exit(0)
    return child

def published(version):
    try:
        return version_in(hyperplane.load(url, storage_options=options)) == version
    except hyperplane.errors.ReadError:  # the version it began to read was removed
        return False

save(0)
dice = random.Random(7)
last, seen = 0, {"old": 0, "new": 0, "held": 0}
for number in range(int(rounds)):
    began = time.monotonic()  # measured each time, as the load of the machine varies
    os.waitpid(forked(last + 1), 0)
    full = time.monotonic() - began
    last, version = last + 1, last + 2
    held = hyperplane.load(url, storage_options=options)
    moment = (number and number + dice.random()) / int(rounds) * full * 1.25
    halfway = number == 1  # however slow the machine is, one save ends between two chunks
    child = forked(version, killed_halfway if halfway else None)
    if not halfway:
        time.sleep(moment)
        while number == int(rounds) - 1 and not published(version):  # however slow
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or not halfway, status
    try:
        assert version_in(held) == last
        seen["held"] += 1
    except hyperplane.errors.ReadError:
        pass
    now = version_seen()
    assert now in (last, version), (last, version, now)
    seen["new" if now == version else "old"] += 1
    save(version)
    assert version_seen() == version
    last = version
target = resolve_target(url, options)
store_files = commit_protocol_for(target).store_files
hyperplane.storage.clean(url, older_than=0, storage_options=options)
seen["kept"] = sorted(store_files.list_files(target.metadata_folder))
seen["parts"] = len(store_files.list_files(target.path))
seen["at"] = version_in(xr.open_zarr(url, storage_options=options or None)) == last
print(json.dumps(seen))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", scaled(["object store"], ["disk", "object store"]))
def test_a_killed_writer_leaves_the_old_version_or_the_new_one(kind, tmp_path):
    rounds = scaled(3, 12)
    seen = killing.run_reporting(
        SCRIPT, kind, str(tmp_path), str(Path(__file__).parent), str(rounds)
    )
    assert seen["old"] + seen["new"] == rounds
    assert min(seen["old"], seen["new"]) >= 1, seen  # before the commit, and after it
    assert seen["held"] >= 1
    assert seen["parts"] == 18
    assert seen["at"]
    assert not [name for name in seen["kept"] if "attempt" in name], seen["kept"]
