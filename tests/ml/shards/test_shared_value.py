"""SharedValue on worker processes: copies, transfers, and values that are lost."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures import CancelledError
from functools import partial

import dask.bag as bag
import dask.config
import numpy as np
import pytest

from hyperplane.errors import RequestError
from hyperplane.ml import SharedValue, XShards

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def frequent_memory_manager():
    """Let the active memory manager run every half second, not two, so that tests are shorter."""
    with dask.config.set({"distributed.scheduler.active-memory-manager.interval": "500ms"}):
        yield


@pytest.fixture(autouse=True)
def use_client(client):
    return


def test_a_shared_value_is_on_each_worker_once(client, request):
    client.amm.stop()  # the active memory manager removes all copies but one
    request.addfinalizer(client.amm.start)
    table = SharedValue(np.arange(100_000))
    before = table._key
    shards = XShards.partition(np.arange(8), num_shards=4)

    def look_up(shard, table):
        import distributed

        held = table._key in distributed.get_worker().data
        return held, table.value[shard].tolist()

    assert shards.transform_shard(look_up, table).collect() == [
        (True, [0, 1]),
        (True, [2, 3]),
        (True, [4, 5]),
        (True, [6, 7]),
    ]
    assert shards.transform_shard(lambda shard: int(table.value[shard[0]])).collect() == [
        0,
        2,
        4,
        6,
    ]
    assert len(client.who_has()[before]) == 2
    table.unpersist()
    while client.who_has().get(before):
        time.sleep(0.05)


class _Counted:
    """Value that appends a line to a file whenever it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return _count_copy, (self.file,)


def _count_copy(file):
    with open(file, "a") as lines:  # noqa: PTH123
        lines.write("copy\n")
    return _Counted(file)


def _read_slowly(shard, value):
    time.sleep(0.08)
    return os.getpid(), type(value.value).__name__


def _wait_for_one_copy(client, key):
    """Let the active memory manager remove all copies of a value but one."""
    client.amm.run_once()
    while len(client.who_has()[key]) > 1:
        time.sleep(0.05)


def _read_as(form, shards, value):
    if form == "argument":
        return shards.transform_shard(_read_slowly, value)
    if form == "nested":
        return shards.transform_shard(lambda n, v: _read_slowly(n, v["a"][0]), {"a": [value]})
    if form == "partial":
        return shards.transform_shard(partial(_read_slowly, value=value))
    return shards.transform_shard(lambda n: _read_slowly(n, value))


@pytest.mark.parametrize("form", ["argument", "nested", "partial", "variable"])
def test_a_shared_value_is_fetched_once_by_a_worker_whose_copy_was_removed(client, tmp_path, form):
    copies = tmp_path / "copies"
    value = SharedValue(_Counted(str(copies)))
    key = value._key
    _wait_for_one_copy(client, key)
    copies.write_text("")
    shards = XShards.partition(np.arange(20), num_shards=20)
    shards = _read_as(form, shards, value)
    results = shards.collect()  # 0.8 s on two workers: the memory manager runs meanwhile
    pids, types = zip(*results, strict=True)
    assert len(set(pids)) == 2
    assert set(types) == {"_Counted"}
    # Once for the worker that had none, and again if Dask removes it between two of its tasks; with
    # a copy for each task there would be ten.
    assert len(copies.read_text().split()) <= 4
    assert key not in {str(each.key) for each in client.futures_of(shards.compute().parts)}
    del value, shards
    while client.who_has().get(key):
        time.sleep(0.05)
    assert key not in client.futures


def test_lazy_shards_keep_a_shared_value_that_the_program_has_dropped(client):
    value = SharedValue([1, 2, 3])
    key = value._key
    shards = XShards.partition(np.arange(4), num_shards=4).transform_shard(len_of, value)
    del value
    _wait_for_one_copy(client, key)
    assert shards.collect() == [4] * 4
    del shards
    while client.who_has().get(key):
        time.sleep(0.05)


@pytest.mark.parametrize("method", ["collect", "compute", "first", "save_pickle", "to_bag"])
def test_lazy_shards_of_a_shared_value_that_was_unpersisted_are_an_error(client, tmp_path, method):
    value = SharedValue([1, 2, 3])
    shards = XShards.partition(np.arange(4), num_shards=4).transform_shard(len_of, value)
    computed = shards.to_lazy().compute()
    value.unpersist()
    while client.who_has().get(value._key):
        time.sleep(0.05)
    if method == "to_bag":  # computed by Dask
        with pytest.raises(CancelledError, match=r"SharedValue-|lost dependencies"):
            shards.to_bag().compute()
    else:
        arguments = [str(tmp_path / "new")] if method == "save_pickle" else []
        with pytest.raises(RequestError, match="lost with its workers, or unpersisted"):
            getattr(shards, method)(*arguments)
    assert computed.collect() == [4] * 4


def test_a_shared_value_that_no_worker_has_is_an_error(client):
    value = SharedValue([1, 2, 3])
    key, copy = value._key, pickle.loads(pickle.dumps(value))
    del value
    while client.who_has().get(key):
        time.sleep(0.05)
    lazy = XShards.partition(np.arange(2), num_shards=2).transform_shard(len_of, copy)
    with pytest.raises(RequestError, match="lost with its workers, or unpersisted"):
        lazy.collect()


def len_of(shard, value):
    return len(shard) + len(value.value)


def test_a_shared_value_whose_worker_has_died_is_an_error(client):
    client.wait_for_workers(2)
    value = SharedValue([1, 2, 3])
    _wait_for_one_copy(client, value._key)
    # Not XShards.partition: these are lost, too.
    shards = XShards.from_bag(bag.from_sequence([[1], [2]], npartitions=2))
    shards = shards.transform_shard(len_of, value)
    (worker,) = client.who_has()[value._key]
    os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
    while client.who_has().get(value._key):
        time.sleep(0.05)
    with pytest.raises(RequestError, match="lost with its workers, or unpersisted"):
        shards.collect()
