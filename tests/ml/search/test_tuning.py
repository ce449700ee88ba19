import os
import threading
import time

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneGroupOut,
    StratifiedGroupKFold,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from hyperplane.errors import RequestError, SearchFailed
from hyperplane.ml import Range, read_search, tune

pytestmark = pytest.mark.cluster


def test_a_grid_of_a_function(client):
    result = tune(
        lambda values: (values["x"] - 2) ** 2,
        {"x": Range(0, 4)},
        search="grid",
        direction="minimize",
    )
    assert (result.best_params, result.best_value) == ({"x": 2}, 0.0)
    assert sorted(result.history["params.x"]) == [0, 1, 2, 3, 4]
    assert result.history["worker"].nunique() == 2


def test_bayesian_search_draws_better_values_than_chance(client):
    def loss(values):
        return (values["x"] - 2) ** 2 + (values["y"] + 1) ** 2

    space = {"x": Range(-10.0, 10.0), "y": Range(-10.0, 10.0)}
    # One at a time, as the values of concurrent trials depend on which ends first.
    result = tune(loss, space, max_trials=40, max_parallel=1, direction="minimize", seed=3)
    values = result.history["value"]
    assert values.iloc[20:].median() < values.iloc[:10].median()


def test_an_estimator_as_in_scikit_learn(client):
    rows, labels = load_iris(return_X_y=True, as_frame=True)
    space = {"C": [0.01, 1.0, 100.0], "gamma": [0.01, 0.1]}
    result = tune(SVC(), space, rows, labels, search="grid", cv=4)
    expected = GridSearchCV(SVC(), space, cv=4).fit(rows, labels)
    assert result.best_value == pytest.approx(expected.best_score_)
    ours = {
        (row["params.C"], row["params.gamma"]): row["value"] for _, row in result.history.iterrows()
    }
    theirs = {
        (params["C"], params["gamma"]): score
        for params, score in zip(
            expected.cv_results_["params"], expected.cv_results_["mean_test_score"], strict=True
        )
    }
    assert ours == pytest.approx(theirs)
    assert result.best_estimator.score(rows, labels) == expected.score(rows, labels)


@pytest.mark.slow
def test_halving_ends_most_trials_early(client):
    rows, labels = load_digits(return_X_y=True)
    space = {"C": Range(0.01, 100.0, "log"), "gamma": Range(1e-5, 1e-1, "log")}
    options = {"search": "halving", "max_trials": 15, "max_parallel": 1, "cv": 2, "seed": 0}
    result = tune(SVC(), space, rows, labels, **options)
    states = result.history["state"].value_counts()
    assert states["pruned"] > states["complete"] >= 1
    assert result.best_value > 0.9


def test_early_stopping_of_a_function(client):
    """Whichever of the two workers is faster, the outcome of each trial is the same.

    No trial ends early before five are complete, and values decrease. The trial 6 starts when at
    most one of those before it is running; it is worse than each complete one, as are the later.
    """

    def objective(values, trial):
        for step in range(1, 6):
            trial.report(values["x"] * step, step)
            if trial.should_prune():
                return None
        return values["x"] * step

    space = {"x": list(range(15, 0, -1))}
    history = tune(objective, space, search="grid", early_stopping=True).history
    assert history["params.x"].to_list() == space["x"]
    assert history["state"].iloc[0] == "complete"
    assert (history["state"].iloc[6:] == "pruned").all()
    assert history["value"].iloc[6:].to_list() == space["x"][6:]  # after their first step
    assert (history["state"] == "complete").sum() >= 5


def test_a_named_search_runs_the_remaining_trials_only(client, tmp_path):
    def objective(values):
        (tmp_path / repr(values["x"])).touch(exist_ok=False)
        return values["x"]

    space = {"x": Range(0.0, 1.0)}
    tune(objective, space, name="tuning-named", max_trials=5, seed=1)
    result = tune(objective, space, name="tuning-named", max_trials=8, seed=1)
    assert len(result.history) == len(list(tmp_path.iterdir())) == 8
    assert result.best_value == read_search("tuning-named").best_value


def test_a_name_is_refused_for_other_rows_estimators_and_scores(client):
    table, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    options = {"space": {"max_depth": [1, 2]}, "search": "grid", "name": "tuning-same", "cv": 2}
    first = tune(DecisionTreeClassifier(random_state=0), X=table, y=y, **options)
    again = tune(DecisionTreeClassifier(random_state=0), X=table.copy(), y=y, **options)
    assert again.best_value == first.best_value
    for estimator, rows, more, where in (
        (ExtraTreeClassifier(random_state=0), table, {}, "objective"),
        (DecisionTreeClassifier(random_state=1), table, {}, "objective"),
        (DecisionTreeClassifier(random_state=0), table + 1, {}, "X"),
        (DecisionTreeClassifier(random_state=0), table, {"scoring": "neg_log_loss"}, "scoring"),
        (DecisionTreeClassifier(random_state=0), table, {"cv": 3}, "cv"),
    ):
        with pytest.raises(RequestError) as caught:
            tune(estimator, X=rows, y=y, **{**options, **more})
        assert [fault.where for fault in caught.value.faults] == [where]


def test_a_killed_worker_costs_only_its_trials(client, tmp_path):
    def objective(values):
        attempts = tmp_path / f"{values['x']}"
        with attempts.open("a") as file:
            file.write("x")
        if values["x"] == 3 and attempts.read_text() == "x":
            os.kill(os.getpid(), 9)
        time.sleep(0.1)
        return values["x"]

    result = tune(objective, {"x": Range(0, 7)}, search="grid")
    assert result.history["state"].to_list() == ["complete"] * 8
    assert sorted(result.history["value"]) == list(range(8))
    counts = {file.name: len(file.read_text()) for file in tmp_path.iterdir()}
    assert counts["3"] == 2
    assert sum(counts.values()) <= 8 + 2  # the trial of the killed worker, and its next at most


def test_the_data_of_an_estimator_survive_a_killed_worker(client, tmp_path):
    class Deadly(LogisticRegression):
        def fit(self, X, y):  # noqa: N803
            if self.C == 2.0 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), 9)
            return super().fit(X, y)

    rows, labels = load_iris(return_X_y=True)
    space = {"C": [0.5, 1.0, 2.0, 4.0]}
    result = tune(Deadly(max_iter=500), space, rows, labels, search="grid", refit=False)
    assert (tmp_path / "killed").exists()
    assert result.history["state"].to_list() == ["complete"] * 4


def test_failed_trials_are_in_the_history(client):
    result = tune(lambda values: 1 / values["x"], {"x": [0, 1, 2]}, search="grid")
    failed = result.history[result.history["state"] == "failed"]
    assert failed["params.x"].to_list() == [0]
    assert "ZeroDivisionError" in failed["error"].iloc[0]


def test_a_search_whose_trials_all_fail_is_an_error(client):
    with pytest.raises(SearchFailed, match="ZeroDivisionError"):
        tune(lambda values: 1 / 0, {"x": [1, 2, 3]}, search="grid")


def test_all_faults_of_a_call(client):
    with pytest.raises(RequestError) as caught:
        tune(SVC, {"x": 3}, search="all", direction="up", max_trials=0, name="a b", seed=1.5,
             early_stopping="no", max_parallel=-1)  # fmt: skip
    assert {fault.where for fault in caught.value.faults} == {
        "objective", "space.x", "search", "direction", "max_trials", "name", "seed",
        "early_stopping", "max_parallel",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"X": np.ones((4, 2)), "y": np.ones(3)}, ["y"]),
        ({"X": da.ones((4, 2)), "y": da.ones(4)}, ["X", "y"]),
        ({}, ["X"]),
        ({"X": np.ones((4, 2)), "y": [0, 1, 0, 1], "direction": "minimize"}, ["direction"]),
        ({"X": np.ones((4, 2)), "y": [0, 1, 0, 1], "cv": 9, "scoring": "best"}, ["cv", "scoring"]),
    ],
)
def test_faults_of_the_data(client, arguments, where):
    with pytest.raises(RequestError) as caught:
        tune(SVC(), {"C": [1.0]}, **arguments)
    assert [fault.where for fault in caught.value.faults] == where


@pytest.mark.parametrize("scoring", [{"a": "accuracy"}, ["accuracy"], ("accuracy",), {"accuracy"}])
def test_several_scores_are_refused_before_the_start(client, scoring):
    with pytest.raises(RequestError, match=r"pass one of them, such as scoring='accuracy'"):
        tune(SVC(), {"C": [1.0]}, np.ones((4, 2)), [0, 1, 0, 1], cv=2, scoring=scoring)


@pytest.mark.parametrize("splitter", [GroupKFold(2), LeaveOneGroupOut(), StratifiedGroupKFold(2)])
def test_a_splitter_of_groups_is_passed_as_its_splits(client, splitter):
    table, labels, groups = np.arange(16.0).reshape(8, 2), [0, 1] * 4, [0, 0, 0, 0, 1, 1, 1, 1]
    options = {"space": {"max_depth": [1]}, "X": table, "y": labels, "search": "grid"}
    with pytest.raises(RequestError, match=r"pass cv=list\(splitter.split\(X, y, groups\)\)"):
        tune(DecisionTreeClassifier(), **options, cv=splitter)
    splits = list(splitter.split(table, labels, groups))
    assert len(tune(DecisionTreeClassifier(), **options, cv=splits).history) == 1


def test_an_unknown_parameter_of_an_estimator_proposes_a_name(client):
    with pytest.raises(RequestError, match="did you mean gamma"):
        tune(SVC(), {"gama": [1.0]}, np.ones((4, 2)), [0, 1, 0, 1])


def test_a_function_that_cannot_be_sent_names_the_variable(client):
    lock = threading.Lock()
    with pytest.raises(RequestError, match=r"'lock' \(lock\)"):
        tune(lambda values: lock.locked(), {"x": [1]})


def test_without_a_cluster_the_error_names_the_next_step(client):
    with pytest.raises(RequestError, match="initialize_cluster"):
        tune(lambda values: 1, {"x": [1]}, client="tcp://127.0.0.1:1")
