"""Objective that cross-validates an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperplane.core.argument_checks import describe_value
from hyperplane.core.errors import Fault, check
from hyperplane.ml.search.search_plan import HALVING_FACTOR
from hyperplane.ml.search.trial import Trial

#: Rows of the first step of successive halving, unless there are fewer, for each fold.
_FIRST_ROWS = 50


@dataclass(frozen=True)
class EstimatorObjective:
    """Mean score of an estimator in cross-validation.

    Parameters
    ----------
    estimator : estimator of scikit-learn
        It is cloned for each fit.
    splits : list of tuple of numpy.ndarray
        Positions of the rows to fit and to score, for each fold.
    scorer : callable
        ``scorer(estimator, X, y)`` returns a number; large numbers are good.
    halving : bool
        Whether trials begin with few rows, and those that stay good get more.
    """

    estimator: Any
    splits: list[tuple[Any, Any]]
    scorer: Any
    halving: bool

    def __call__(
        self, values: Mapping[str, Any], trial: Trial, data: tuple[Any, Any]
    ) -> float | None:
        """Return the mean score of all folds; None if the trial ended early."""
        if not self.halving:
            return self._score_folds(values, trial, data)
        score: float | None = None
        for step, rows in enumerate(self._list_rows()):
            score = self._score_rows(values, data, rows)
            trial.report(score, HALVING_FACTOR**step)
            if trial.should_prune():
                return None
        return score

    def fit(self, values: Mapping[str, Any], data: tuple[Any, Any]) -> Any:
        """Return the estimator with these values, fitted to all rows."""
        from sklearn.base import clone

        return clone(self.estimator).set_params(**values).fit(*data)

    def _score_folds(
        self, values: Mapping[str, Any], trial: Trial, data: tuple[Any, Any]
    ) -> float | None:
        scores: list[float] = []
        for step, (fit, test) in enumerate(self.splits):
            scores.append(self._fit_and_score(values, data, fit, test))
            trial.report(float(np.mean(scores)), step)
            if step + 1 < len(self.splits) and trial.should_prune():
                return None
        return float(np.mean(scores))

    def _score_rows(self, values: Mapping[str, Any], data: tuple[Any, Any], rows: int) -> float:
        return float(
            np.mean(
                [
                    self._fit_and_score(values, data, _take(fit, rows), test)
                    for fit, test in self.splits
                ]
            )
        )

    def _fit_and_score(
        self, values: Mapping[str, Any], data: tuple[Any, Any], fit: Any, test: Any
    ) -> float:
        from sklearn.base import clone

        X, y = data  # noqa: N806 - the names of scikit-learn
        estimator = clone(self.estimator).set_params(**values)
        labels = (None, None) if y is None else (_take_rows(y, fit), _take_rows(y, test))
        estimator.fit(_take_rows(X, fit), labels[0])
        return float(self.scorer(estimator, _take_rows(X, test), labels[1]))

    def _list_rows(self) -> list[int]:
        """Return the numbers of rows of the steps of successive halving; the last has all."""
        most = max(len(fit) for fit, _ in self.splits)
        rows = [most]
        while rows[-1] // HALVING_FACTOR >= _FIRST_ROWS:
            rows.append(rows[-1] // HALVING_FACTOR)
        return rows[::-1]


def _take_rows(table: Any, positions: Any) -> Any:
    """Return rows of an array, a dataframe, a sparse matrix or a list."""
    if hasattr(table, "iloc"):
        return table.iloc[positions]
    if hasattr(table, "shape"):
        return table[positions]
    return [table[position] for position in positions]


def _take(positions: Any, rows: int) -> Any:
    """Return a random part of the positions, the same in each trial."""
    if rows >= len(positions):
        return positions
    return np.random.default_rng(0).permutation(positions)[:rows]


def make_objective(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    cv: Any,
    scoring: Any,
    *,
    halving: bool,
) -> EstimatorObjective:
    """Return the objective of an estimator.

    Raises
    ------
    RequestError
        If scikit-learn refuses ``cv`` or ``scoring``.
    """
    from sklearn.base import is_classifier
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import check_cv

    faults = []
    splits: list[tuple[Any, Any]] = []
    scorer = None
    try:
        folds = check_cv(cv, y, classifier=is_classifier(estimator))
        splits = list(folds.split(X, y))
    except (ValueError, TypeError) as error:
        needs_groups = "groups" in str(error)  # GroupKFold and others
        advice = "pass cv=list(splitter.split(X, y, groups))" if needs_groups else ""
        faults.append(Fault("cv", describe_value(cv), f"folds of these rows ({error})", advice))
    if isinstance(scoring, (Mapping, list, tuple, set)):
        # check_scoring returns a scorer of several scores, which a trial cannot be ranked by.
        advice = "pass one of them, such as scoring='accuracy'"
        allowed = "one score of scikit-learn or a function"
        faults.append(Fault("scoring", describe_value(scoring), allowed, advice))
    else:
        try:
            scorer = check_scoring(estimator, scoring)
        except (ValueError, TypeError) as error:
            allowed = f"a score of scikit-learn or a function ({str(error).splitlines()[0]})"
            faults.append(Fault("scoring", describe_value(scoring), allowed))
    check(faults)
    return EstimatorObjective(estimator, splits, scorer, halving)


def is_estimator(value: object) -> bool:
    """Return whether a value has the methods of an estimator of scikit-learn."""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "fit", None))
        and callable(getattr(value, "get_params", None))
    )


def find_parameter_faults(estimator: Any, names: list[str]) -> list[Fault]:
    """Return a fault for each name that is not a parameter of the estimator.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> [fault.advice for fault in find_parameter_faults(Ridge(), ["alhpa"])]
    ['did you mean alpha?']
    """
    import difflib

    known = sorted(estimator.get_params(deep=True))
    faults = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]}?" if near else ""
            allowed = f"a parameter of {type(estimator).__name__}: {', '.join(known)}"
            faults.append(Fault(f"space.{name}", "a parameter", allowed, advice))
    return faults


def find_data_faults(X: Any, y: Any) -> list[Fault]:  # noqa: N803
    """Return the faults of the rows and their labels."""
    if X is None:
        return [Fault("X", "nothing", "the rows, as tune has an estimator")]
    faults = [
        Fault(
            name,
            f"a {type(value).__name__} of Dask",
            "rows in memory: an array of numpy, a dataframe or a sparse matrix",
            f"pass {name}.compute(), or use hyperplane.ml with dask-ml for rows beyond memory",
        )
        for name, value in (("X", X), ("y", y))
        if hasattr(value, "__dask_graph__")
    ]
    if faults or y is None:
        return faults
    rows, labels = _count_rows(X), _count_rows(y)
    if rows is not None and labels is not None and rows != labels:
        faults.append(Fault("y", f"{labels} labels", f"as many as X has rows: {rows}"))
    return faults


def _count_rows(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape:
        return int(shape[0])
    try:
        return len(value)
    except TypeError:
        return None
