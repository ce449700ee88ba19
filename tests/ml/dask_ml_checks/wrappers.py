"""Checks of ensembles and of the wrappers of estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.base
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
from ml.dask_ml_checks.check import Check, Data, close

_CHUNKS = "dask_ml.metrics.regression"
_FIT = "dask_ml.ensemble._blockwise"


def _voting_classifier(voting: str, of_frame: bool = False) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.ensemble import BlockwiseVotingClassifier

        model = BlockwiseVotingClassifier(
            sklearn.linear_model.LogisticRegression(), voting=voting, classes=[0, 1]
        )
        rows, labels = data.X, data.y
        if of_frame:
            rows, labels = data.numbers_df, data.numbers_df.assign(y=data.y)["y"]
        fitted = model.fit(rows, labels)
        parts = [
            (str(i), sklearn.linear_model.LogisticRegression().fit(block, classes))
            for i, (block, classes) in enumerate(
                zip(np.split(data.rows, 2), np.split(data.classes, 2), strict=True)
            )
        ]
        votes = np.mean([part.predict_proba(data.rows) for _, part in parts], axis=0)
        if voting == "soft":
            close(fitted.predict_proba(rows), votes)
            close(fitted.predict(rows), votes.argmax(axis=1))
        else:
            counts = np.sum([part.predict(data.rows) for _, part in parts], axis=0)
            close(fitted.predict(rows), (counts > 1).astype(int))

    return run


def _voting_regressor(data: Data) -> None:
    from dask_ml.ensemble import BlockwiseVotingRegressor

    model = BlockwiseVotingRegressor(sklearn.linear_model.LinearRegression())
    parts = [
        sklearn.linear_model.LinearRegression().fit(block, targets).predict(data.rows)
        for block, targets in zip(np.split(data.rows, 2), np.split(data.targets, 2), strict=True)
    ]
    close(model.fit(data.X, data.r).predict(data.X), np.mean(parts, axis=0))
    expected = sklearn.metrics.r2_score(data.targets, np.mean(parts, axis=0))
    close(model.score(data.X, data.r), expected)


def _post_fit(of_frame: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.wrappers import ParallelPostFit

        known, rows = (data.numbers, data.numbers_df) if of_frame else (data.rows, data.X)
        model = ParallelPostFit(sklearn.linear_model.LogisticRegression())
        model.fit(known, data.classes)
        close(model.predict(rows), model.estimator.predict(known))
        close(model.predict_proba(rows), model.estimator.predict_proba(known))

    return run


def _post_fit_log_probabilities(data: Data) -> None:
    from dask_ml.wrappers import ParallelPostFit

    model = ParallelPostFit(sklearn.linear_model.LogisticRegression())
    model.fit(data.rows, data.classes)
    close(model.predict_log_proba(data.X), model.estimator.predict_log_proba(data.rows))


def _post_fit_transform(data: Data) -> None:
    from dask_ml.wrappers import ParallelPostFit

    model = ParallelPostFit(sklearn.decomposition.PCA(5)).fit(data.rows)
    close(model.transform(data.X), model.estimator.transform(data.rows))


def _post_fit_score(data: Data) -> None:
    from dask_ml.wrappers import ParallelPostFit

    for estimator, true, known, scoring in (
        (sklearn.linear_model.LogisticRegression(), data.classes, data.y, None),
        (sklearn.linear_model.LinearRegression(), data.targets, data.r, None),
        (sklearn.linear_model.LinearRegression(), data.targets, data.r, "r2"),
    ):
        model = ParallelPostFit(estimator, scoring=scoring).fit(data.rows, true)
        close(model.score(data.X, known), model.estimator.score(data.rows, true))


def _trained_in_blocks(data: Data, labels: np.ndarray, **options: Any) -> Any:
    expected = sklearn.linear_model.SGDClassifier(random_state=0)
    for rows, classes in zip(np.split(data.rows, 2), np.split(labels, 2), strict=True):
        expected.partial_fit(rows, classes, **options)
    return expected


def _incremental(of_frame: bool) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.wrappers import Incremental

        model = Incremental(
            sklearn.linear_model.SGDClassifier(random_state=0), shuffle_blocks=False
        )
        rows, labels = data.X, data.y
        if of_frame:
            rows, labels = data.numbers_df, data.numbers_df.assign(y=data.y)["y"]
        model.fit(rows, labels, classes=[0, 1])
        expected = _trained_in_blocks(data, data.classes, classes=[0, 1])
        close(model.coef_, expected.coef_)
        close(model.predict(rows), expected.predict(data.rows))
        if not of_frame:
            close(model.score(rows, labels), expected.score(data.rows, data.classes))

    return run


def _incremental_partial_fit(data: Data) -> None:
    from dask_ml.wrappers import Incremental

    model = Incremental(sklearn.linear_model.SGDClassifier(random_state=0), shuffle_blocks=False)
    model.partial_fit(data.X, data.y, classes=[0, 1])
    close(model.coef_, _trained_in_blocks(data, data.classes, classes=[0, 1]).coef_)
    before = model.coef_.copy()
    model.partial_fit(data.X, data.y)
    assert not np.array_equal(model.coef_, before)


def _incremental_regression(data: Data) -> None:
    from dask_ml.wrappers import Incremental

    model = Incremental(sklearn.linear_model.SGDRegressor(random_state=0), scoring="r2")
    model.fit(data.X, data.r)
    close(model.score(data.X, data.r), model.estimator_.score(data.rows, data.targets))


def _xgboost(data: Data) -> None:
    import dask_ml.xgboost  # noqa: F401


def _xgboost_dask(data: Data) -> None:
    import xgboost.dask  # test_boosting.py trains with it

    assert issubclass(xgboost.dask.DaskXGBRegressor, sklearn.base.BaseEstimator)


CHECKS: dict[str, Check] = {
    "ensemble.BlockwiseVotingClassifier": Check(_voting_classifier("hard"), _FIT),
    "ensemble.BlockwiseVotingClassifier with soft": Check(_voting_classifier("soft"), _FIT),
    "ensemble.BlockwiseVotingClassifier of a dataframe": Check(
        _voting_classifier("hard", of_frame=True), _FIT
    ),
    "ensemble.BlockwiseVotingRegressor": Check(_voting_regressor, _FIT),
    "wrappers.ParallelPostFit": Check(_post_fit(of_frame=False)),
    "wrappers.ParallelPostFit of a dataframe": Check(_post_fit(of_frame=True)),
    "wrappers.ParallelPostFit.predict_log_proba": Check(_post_fit_log_probabilities),
    "wrappers.ParallelPostFit.transform": Check(_post_fit_transform),
    "wrappers.ParallelPostFit.score": Check(_post_fit_score, _CHUNKS),
    "wrappers.Incremental": Check(_incremental(of_frame=False)),
    "wrappers.Incremental of a dataframe": Check(_incremental(of_frame=True)),
    "wrappers.Incremental.partial_fit": Check(_incremental_partial_fit),
    "wrappers.Incremental of a regression": Check(_incremental_regression, _CHUNKS),
    "xgboost": Check(
        _xgboost,
        instead="`xgboost.dask`",
        error="No module named 'dask_xgboost'",
        alternative=_xgboost_dask,
    ),
}
