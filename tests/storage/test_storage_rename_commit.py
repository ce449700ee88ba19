"""Commits on disks that cannot exchange two paths in one step (no RENAME_EXCHANGE)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

import hyperplane
from hyperplane.storage import rename_commit


@pytest.fixture(autouse=True)
def _no_exchange(monkeypatch):
    monkeypatch.setattr(rename_commit, "_try_swap", lambda one, other: False)
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        yield


def frame(version):
    return dd.from_pandas(pd.DataFrame({"n": range(4), "v": version}), npartitions=2)


def version_at(url):
    found = hyperplane.load(url).compute()
    assert found.n.to_list() == [0, 1, 2, 3]
    (version,) = set(found.v)
    return version


KILLED = """
import json, os, pathlib, sys
import dask, dask.dataframe as dd, pandas as pd, hyperplane
from hyperplane.storage import rename_commit

rename_commit._try_swap = lambda one, other: False
rename, done = pathlib.Path.rename, []

def dying(self, to):
    if str(self).endswith(".old") or done:
        os._exit(9)
    if str(to).endswith(".old"):
        done.append(to)
    return rename(self, to)

# A process for each moment, so that modules are imported only once.
for when, url in json.loads(sys.argv[1]).items():
    if not (child := os.fork()):
        break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
else:
    sys.exit()
if when == "second":
    pathlib.Path.rename = dying
else:  # after the second rename, before the old folder is removed
    def late(self, to):
        if str(self).endswith(".old"):
            os._exit(9)
        return rename(self, to)
    pathlib.Path.rename = late
df = dd.from_pandas(pd.DataFrame({"n": range(4), "v": 1}), npartitions=2)
with dask.config.set(scheduler="sync"):
    hyperplane.save(df, url, mode="overwrite")
"""


@pytest.mark.slow
@pytest.mark.process
def test_no_version_is_lost_if_killed_between_two_renames(tmp_path):
    versions = {"second": 0, "third": 1}
    urls = {when: str(tmp_path / when) for when in versions}
    for url in urls.values():
        hyperplane.save(frame(0), url)
    subprocess.run([sys.executable, "-c", KILLED, json.dumps(urls)], timeout=250, check=True)
    for when, url in urls.items():
        assert os.path.lexists(url) == (when == "third")
        assert version_at(url) == versions[when]
        hyperplane.save(frame(2), url, mode="overwrite")
        assert version_at(url) == 2
        hyperplane.storage.clean(url, older_than=0)
        assert len(list(Path(tmp_path, f".{when}.hyperplane").iterdir())) == 2  # manifest and lock


def test_a_second_rename_that_fails_is_undone(tmp_path, monkeypatch):
    url = str(tmp_path / "out")
    hyperplane.save(frame(0), url)
    rename = Path.rename

    def failing(self, to):
        if str(to) == url and not str(self).endswith(".old"):
            raise OSError("now")
        return rename(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="now"):
            hyperplane.save(frame(1), url, mode="overwrite")
    assert version_at(url) == 0
    hyperplane.save(frame(1), url, mode="overwrite")
    assert version_at(url) == 1
