"""Files of exchanged tables on workers: who can read them, what they leave, what is spilled."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import dask
import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster
from distributed.spill import SpillBuffer

from hyperplane.collections.frames.kernels import table_files
from hyperplane.core.dask_internals.workers import keep_filed_results_of

NUMBERS = np.random.default_rng(0).integers(0, 2**62, 30_000)


def write():
    """Return a table in a file of the process."""
    return table_files.write_tables([pl.DataFrame({"a": NUMBERS})])[0]


def start_worker(folder, **options):
    return LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        local_directory=str(folder),
        dashboard_address="127.0.0.1:0",
        **options,
    )


@pytest.fixture
def permissive_umask():
    before = os.umask(0o002)
    yield
    os.umask(before)


def find_files(folder):
    return list(folder.rglob("hyperplane-table-*"))


def assert_private(file, root):
    """Check that only the user can read a file and enter one of its folders below the root."""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    folders = file.parents[: file.parents.index(root)]
    assert 0o700 in {stat.S_IMODE(folder.stat().st_mode) for folder in folders}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("limit", "off"),
    [("0", ()), ("1GB", ("target", "spill"))],
    ids=["no limit", "no spilling"],
)
def test_a_worker_that_never_spills_exchanges_rows_through_files(tmp_path, limit, off):
    settings = {f"distributed.worker.memory.{name}": False for name in off}
    with (
        dask.config.set(settings),
        start_worker(tmp_path, memory_limit=limit) as cluster,
        Client(cluster) as client,
    ):
        assert client.run(lambda dask_worker: type(dask_worker.data)).popitem()[1] is dict
        piece = client.submit(write)
        rows = client.submit(lambda each: each.load()["a"].to_list(), piece).result()
    assert rows == NUMBERS.tolist()


@pytest.mark.cluster
@pytest.mark.usefixtures("permissive_umask")
def test_other_users_read_no_rows_of_a_worker_in_the_process(tmp_path):
    with start_worker(tmp_path) as cluster, Client(cluster) as client:
        piece = client.submit(write)
        client.submit(lambda each: each.load().height, piece).result()
        (file,) = find_files(tmp_path)
        assert_private(file, tmp_path)


@pytest.mark.usefixtures("permissive_umask")
def test_other_users_read_no_rows_without_a_worker(tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        filed = write()
    (file,) = find_files(tmp_path)
    assert_private(file, tmp_path)
    other = [filed._content.path.parent]
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        second = write()
    assert [second._content.path.parent] == other
    del filed, second
    gc.collect()
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
import dask, numpy as np, polars as pl
from distributed import Client, LocalCluster
from hyperplane.collections.frames.kernels.table_files import write_tables

def write():
    return write_tables([pl.DataFrame({"a": np.random.default_rng(0).integers(0, 2**62, 30_000)})])

if __name__ == "__main__":
    folder, place = sys.argv[1:]
    if place == "worker":
        cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False,
            local_directory=folder, dashboard_address="127.0.0.1:0")
        pieces = Client(cluster).submit(write).result()
    else:
        dask.config.set({"temporary-directory": folder})
        pieces = write()
    print(pieces[0]._content.path, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("place", ["worker", "no worker"])
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_files_of_a_killed_process_are_removed_by_the_next_exchange(tmp_path, place):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), place]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = Path(ended.stdout.strip())
    assert left.is_file()
    if place == "worker":
        with start_worker(tmp_path) as cluster, Client(cluster) as client:
            piece = client.submit(write)
            client.submit(lambda each: each.load().height, piece).result()
            (file,) = find_files(tmp_path)
    else:
        with dask.config.set({"temporary-directory": str(tmp_path)}):
            filed = write()
        (file,) = find_files(tmp_path)
        assert filed.load().height == NUMBERS.size
    assert file != left
    assert not left.parent.exists()


@pytest.fixture
def data(tmp_path):
    """Return the results of a worker with files, which spills above a megabyte."""
    data = SpillBuffer(str(tmp_path / "spill"), target=10**6)
    data["old"] = bytes(8_000)
    keep_filed_results_of(data, table_files.is_filed)
    return data


def test_small_results_are_spilled_if_there_are_no_large_ones(data):
    values = {f"{number}": bytes([number]) * 9_900 for number in range(200)}
    for key, value in values.items():
        data[key] = value
    assert data.fast.total_weight <= 10**6
    assert "old" in data.disk
    while data.evict() != -1:
        pass
    assert list(data.memory) == []
    assert all(data[key] == value for key, value in values.items())
    assert data.fast.total_weight <= 10**6
    assert len(data) == 201


def test_large_results_are_spilled_before_small_ones(data, tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path / "exchange")}):
        data["filed"] = write()
    for name in ("first", "second", "third"):
        data[f"small {name}"] = bytes(100)
        data[f"large {name}"] = bytes(20_000)
    for key in ("small first", "large first", "old", "filed"):
        assert data[key]  # now the most recently used ones
    data["replaced"] = bytes(30_000)
    data["replaced"] = bytes(30)
    del data["small third"]
    spilled = []
    while data.evict() != -1:
        spilled += [key for key in data.disk if key not in spilled]
    large = ["large second", "large third", "large first"]
    assert spilled == [*large, "small second", "small first", "old", "replaced"]
    assert list(data.memory) == ["filed"]


def test_two_exchanges_in_a_worker_change_its_results_once(data):
    order, evict = data.fast.order, data.evict
    keep_filed_results_of(data, table_files.is_filed)
    assert (data.fast.order, data.evict) == (order, evict)


def test_results_that_are_nested_deeply_or_in_themselves_are_kept(data):
    cyclic: list = []
    cyclic.append(cyclic)
    deep: list = [1]
    for _ in range(3_000):
        deep = [deep]
    data.fast.n = 10**9  # Dask assumes a megabyte for each of them
    data["cyclic"], data["deep"] = cyclic, deep
    assert data["cyclic"] is cyclic
    assert data["deep"] is deep


class Unusual(list):
    """A list that cannot be indexed, and claims to be of another class."""

    @property
    def __class__(self):
        raise RuntimeError("not asked")

    def __getitem__(self, position):
        raise RuntimeError("not asked")


def test_only_known_types_are_asked_whether_they_are_in_files():
    assert not table_files.is_filed(Unusual([1]))
    assert not table_files.is_filed([Unusual([1])])
    assert not table_files.is_filed([])
