"""Killed at any moment: readers see the old or new version, and a second run completes it."""

from __future__ import annotations

import json
from pathlib import Path

import killing
import pytest
from scale import scaled

pytestmark = pytest.mark.slow

#: Forks a process per round, so that modules are imported only once.
SCRIPT = """
import json, os, pathlib, random, signal, sys, time
sys.path.insert(0, sys.argv[3])
import dask, dask.dataframe as dd, pandas as pd, pyarrow
import hyperplane, hyperplane.storage
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.objectstore.save_target import resolve_target

dask.config.set({"scheduler": "sync", "dataframe.convert-string": False})
# A process for each kind of place, so that modules are imported only once.
for kind, place in json.loads(sys.argv[1]).items():
    if not (worker := os.fork()):
        break
    assert os.waitpid(worker, 0)[1] == 0, kind
else:
    sys.exit()
rounds = sys.argv[2]
if kind == "object store":
    import faulty
    store = faulty.Store(pathlib.Path(place))
    url, options = store.url + "/out", store.options
else:
    url, options = place + "/out", {}

def frame(version):
    return pd.DataFrame({"row": range(400), "version": version})

def save(version, change=None):
    df = dd.from_pandas(frame(version), npartitions=8)
    df = df.map_partitions(change, meta=df._meta) if change else df
    return hyperplane.save(df, url, mode="overwrite", storage_options=options)

def killed_halfway(part):
    if 200 in part.row.to_list():  # the partitions before it are written
        os.kill(os.getpid(), signal.SIGKILL)
    return part

def version_seen():
    found = hyperplane.load(url, storage_options=options).compute()
    assert found.row.to_list() == list(range(400)), len(found)
    (version,) = set(found.version)
    if kind == "disk":
        plain = pd.read_parquet(url)
        assert sorted(plain.row) == list(range(400)), len(plain)
        assert set(plain.version) == {version}
    return version

def published(version):
    try:
        return set(hyperplane.load(url, storage_options=options).compute().version) == {version}
    except hyperplane.errors.ReadError:  # the version it began to read was removed
        return False

save(0)
began = time.monotonic()
if not (child := os.fork()):
    save(1)
    os._exit(0)
os.waitpid(child, 0)
full = time.monotonic() - began
dice = random.Random(7)
last, seen = 1, {"old": 0, "new": 0, "not killed": 0}
for number in range(int(rounds)):
    version = last + 1
    moment = (number and number + dice.random()) / int(rounds) * full * 1.15
    halfway = number == 1  # however slow the machine is, one save ends between two partitions
    child = os.fork()
    if child == 0:
        save(version, killed_halfway if halfway else None)
        os._exit(0)
    if not halfway:
        time.sleep(moment)
        while number == int(rounds) - 1 and not published(version):  # however slow
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert not halfway, status
        seen["not killed"] += 1
    now = version_seen()
    assert now in (last, version), (last, version, now)
    seen["new" if now == version else "old"] += 1
    save(version)
    assert version_seen() == version
    last = version
target = resolve_target(url, options)
store_files = commit_protocol_for(target).store_files
left = len(store_files.list_files(target.metadata_folder))
hyperplane.storage.clean(url, older_than=0, storage_options=options)
seen["left"], seen["kept"] = left, sorted(store_files.list_files(target.metadata_folder))
seen["parts"] = len(store_files.list_files(target.path))
seen["at"] = version_seen() == last
print(json.dumps([kind, seen]), flush=True)
"""


@pytest.mark.slow
def test_a_killed_client_leaves_the_old_version_or_the_new_one(tmp_path: Path) -> None:
    rounds = scaled(4, 40)
    # test_storage_zarr_killed.py has an object store, too.
    kinds = scaled(("disk",), ("disk", "object store"))
    places = {kind: str(tmp_path / kind) for kind in kinds}
    for place in places.values():
        Path(place).mkdir()
    outcomes = killing.run_reporting_lines(
        SCRIPT, json.dumps(places), str(rounds), str(Path(__file__).parent)
    )
    for kind, seen in outcomes:
        assert seen["old"] + seen["new"] == rounds
        assert min(seen["old"], seen["new"]) >= 1, (kind, seen)  # before the commit, and after it
        assert seen["parts"] == 8
        assert seen["at"]
        assert seen["left"] > len(seen["kept"]), (kind, seen)  # there were leftovers
        assert len(seen["kept"]) == 2, (kind, seen["kept"])
    assert [kind for kind, _ in outcomes] == list(places)
