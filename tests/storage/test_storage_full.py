"""Real full disks, size limits, and read-only folders: an error says so, old data remains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from scale import FULL

pytestmark = pytest.mark.process

#: Saves an old version of each kind, applies ``limit``, and fails to save new ones.
SCRIPT = """
import json, os, pathlib, resource, subprocess, sys
import dask, dask.dataframe as dd, numpy as np, pandas as pd
import hyperplane

places, kinds = json.loads(sys.argv[1]), sys.argv[2:]
dask.config.set(scheduler="sync")
hyperplane.load  # imported while all files are readable
# A process for each limit, so that modules are imported only once.
for limit, place in places.items():
    if not (child := os.fork()):
        break
    assert os.waitpid(child, 0)[1] == 0, limit
else:
    sys.exit()
base = pathlib.Path(place)
large = base.parent / f"{base.name}-large.bin"
large.write_bytes(os.urandom(12 * 2**20))


def thing(what, size):
    rows = np.random.default_rng(0).random(size)
    if what == "folder":
        return dd.from_pandas(pd.DataFrame({"x": rows}), npartitions=2)
    if what == "table":
        return pd.DataFrame({"x": rows})
    return large if what == "large" and size > 10 else rows.tobytes()


def there(what):
    found = hyperplane.load(urls[what])
    return found.compute() if what == "folder" else found


def names(what):
    place = urls[what].parent
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


files = {"folder": "out", "table": "out.parquet"}
urls = {what: base / what / files.get(what, "out.bin") for what in kinds}
for what, url in urls.items():
    url.parent.mkdir()
    hyperplane.save(thing(what, 10), url)
before = {what: there(what) for what in kinds}
listed = {what: names(what) for what in kinds}

if limit == "disk":
    pass
elif limit == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
elif limit == "readonly":
    subprocess.run(["mount", "-o", "remount,ro", str(base)], check=True)
else:
    for folder in (one for one in base.rglob("*") if one.is_dir()):
        folder.chmod(0o555)
    if os.getuid() == 0:
        os.setuid(65534)

found = {}
for what, url in urls.items():
    try:
        hyperplane.save(thing(what, 500_000), url, mode="overwrite")
        error = "none"
    except hyperplane.errors.StorageError as failed:
        error = f"{type(failed).__name__} {failed}"
    after, old = there(what), before[what]
    same = after.equals(old) if hasattr(after, "equals") else after == old
    left = names(what) == listed[what]
    found[what] = {"url": str(url), "error": error, "same": same, "left": left}
print(json.dumps([limit, found]), flush=True)
"""

KINDS = ("folder", "table", "bytes", "large")


@pytest.fixture
def base():
    """A folder that another user may enter, inside the private folder of the test run."""
    folder = Path(tempfile.mkdtemp(prefix="hp-full-"))
    folder.chmod(0o777)
    modes = {parent: parent.stat().st_mode & 0o7777 for parent in folder.parents[:2]}
    closed = {parent: mode for parent, mode in modes.items() if not mode & 0o001}
    for parent, mode in closed.items():
        parent.chmod(mode | 0o011)
    yield folder
    for parent, mode in closed.items():
        parent.chmod(mode)
    shutil.rmtree(folder)


def each_kind_fails(errors, base, *before):
    """Check the error of each kind of object with each limit."""
    places = json.dumps({limit: str(base / limit) for limit in errors})
    command = [*before, sys.executable, "-c", SCRIPT, places, *KINDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    outcomes = dict(map(json.loads, done.stdout.splitlines()))
    assert set(outcomes) == set(errors)
    for limit, wanted in errors.items():
        assert set(outcomes[limit]) == set(KINDS)
        for what, found in outcomes[limit].items():
            assert found["error"].startswith("StorageError "), (limit, what)
            # Parts are written to the folder beside the target.
            assert os.path.dirname(found["url"]) in found["error"]  # noqa: PTH120
            assert wanted in found["error"], (limit, what)
            advice = f"hyperplane storage clean {found['url']}"
            assert (advice in found["error"]) == ((limit, what) == ("disk", "folder"))
            assert found["same"], (limit, what)
            assert found["left"], (limit, what)


@pytest.mark.skipif(not FULL, reason="another test has a full disk: at full scale")
def test_size_limits_and_folders_without_write_permission_are_errors(base):
    errors = {"size": "File too large", "rights": "check the permissions of the folder"}
    for limit in errors:
        (base / limit).mkdir()
    each_kind_fails(errors, base)


def with_private_mounts(*folders):
    """A command in which small disks are mounted that no other process sees."""
    mounts = "".join(f"mount -t tmpfs -o size=2m,mode=777 none '{one}' && " for one in folders)
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        command = [*unshare, "sh", "-c", f'{mounts}exec "$@"', "sh"]
        probe = [*command, "true"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip(f"this user may not mount a disk at {folders[0]}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
def test_full_and_read_only_disks_are_errors(base):
    errors = {"disk": "no space left", "readonly": "read-only"}
    for limit in errors:
        (base / limit).mkdir()
    each_kind_fails(errors, base, *with_private_mounts(*(base / limit for limit in errors)))
