"""Corrections of the searches and estimators of dask-ml."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from hyperplane.ml.dask_ml_patches.replacement import replace


class _DaskOfTheClient:
    """The module ``dask`` with a ``persist`` that may be called in a coroutine."""

    def __init__(self, dask: ModuleType) -> None:
        self._dask = dask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dask, name)

    @staticmethod
    def persist(*values: Any) -> tuple[Any, ...]:
        from dask.base import unpack_collections
        from distributed import default_client

        collections, repack = unpack_collections(*values)
        persisted: tuple[Any, ...] = repack(default_client().persist(collections))
        return persisted


def correct_incremental_search(module: Any) -> None:
    """Let incremental searches persist data in their coroutine.

    Fault: ``dask.persist`` waits for the client, which since Dask 2025.2 is an error if the client
    is asynchronous, as it is in ``_fit``. Affects IncrementalSearchCV, InverseDecaySearchCV,
    SuccessiveHalvingSearchCV and HyperbandSearchCV. Remove it when dask-ml uses
    ``client.persist``.
    """
    module.dask = _DaskOfTheClient(module.dask)


def correct_voting(module: Any) -> None:
    """Let ``fit`` of the blockwise ensembles return the estimator.

    Fault: ``BlockwiseVotingClassifier.fit`` and that of the regressor return None, so that
    ``fit(X, y).predict(X)`` and pipelines fail. Remove it when they return the estimator.
    """
    for name in ("BlockwiseVotingClassifier", "BlockwiseVotingRegressor"):
        _return_self(getattr(module, name))


def _return_self(kind: Any) -> None:
    original = kind.fit

    @functools.wraps(original)
    def fit(self: Any, X: Any, y: Any, **options: Any) -> Any:  # noqa: N803
        original(self, X, y, **options)
        return self

    kind.fit = fit


def correct_search(module: Any) -> None:
    """Let searches with several scores compute one, and transform back.

    Faults: ``score`` of GridSearchCV and RandomizedSearchCV calls the dictionary of scorers if
    there are several, and ``inverse_transform`` calls ``transform``. Remove it when ``score``
    selects the scorer of ``refit``, and ``inverse_transform`` calls that of the best estimator.
    """
    kind = module.DaskBaseSearchCV
    original = kind.score

    @functools.wraps(original)
    def score(self: Any, X: Any, y: Any = None) -> Any:  # noqa: N803
        if isinstance(self.scorer_, dict):
            return self.scorer_[self.refit](self.best_estimator_, X, y)
        return original(self, X, y)

    def inverse_transform(self: Any, Xt: Any) -> Any:  # noqa: N803
        """Return ``Xt`` transformed back by the best estimator."""
        return self.best_estimator_.inverse_transform(Xt)

    kind.score = score
    kind.inverse_transform = inverse_transform


def correct_quantile_transformer(module: Any) -> None:
    """Let ``QuantileTransformer.inverse_transform`` transform arrays of Dask.

    Fault: scikit-learn 1.8 converts the rows to an array of NumPy there, which the method
    of dask-ml that it then calls cannot compute. Remove it when dask-ml has an
    ``inverse_transform``.
    """

    def inverse_transform(self: Any, X: Any) -> Any:  # noqa: N803
        """Return quantiles transformed back to values."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self._transform(self._check_inputs(X, in_fit=False), inverse=True)

    module.QuantileTransformer.inverse_transform = inverse_transform


def correct_preprocessing(module: Any) -> None:
    """Correct ``QuantileTransformer``, and let ``RobustScaler`` fit dataframes.

    Fault: ``RobustScaler.fit`` calls ``numpy.find_common_type``, which NumPy 2.0 removed. Remove it
    when dask-ml calls ``numpy.result_type``.
    """
    correct_quantile_transformer(module)
    original = module.RobustScaler.fit

    @functools.wraps(original)
    def fit(self: Any, X: Any, y: Any = None) -> Any:  # noqa: N803
        is_frame = isinstance(X, module.dd.DataFrame)
        return original(self, X.to_dask_array(lengths=True) if is_frame else X, y)

    module.RobustScaler.fit = fit


def correct_pca(module: Any) -> None:
    """Let ``PCA`` with a randomized solver transform.

    Fault: scikit-learn reads ``power_iteration_normalizer`` of a fitted PCA, which the one of
    dask-ml does not set. Remove it when dask-ml's PCA has this attribute.
    """
    module.PCA.power_iteration_normalizer = "auto"


def correct_k_means(module: Any) -> None:
    """Let ``KMeans`` begin with ``init="k-means++"``; sum squares in ``inertia_``.

    Faults: scikit-learn 1.3 added ``sample_weight`` to ``_kmeans_plusplus``, which dask-ml does not
    pass; and a fit that ends before the centers stay the same sums distances, not their squares.
    Remove it when dask-ml passes the weights and squares the distances.
    """
    original = module._kmeans_plusplus

    @functools.wraps(original)
    def initialize(X: Any, *arguments: Any, **options: Any) -> Any:  # noqa: N803
        import numpy as np

        options.setdefault("sample_weight", np.ones(X.shape[0], dtype=X.dtype))
        return original(X, *arguments, **options)

    replace(module, "_kmeans_plusplus", initialize)
    fit_once = module._kmeans_single_lloyd

    @functools.wraps(fit_once)
    def fit_with_squares(X: Any, *arguments: Any, **options: Any) -> Any:  # noqa: N803
        labels, _, centers, iterations = fit_once(X, *arguments, **options)
        # Lazy: it replaces the sum of dask-ml, which is not computed then.
        _, squares = module.pairwise_distances_argmin_min(
            X, centers, metric="euclidean", metric_kwargs={"squared": True}
        )
        return labels, squares.sum(), centers, iterations

    replace(module, "_kmeans_single_lloyd", fit_with_squares)


def correct_linear_models(module: Any) -> None:
    """Compute the deviance of ``PoissonRegression``.

    Fault: ``poisson_deviance`` of dask-glm 0.4 has ``log1p`` where the deviance has ``log``. Remove
    it when dask-glm has ``log``.
    """
    replace(module, "poisson_deviance", _poisson_deviance)


def _poisson_deviance(y_true: Any, y_pred: Any) -> Any:
    from scipy.special import xlogy  # 0 for a count of 0

    terms = xlogy(y_true, y_true / y_pred) - (y_true - y_pred)
    return 2 * terms.sum()
