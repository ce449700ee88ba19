"""``parallel`` on a cluster whose workers join and leave during a call of joblib."""

import os
import time
from itertools import product

import joblib
import numpy as np
import pytest
from scale import scaled

import hyperplane
from hyperplane.ml import parallel

pytestmark = pytest.mark.cluster


@pytest.fixture
def start():
    started = []

    def start(nprocs):
        started[:] = hyperplane.initialize_cluster(
            nprocs=nprocs, nthreads=1, num_workers=1, ram_gb_per_proc=0.6
        )
        return started

    yield start
    for each in started:
        each.close()


def _meet(array, folder, processes, end):
    """Return whether as many processes run calls at the same time, before the time ``end``."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < processes and time.time() < end:
        time.sleep(0.05)
    return time.time() < end


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "size"),
    # test_gang.py has an adaptive cluster, too.
    scaled([("scale", 1_000_000)], list(product(["scale", "adapt"], [10, 1_000_000]))),
)
def test_workers_that_join_during_a_call_take_part(start, tmp_path, method, size):
    client, cluster = start(1)
    end = time.time() + 240
    with parallel(client):
        # Three calls at first: a fourth worker has no work unless more are dispatched.
        calls = joblib.Parallel(batch_size=1, pre_dispatch="1.5*n_jobs", return_as="generator")(
            joblib.delayed(_meet)(np.ones(size), tmp_path, 4, end) for _ in range(12)
        )
        if method == "scale":
            cluster.scale(4)
        else:
            cluster.adapt(minimum=1, maximum=4, target_duration="100ms", interval="200ms")
        assert list(calls) == [True] * 12


@pytest.mark.slow
def test_a_number_of_calls_is_not_exceeded_when_the_cluster_grows(start, tmp_path):
    client, cluster = start(1)
    submitted = []

    def numbers():
        for number in range(8):
            submitted.append(number)
            yield joblib.delayed(_meet)(number, tmp_path / "calls", 3, time.time() + 240)

    (tmp_path / "calls").mkdir()
    with parallel(client):
        calls = joblib.Parallel(batch_size=1, pre_dispatch=2, return_as="generator")(numbers())
        cluster.scale(3)
        client.wait_for_workers(3)
        time.sleep(3)  # the backend looks each second
        most = len(submitted)
        (tmp_path / "calls" / "third").touch()
        assert len(list(calls)) == 8
    assert most == 2


def _add(array, number):
    time.sleep(0.2)
    return os.getpid(), float(array.sum()) + number


@pytest.mark.slow
@pytest.mark.parametrize("method", scaled(["scale"], ["scale", "adapt"]))
def test_workers_that_leave_during_a_call_cost_no_results(start, method):
    client, cluster = start(3)
    count = scaled(24, 100)
    array = np.ones(100_000)
    with parallel(client):
        calls = joblib.Parallel(batch_size=1, return_as="generator")(
            joblib.delayed(_add)(array, number) for number in range(count)
        )
        results = [next(calls) for _ in range(4)]
        if method == "scale":
            cluster.scale(1)
        else:
            cluster.adapt(minimum=1, maximum=1, interval="100ms")
        results += list(calls)
    assert [total for _, total in results] == [100_000.0 + number for number in range(count)]
    assert len({pid for pid, _ in results}) > 1
    while len(client.nthreads()) > 1:
        time.sleep(0.05)
