"""Full disks, limits and folders without rights, for real: the error says so, the old stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

#: Saves an old version, lets ``limit`` of its arguments begin, and fails to save a new one.
SCRIPT = """
import json, os, pathlib, resource, subprocess, sys
import dask, dask.dataframe as dd, numpy as np, pandas as pd
import hyperplane

limit, what, base = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
dask.config.set(scheduler="sync")
hyperplane.load  # imported while everything may still be read
place = base / "place"
large = base.parent / f"{base.name}-large.bin"
large.write_bytes(os.urandom(12 * 2**20))


def thing(size):
    rows = np.random.default_rng(0).random(size)
    if what == "folder":
        return dd.from_pandas(pd.DataFrame({"x": rows}), npartitions=2)
    if what == "table":
        return pd.DataFrame({"x": rows})
    return large if what == "large" and size > 10 else rows.tobytes()


url = place / {"folder": "out", "table": "out.parquet"}.get(what, "out.bin")
place.mkdir()
hyperplane.save(thing(10), url)
before = hyperplane.load(url)
before = before.compute() if what == "folder" else before
names = sorted(str(path.relative_to(base)) for path in base.rglob("*"))

if limit == "disk":
    pass
elif limit == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
elif limit == "readonly":
    subprocess.run(["mount", "-o", "remount,ro", str(base)], check=True)
else:
    for folder in (place, *(one for one in place.rglob("*") if one.is_dir())):
        folder.chmod(0o555)
    if os.getuid() == 0:
        os.setuid(65534)

try:
    hyperplane.save(thing(500_000), url, mode="overwrite")
    error = "none"
except hyperplane.errors.StorageError as failed:
    error = f"{type(failed).__name__} {failed}"
after = hyperplane.load(url)
after = after.compute() if what == "folder" else after
same = after.equals(before) if hasattr(after, "equals") else after == before
left = sorted(str(path.relative_to(base)) for path in base.rglob("*"))
print(json.dumps({"url": str(url), "error": error, "same": same, "left": left == names}))
"""

KINDS = ("folder", "table", "bytes", "large")


@pytest.fixture
def base():
    """A folder that another user may go into, too, through the private one of the test run."""
    folder = Path(tempfile.mkdtemp(prefix="hp-full-"))
    folder.chmod(0o777)
    (folder / "base").mkdir()
    modes = {parent: parent.stat().st_mode & 0o7777 for parent in folder.parents[:2]}
    closed = {parent: mode for parent, mode in modes.items() if not mode & 0o001}
    for parent, mode in closed.items():
        parent.chmod(mode | 0o011)
    yield folder / "base"
    for parent, mode in closed.items():
        parent.chmod(mode)
    shutil.rmtree(folder)


def outcome(limit, what, base, *before):
    command = [*before, sys.executable, "-c", SCRIPT, limit, what, str(base)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def as_it_should_be(found, wanted):
    assert found["error"].startswith("StorageError ")
    # The parts of a folder are written beside it.
    assert os.path.dirname(found["url"]) in found["error"]  # noqa: PTH120
    assert wanted in found["error"]
    assert found["same"]
    assert found["left"]


@pytest.mark.parametrize("what", KINDS)
def test_a_file_larger_than_may_be(base, what):
    as_it_should_be(outcome("size", what, base), "File too large")


@pytest.mark.parametrize("what", KINDS)
def test_a_folder_without_the_right_to_write(base, what):
    as_it_should_be(outcome("rights", what, base), "check the rights of the folder")


def of_its_own(mount, base):
    """A command in which a small disk is mounted that nobody else sees."""
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        command = [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"]
        probe = [*command, "true"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip(f"this user may not mount a disk at {base}")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize(
    ("limit", "wanted"), [("disk", "no space is left"), ("readonly", "read-only")]
)
def test_a_full_disk_and_one_that_is_read_only(base, what, limit, wanted):
    mount = f"mount -t tmpfs -o size=2m,mode=777 none '{base}'"
    found = outcome(limit, what, base, *of_its_own(mount, base))
    as_it_should_be(found, wanted)
