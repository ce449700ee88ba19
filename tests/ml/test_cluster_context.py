import asyncio
import json
import os
import sys
import threading
import warnings

import dask.array as da
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from distributed import Client
from scale import FULL
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC
from subprograms import wait_until

import hyperplane
from hyperplane.core.worker_imports import list_loaded_modules
from hyperplane.errors import RequestError
from hyperplane.ml import parallel
from hyperplane.ml.joblib_backend import name_estimator

pytestmark = pytest.mark.cluster
ROWS, LABELS = load_iris(return_X_y=True)


class _Recorder(ClassifierMixin, BaseEstimator):
    """Base of estimators that write one line for each fit."""

    def __init__(self, folder=None, value=0):
        self.folder, self.value = folder, value

    def fit(self, X, y):  # noqa: N803
        self.classes_ = np.unique(y)
        with open(f"{self.folder}/{self.value}", "a") as file:  # noqa: PTH123
            file.write(f"{os.getpid()}\n")
        self.act(X)
        return self

    def act(self, X):  # noqa: N803
        pass

    def predict(self, X):  # noqa: N803
        return np.full(len(X), self.classes_[0])


def _local(base, act):
    """Return a class that is pickled by value, as one of a notebook is."""
    return type("Local", (base,), {"act": act, "__module__": "__main__"})


def test_a_grid_search_gives_the_results_of_scikit_learn(client):
    grid = {"C": [0.1, 1.0, 10.0], "kernel": ["linear", "rbf"]}
    with parallel() as used:
        ours = GridSearchCV(SVC(), grid, cv=3).fit(ROWS, LABELS)
    assert used is client
    theirs = GridSearchCV(SVC(), grid, cv=3).fit(ROWS, LABELS)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_array_equal(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )


def test_plain_documented_code_runs(client):
    with joblib.parallel_backend("dask"):
        scores = cross_val_score(LogisticRegression(max_iter=500), ROWS, LABELS, cv=3)
    assert scores.mean() > 0.9


def test_a_random_forest_uses_all_workers(client):
    with parallel(client, progress=False):
        pids = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(40))
        forest = RandomForestClassifier(20, random_state=0).fit(ROWS, LABELS)
    assert os.getpid() not in pids
    expected = RandomForestClassifier(20, random_state=0).fit(ROWS, LABELS)
    np.testing.assert_array_equal(forest.predict_proba(ROWS), expected.predict_proba(ROWS))


def test_calls_within_a_call_stay_in_their_worker(client):
    def outer():
        inner = joblib.Parallel(n_jobs=8)(joblib.delayed(os.getpid)() for _ in range(8))
        return os.getpid(), set(inner)

    with parallel():
        results = joblib.Parallel()(joblib.delayed(outer)() for _ in range(4))
    assert all(inner == {pid} for pid, inner in results)


@pytest.mark.parametrize("library", ["numpy", "pandas", "polars", "scipy"])
def test_large_arrays_are_sent_once(client, library):
    rows = np.random.default_rng(1).random((25_000, 4))
    array = {
        "numpy": lambda: rows,
        "pandas": lambda: pd.DataFrame(rows),
        "polars": lambda: pl.DataFrame(rows),
        "scipy": lambda: sparse.csr_matrix(rows),
    }[library]()

    def count(X, number):  # noqa: N803
        return X.shape

    scattered = []
    original = client.scatter

    def scatter(value, **options):
        scattered.append(value)
        return original(value, **options)

    client.scatter = scatter
    try:
        with parallel():
            joblib.Parallel(batch_size=1)(joblib.delayed(count)(array, i) for i in range(30))
    finally:
        del client.scatter
    assert len(scattered) == 1
    assert scattered[0] is array


def test_arguments_are_released_when_the_caller_drops_them(client):
    def rows():
        for number in range(40):
            yield np.full(200_000, number)

    held = []

    def watch(total):
        held.append(len(joblib_backend()._sent))
        return total

    def joblib_backend():
        return joblib.parallel.get_active_backend()[0]

    with parallel():
        sums = joblib.Parallel(batch_size=1, pre_dispatch=4, return_as="generator")(
            joblib.delayed(np.sum)(row) for row in rows()
        )
        totals = [watch(total) for total in sums]
    assert totals == [200_000 * number for number in range(40)]
    assert 0 < max(held) < 20


def test_large_lists_are_part_of_their_tasks(client):
    texts = [f"flight {number}" for number in range(3000)]
    before = len(client.futures)
    with parallel():
        counts = joblib.Parallel()(joblib.delayed(len)(texts) for _ in range(4))
    assert counts == [3000] * 4
    assert len(client.futures) < before + 100


def test_a_result_that_cannot_be_pickled_is_an_error(client):
    def lock():
        return threading.Lock()

    with pytest.raises(RuntimeError, match="a result of a task cannot be pickled"), parallel():
        joblib.Parallel()(joblib.delayed(lock)() for _ in range(2))


class _NoPickleError(Exception):
    def __init__(self, lock):
        super().__init__("locked")
        self.lock = lock


def test_an_error_that_cannot_be_pickled_is_an_error(client):
    def fail():
        raise _NoPickleError(threading.Lock())

    with pytest.raises(RuntimeError, match="the error of a task cannot be pickled"), parallel():
        joblib.Parallel()(joblib.delayed(fail)() for _ in range(2))


def test_an_error_that_cannot_be_unpickled_is_an_error(client):
    class TwoPartsError(Exception):
        def __init__(self, first, second):
            super().__init__(first)

    def fail():
        raise TwoPartsError("a", "b")

    with pytest.raises(RuntimeError, match="cannot be unpickled"), parallel():
        joblib.Parallel()(joblib.delayed(fail)() for _ in range(2))


def test_an_error_that_builds_its_message_anew_names_the_estimator(client, tmp_path):
    def act(self, X):  # noqa: N803
        json.loads("{")

    estimator = _local(_Recorder, act)(str(tmp_path))
    with pytest.raises(json.JSONDecodeError, match="Local"), parallel():
        cross_val_score(estimator, ROWS, LABELS, cv=2, error_score="raise")


def test_an_error_of_an_unknown_call_says_so():
    task = (print, [SVC()], {"parameters": {"C": 2}})
    text = str(name_estimator(ValueError("killed"), task, others=3))
    assert text == "killed\nin a fit of SVC() with {'C': 2}, or one of 3 others"


def test_an_error_shows_the_lines_of_the_worker(client):
    def fail():
        raise ValueError("on the worker")

    with pytest.raises(ValueError, match="on the worker") as caught, parallel():
        joblib.Parallel()(joblib.delayed(fail)() for _ in range(2))
    assert "in fail" in str(caught.value.__cause__)


@pytest.mark.parametrize("error", [ValueError("no rows"), KeyError(3), OSError(2, "gone")])
def test_an_error_names_the_estimator_and_its_parameters(client, tmp_path, error):
    def act(self, X):  # noqa: N803
        if self.value == 2:
            raise error

    estimator = _local(_Recorder, act)(str(tmp_path))
    grid = GridSearchCV(estimator, {"value": [1, 2]}, cv=2, error_score="raise")
    with pytest.raises(type(error)) as caught, parallel():
        grid.fit(ROWS, LABELS)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "Local(" in text
    assert "{'value': 2}" in text


def test_a_killed_worker_costs_only_its_fits(client, tmp_path):
    def act(self, X):  # noqa: N803
        if self.value == 3 and len((tmp_path / "3").read_text().split()) == 1:
            os.kill(os.getpid(), 9)

    estimator = _local(_Recorder, act)(str(tmp_path))
    grid = GridSearchCV(estimator, {"value": list(range(8))}, cv=2, refit=False)
    with parallel(), warnings.catch_warnings():
        warnings.simplefilter("error")
        grid.fit(ROWS, LABELS)
    assert not np.isnan(grid.cv_results_["mean_test_score"]).any()
    fits = {file.name: len(file.read_text().split()) for file in tmp_path.iterdir()}
    assert sorted(map(int, fits)) == list(range(8))
    assert sum(fits.values()) <= 16 + 4


def test_lost_arguments_are_sent_again(tmp_path):
    client, cluster = hyperplane.initialize_cluster(
        nprocs=1, nthreads=1, num_workers=1, ram_gb_per_proc=0.5
    )
    flag = tmp_path / "killed"

    def total(array, number):
        if number == 3 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), 9)
        return float(array.sum()) + number

    array = np.ones(50_000)
    try:
        with parallel(client):
            results = joblib.Parallel(batch_size=1)(
                joblib.delayed(total)(array, i) for i in range(6)
            )
    finally:
        client.close()
        cluster.close()
    assert flag.exists()
    assert results == [50_000.0 + i for i in range(6)]


def test_an_argument_is_sent_again_if_its_worker_is_removed_meanwhile(client, monkeypatch):
    scatter, calls = client.scatter, []

    async def scatter_once_to_a_removed_worker(*args, **options):
        calls.append(args)
        if len(calls) == 1:
            raise KeyError("tcp://127.0.0.1:1")  # as the scheduler's answer
        return await scatter(*args, **options)

    monkeypatch.setattr(client, "scatter", scatter_once_to_a_removed_worker)
    array = np.ones(50_000)
    with parallel(client):
        sums = joblib.Parallel()(joblib.delayed(np.sum)(array) for _ in range(4))
    assert sums == [50_000.0] * 4
    assert len(calls) >= 2


@pytest.mark.skipif(not FULL, reason="four workers start again: at full scale")
def test_a_task_that_kills_each_worker_is_an_error(client, tmp_path):
    def act(self, X):  # noqa: N803
        os.kill(os.getpid(), 9)

    estimator = _local(_Recorder, act)(str(tmp_path))
    with pytest.raises(Exception, match="Local") as caught, parallel():
        cross_val_score(estimator, ROWS, LABELS, cv=2)
    assert type(caught.value).__name__ in ("WorkerCrash", "RuntimeError")


def test_an_estimator_that_cannot_be_sent_names_its_attribute(client):
    class Locked(SVC):
        def __init__(self, lock=None):
            super().__init__()
            self.lock = lock

        def __sklearn_clone__(self):
            return self

    with pytest.raises(RequestError, match=r"'self.lock' \(lock\)"), parallel():
        cross_val_score(Locked(threading.Lock()), ROWS, LABELS, cv=2)


def test_a_call_of_sys_exit_ends_its_call_only(client):
    client.wait_for_workers(2)  # another test may have killed one
    before = client.run(os.getpid)
    with pytest.raises(RuntimeError, match="the call raised SystemExit: 3"), parallel():
        joblib.Parallel()(joblib.delayed(sys.exit)(3) for _ in range(2))
    assert client.run(os.getpid) == before


def test_uneven_arrays_are_refused(client):
    with pytest.raises(ValueError, match="inconsistent"), parallel():
        GridSearchCV(SVC(), {"C": [1]}).fit(ROWS, LABELS[:-1])


def test_dask_collections_are_refused_before_a_fit(client):
    rows = da.from_array(ROWS, chunks=(50, -1))
    with pytest.raises(RequestError, match=r"data = a Dask Array: .* call compute\(\)"), parallel():
        GridSearchCV(SVC(), {"C": [1]}).fit(rows, LABELS)

    def compute_in_worker(array):
        return array.compute(scheduler="synchronous")

    with parallel():  # a call without a fit may compute it by itself
        sums = joblib.Parallel()(joblib.delayed(compute_in_worker)(rows.sum()) for _ in range(1))
    assert sums == [ROWS.sum()]


@pytest.mark.parametrize("client_argument", ["tcp://127.0.0.1:1", 3])
def test_another_client_is_a_fault(client, client_argument):
    with pytest.raises(RequestError) as caught, parallel(client_argument, progress="no"):
        pass
    assert [fault.where for fault in caught.value.faults] == ["client", "progress"]


def test_workers_import_the_modules_of_this_process(client):
    def loaded():
        import sys

        return set(sys.modules)

    # Listed now: other tests may have imported modules since the workers started.
    expected = set(list_loaded_modules())
    with parallel():
        wait_until(lambda: all(expected <= modules for modules in client.run(loaded).values()), 60)
    assert "sklearn.svm" in expected


def test_an_asynchronous_client_is_a_fault_with_this_reason(client):
    async def refused():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            with pytest.raises(RequestError, match="asynchronous client cannot be used here"):
                parallel(other).__enter__()

    asyncio.run(refused())
