"""Checks of splits and searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.decomposition
import sklearn.linear_model
import sklearn.model_selection
from ml.dask_ml_checks.check import ROWS, Check, Data, close

_SEARCH = "dask_ml.model_selection._search"
_PERSIST = "dask_ml.model_selection._incremental"


def _k_fold(shuffle: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.model_selection import KFold

        ours = KFold(4, shuffle=shuffle, random_state=0 if shuffle else None)
        splits = [(train.compute(), test.compute()) for train, test in ours.split(data.X)]
        assert sorted(np.concatenate([test for _, test in splits])) == list(range(ROWS))
        if not shuffle:
            theirs = sklearn.model_selection.KFold(4).split(data.rows)
            for split, expected in zip(splits, theirs, strict=True):
                for ours_indices, indices in zip(split, expected, strict=True):
                    assert list(ours_indices) == list(indices)

    return run


def _shuffle_split(data: Data) -> None:
    from dask_ml.model_selection import ShuffleSplit

    for train, test in ShuffleSplit(2, test_size=0.25, random_state=0).split(data.X):
        assert (len(train), len(test)) == (ROWS * 3 // 4, ROWS // 4)
        assert not set(train.compute()) & set(test.compute())


def _shuffle_split_between_blocks(data: Data) -> None:
    from dask_ml.model_selection import ShuffleSplit

    next(ShuffleSplit(1, blockwise=False, random_state=0).split(data.X))


def _shuffled_split(data: Data) -> None:
    from dask_ml.model_selection import ShuffleSplit

    order = np.random.default_rng(0).permutation(ROWS)
    rows = data.X[order]
    (split,) = ShuffleSplit(1, test_size=0.25, random_state=0).split(rows)
    train, test = (rows[indices.compute()].compute() for indices in split)
    assert (len(train), len(test)) == (ROWS * 3 // 4, ROWS // 4)
    both = np.concatenate([train, test])
    close(both[np.lexsort(both.T)], data.rows[np.lexsort(data.rows.T)])
    # The first block has rows of all blocks.
    assert 0 < np.isin(rows.blocks[0].compute()[:, 0], data.rows[:200, 0]).mean() < 1


def _train_test_split(data: Data) -> None:
    from dask_ml.model_selection import train_test_split

    train, test, train_y, test_y = train_test_split(data.X, data.y, test_size=0.25, random_state=0)
    assert (train.shape, test.shape) == ((300, 5), (100, 5))
    both = np.concatenate([train.compute(), test.compute()])
    labels = np.concatenate([train_y.compute(), test_y.compute()])
    order = np.lexsort(both.T), np.lexsort(data.rows.T)
    close(both[order[0]], data.rows[order[1]])
    close(labels[order[0]], data.classes[order[1]])


def _train_test_split_frame(data: Data) -> None:
    from dask_ml.model_selection import train_test_split

    parts = train_test_split(data.df, data.df["a"], random_state=0, shuffle=True)
    train, test, train_a, test_a = (part.compute() for part in parts)
    assert sorted([*train.index, *test.index]) == list(range(ROWS))
    assert list(train.index) == list(train_a.index)
    assert list(test.index) == list(test_a.index)


def _model() -> Any:
    return sklearn.linear_model.LogisticRegression()


def _grid_search(of_dask: bool = False, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.model_selection import GridSearchCV

        grid = {"C": [0.01, 1.0]}
        known = (data.X, data.y) if of_dask else (data.rows, data.classes)
        ours = GridSearchCV(_model(), grid, cv=3, **options).fit(*known)
        theirs = sklearn.model_selection.GridSearchCV(_model(), grid, cv=3, **options)
        theirs.fit(data.rows, data.classes)
        for name in theirs.cv_results_:
            if name.startswith("mean_test"):
                close(ours.cv_results_[name], theirs.cv_results_[name], 1e-3)
        assert ours.best_params_ == theirs.best_params_
        close(ours.predict(data.rows), theirs.predict(data.rows))
        score = theirs.score(data.rows, data.classes)
        close(ours.score(data.rows, data.classes), score)

    return run


def _randomized_search(data: Data) -> None:
    from dask_ml.model_selection import RandomizedSearchCV

    space, options = {"C": [0.01, 1.0, 10.0]}, {"n_iter": 2, "cv": 3, "random_state": 0}
    ours = RandomizedSearchCV(_model(), space, **options).fit(data.rows, data.classes)
    theirs = sklearn.model_selection.RandomizedSearchCV(_model(), space, **options)
    theirs.fit(data.rows, data.classes)
    assert ours.best_params_ == theirs.best_params_
    close(ours.best_score_, theirs.best_score_, 1e-3)


def _search_inverse_transform(data: Data) -> None:
    from dask_ml.model_selection import GridSearchCV

    search = GridSearchCV(sklearn.decomposition.PCA(5), {"whiten": [True, False]}, cv=2)
    search.fit(data.rows, data.classes)
    close(search.inverse_transform(search.transform(data.rows)), data.rows)


def _check_cv(data: Data) -> None:
    from dask_ml.model_selection import check_cv, compute_n_splits

    for cv in (3, sklearn.model_selection.ShuffleSplit(4)):
        splitter = check_cv(cv, data.y, classifier=True)
        expected = sklearn.model_selection.check_cv(cv, data.classes, classifier=True)
        assert type(splitter) is type(expected)
        assert compute_n_splits(splitter, data.X, data.y) == expected.get_n_splits()


def _incremental_search(name: str, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.model_selection as ours

        model = sklearn.linear_model.SGDClassifier(tol=1e-3, random_state=0)
        space = {"alpha": [1e-4, 1e-3, 1e-2, 1e-1]}
        search = getattr(ours, name)(model, space, random_state=0, **options)
        search.fit(data.X, data.y, classes=[0, 1])
        assert search.best_score_ > 0.7
        close(search.predict(data.X), search.best_estimator_.predict(data.rows))
        expected = search.best_estimator_.score(data.rows, data.classes)
        close(search.score(data.X, data.y), expected)
        assert {"param_alpha", "test_score"} <= set(search.cv_results_)

    return run


CHECKS: dict[str, Check] = {
    "model_selection.KFold": Check(_k_fold(shuffle=False)),
    "model_selection.KFold with shuffle": Check(_k_fold(shuffle=True)),
    "model_selection.ShuffleSplit": Check(_shuffle_split),
    "model_selection.ShuffleSplit with blockwise=False": Check(
        _shuffle_split_between_blocks,
        instead="`X[numpy.random.permutation(len(X))]` before the split",
        error="has not been implemented",
        alternative=_shuffled_split,
    ),
    "model_selection.train_test_split": Check(_train_test_split),
    "model_selection.train_test_split of a dataframe": Check(_train_test_split_frame),
    "model_selection.GridSearchCV": Check(_grid_search()),
    "model_selection.GridSearchCV of arrays of Dask": Check(_grid_search(of_dask=True)),
    "model_selection.GridSearchCV with scoring": Check(_grid_search(scoring="roc_auc")),
    "model_selection.GridSearchCV with several scores": Check(
        _grid_search(scoring=["accuracy", "f1"], refit="f1"), _SEARCH
    ),
    "model_selection.GridSearchCV.inverse_transform": Check(_search_inverse_transform, _SEARCH),
    "model_selection.RandomizedSearchCV": Check(_randomized_search),
    "model_selection.check_cv, compute_n_splits": Check(_check_cv),
    "model_selection.IncrementalSearchCV": Check(
        _incremental_search("IncrementalSearchCV", n_initial_parameters=4, max_iter=4), _PERSIST
    ),
    "model_selection.IncrementalSearchCV with patience": Check(
        _incremental_search(
            "IncrementalSearchCV", n_initial_parameters=3, max_iter=9, patience=2, tol=0.01
        ),
        _PERSIST,
    ),
    "model_selection.InverseDecaySearchCV": Check(
        _incremental_search("InverseDecaySearchCV", n_initial_parameters=4, max_iter=4), _PERSIST
    ),
    "model_selection.SuccessiveHalvingSearchCV": Check(
        _incremental_search(
            "SuccessiveHalvingSearchCV", n_initial_parameters=4, n_initial_iter=1, max_iter=4
        ),
        _PERSIST,
    ),
    "model_selection.HyperbandSearchCV": Check(
        _incremental_search("HyperbandSearchCV", max_iter=4), _PERSIST
    ),
    "model_selection.HyperbandSearchCV with patience": Check(
        _incremental_search("HyperbandSearchCV", max_iter=9, patience=True), _PERSIST
    ),
}
