"""Checks of linear models, naive Bayes, clustering and decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
import sklearn.naive_bayes
from ml.dask_ml_checks.check import ROWS, Check, Data, Different, close, without_cluster

_CHUNKS = "dask_ml.metrics.regression"
_ARRAY = "`frame.to_dask_array(lengths=True)`"
_NO_FRAME = "does not support dask dataframes"


def _linear_regression(solver: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.linear_model import LinearRegression

        rows, targets = data.to_dask(data.rows[:200]), data.to_dask(data.targets[:200])
        model = LinearRegression(solver=solver, C=1e10).fit(rows, targets)
        expected = sklearn.linear_model.LinearRegression().fit(data.rows[:200], data.targets[:200])
        close(model.coef_, expected.coef_, 1e-2)
        close(model.predict(rows), expected.predict(data.rows[:200]), 5e-2)

    # lbfgs sends its parameters to the workers.
    return run if solver == "lbfgs" else without_cluster(run)


def _linear_regression_score(data: Data) -> None:
    from dask_ml.linear_model import LinearRegression

    model = LinearRegression(solver="lbfgs", C=1e10).fit(data.X, data.r)
    expected = sklearn.linear_model.LinearRegression().fit(data.rows, data.targets)
    close(model.score(data.X, data.r), expected.score(data.rows, data.targets), 1e-2)


def _logistic_regression(solver: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.linear_model import LogisticRegression

        rows, classes = data.rows[:200], data.unclear_classes[:200]
        model = LogisticRegression(solver=solver, C=1e4)
        model.fit(data.to_dask(rows), data.to_dask(classes))
        expected = sklearn.linear_model.LogisticRegression(C=1e4).fit(rows, classes)
        close(model.coef_, expected.coef_[0], 0.05)
        agree = model.predict(data.to_dask(rows)).compute() == expected.predict(rows)
        assert agree.mean() > 0.98

    # lbfgs sends its parameters to the workers.
    return run if solver == "lbfgs" else without_cluster(run)


def _logistic_regression_results(data: Data) -> None:
    from dask_ml.linear_model import LogisticRegression

    labels = data.to_dask(data.unclear_classes)
    model = LogisticRegression(solver="lbfgs").fit(data.X, labels)
    expected = sklearn.linear_model.LogisticRegression().fit(data.rows, data.unclear_classes)
    close(model.predict_proba(data.X), expected.predict_proba(data.rows), 0.05)
    close(model.decision_function(data.X), expected.decision_function(data.rows), 0.05)
    close(model.score(data.X, labels), expected.score(data.rows, data.unclear_classes), 0.02)


def _penalized_logistic_regression(**options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.linear_model import LogisticRegression

        rows = data.rows * [0.1, 1, 1, 1, 3]
        model = LogisticRegression(C=0.1, solver="lbfgs", fit_intercept=False, **options)
        model.fit(data.to_dask(rows), data.to_dask(data.unclear_classes))
        expected = sklearn.linear_model.LogisticRegression(C=0.1, fit_intercept=False)
        close(model.coef_, expected.fit(rows, data.unclear_classes).coef_[0], 1e-2)

    return run


def _linear_model_of_frame(name: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.linear_model as ours

        labels = data.classes if name == "LogisticRegression" else data.targets
        frame = data.numbers_df.assign(label=data.to_dask(labels))
        columns = list(data.numbers.columns)
        model = getattr(ours, name)(solver="lbfgs").fit(frame[columns], frame["label"])
        expected = getattr(sklearn.linear_model, name)().fit(data.rows, labels)
        close(model.predict(frame[columns]), expected.predict(data.rows), 0.1)

    return run


def _linear_model_of_frame_values(name: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.linear_model as ours

        labels = data.unclear_classes if name == "LogisticRegression" else data.targets
        rows = data.numbers_df.to_dask_array(lengths=True)
        model = getattr(ours, name)(solver="newton", max_iter=20).fit(rows, data.to_dask(labels))
        options = {"C": np.inf} if name == "LogisticRegression" else {}
        expected = getattr(sklearn.linear_model, name)(**options).fit(data.rows, labels)
        close(model.coef_, expected.coef_.ravel(), 1e-2)

    return without_cluster(run)


def _logistic_regression_of_classes(data: Data) -> None:
    from dask_ml.linear_model import LogisticRegression

    classes = np.digitize(data.targets, [-1, 1])
    model = LogisticRegression(solver="newton", max_iter=3).fit(data.X, data.to_dask(classes))
    expected = sklearn.linear_model.LogisticRegression().fit(data.rows, classes)
    predicted = model.predict(data.X).compute()
    if len(np.unique(predicted)) < 3:
        raise Different("only two classes are predicted")
    assert (predicted == expected.predict(data.rows)).mean() > 0.9


def _incremental_of_classes(data: Data) -> None:
    from dask_ml.wrappers import Incremental

    classes = np.digitize(data.targets, [-1, 1])
    model = Incremental(sklearn.linear_model.SGDClassifier(loss="log_loss", random_state=0))
    for _ in range(10):
        model.partial_fit(data.X, data.to_dask(classes), classes=[0, 1, 2])
    expected = sklearn.linear_model.LogisticRegression().fit(data.rows, classes)
    agree = model.predict(data.X).compute() == expected.predict(data.rows)
    assert agree.mean() > 0.85


def _poisson_regression(data: Data) -> None:
    from dask_ml.linear_model import PoissonRegression

    counts = data.to_dask(data.counts)
    model = PoissonRegression(solver="lbfgs", C=1e10).fit(data.X, counts)
    expected = sklearn.linear_model.PoissonRegressor(alpha=0).fit(data.rows, data.counts)
    close(model.coef_, expected.coef_, 0.02)
    close(model.predict(data.X), expected.predict(data.rows), 0.1)
    deviance = sklearn.metrics.mean_poisson_deviance(data.counts, expected.predict(data.rows))
    close(model.get_deviance(data.X, counts).compute() / ROWS, deviance, 0.02)


def _naive_bayes(data: Data) -> None:
    from dask_ml.naive_bayes import GaussianNB

    model = GaussianNB().fit(data.X, data.y)
    expected = sklearn.naive_bayes.GaussianNB().fit(data.rows, data.classes)
    close(model.predict(data.X), expected.predict(data.rows))


def _naive_bayes_probabilities(data: Data) -> None:
    from dask_ml.naive_bayes import GaussianNB

    model = GaussianNB().fit(data.X, data.y)
    expected = sklearn.naive_bayes.GaussianNB().fit(data.rows, data.classes)
    close(model.predict_proba(data.X), expected.predict_proba(data.rows), 1e-3)
    close(model.predict_log_proba(data.X), expected.predict_log_proba(data.rows), 1e-3)


def _k_means(init: str) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        from dask_ml.cluster import KMeans

        X = data.to_dask(data.groups)  # noqa: N806
        start = data.groups[[0, np.argmax(data.classes != data.classes[0])]]
        model = KMeans(2, init=start if init == "array" else init, random_state=0).fit(X)
        assert sklearn.metrics.adjusted_rand_score(data.classes, model.labels_.compute()) == 1
        expected = sklearn.cluster.KMeans(2, n_init=1, random_state=0).fit(data.groups)
        close(np.sort(model.cluster_centers_, axis=0), np.sort(expected.cluster_centers_, axis=0))
        close(model.inertia_, expected.inertia_)

    return run


def _k_means_results(data: Data) -> None:
    from dask_ml.cluster import KMeans

    X = data.to_dask(data.groups)  # noqa: N806
    model = KMeans(2, init="random", random_state=0).fit(X)
    nearest, _ = sklearn.metrics.pairwise_distances_argmin_min(data.groups, model.cluster_centers_)
    close(model.predict(X), nearest)
    distances = sklearn.metrics.pairwise_distances(data.groups, model.cluster_centers_)
    close(model.transform(X), distances)


def _k_means_inertia(data: Data) -> None:
    from dask_ml.cluster import KMeans

    # Of one group, and one iteration: the centers have moved, as they have at the default tol.
    model = KMeans(3, init=data.rows[:3], max_iter=1).fit(data.X)
    distances = sklearn.metrics.pairwise_distances(data.rows, model.cluster_centers_)
    close(model.inertia_, (distances.min(axis=1) ** 2).sum())


def _k_means_of_frame(data: Data) -> None:
    from dask_ml.cluster import KMeans

    frame = data.numbers_df + 18 * data.numbers_df.assign(
        **dict.fromkeys("abcde", data.to_dask(data.classes))
    )
    model = KMeans(2, init="random", random_state=0).fit(frame)
    assert sklearn.metrics.adjusted_rand_score(data.classes, model.labels_.compute()) == 1


def _spectral_clustering(data: Data) -> None:
    from dask_ml.cluster import SpectralClustering

    kmeans = sklearn.cluster.KMeans(2, n_init=3, random_state=0)
    model = SpectralClustering(2, n_components=50, random_state=0, assign_labels=kmeans, gamma=0.01)
    labels = model.fit(data.to_dask(data.groups)).labels_
    expected = sklearn.cluster.SpectralClustering(2, random_state=0, gamma=0.01).fit(data.groups)
    assert sklearn.metrics.adjusted_rand_score(expected.labels_, np.asarray(labels)) == 1


def _decomposition(name: str, **options: Any) -> Callable[[Data], None]:
    def run(data: Data) -> None:
        import dask_ml.decomposition as ours

        model = getattr(ours, name)(2, random_state=0, **options).fit(data.X)
        theirs = {} if name == "TruncatedSVD" else {"svd_solver": "full"}
        expected = getattr(sklearn.decomposition, name)(2, **theirs)
        reduced = expected.fit_transform(data.rows)
        # Components of these rows are of similar size, which a randomized solver exchanges.
        is_exact = options.get("svd_solver") != "randomized"
        tolerance = 1e-5 if is_exact else 0.05
        close(model.explained_variance_, expected.explained_variance_, tolerance)
        result = model.transform(data.X)
        assert result.shape == reduced.shape
        if is_exact:
            close(np.abs(result.compute()), np.abs(reduced), tolerance)
            close(model.inverse_transform(result), expected.inverse_transform(reduced), tolerance)

    return run


def _incremental_pca(data: Data) -> None:
    from dask_ml.decomposition import IncrementalPCA

    model = IncrementalPCA(2, batch_size=100).fit(data.X)
    expected = sklearn.decomposition.IncrementalPCA(2, batch_size=100).fit(data.rows)
    close(model.explained_variance_, expected.explained_variance_)
    close(np.abs(model.transform(data.X).compute()), np.abs(expected.transform(data.rows)))


CHECKS: dict[str, Check] = {
    **{
        f"linear_model.LinearRegression with {solver}": Check(_linear_regression(solver))
        for solver in ("admm", "lbfgs", "proximal_grad", "newton", "gradient_descent")
    },
    "linear_model.LinearRegression.score": Check(_linear_regression_score, _CHUNKS),
    "linear_model.LinearRegression of a dataframe": Check(
        _linear_model_of_frame("LinearRegression"),
        instead=_ARRAY,
        error=_NO_FRAME,
        alternative=_linear_model_of_frame_values("LinearRegression"),
    ),
    "linear_model.LinearRegression of a dataframe's to_dask_array(lengths=True)": Check(
        _linear_model_of_frame_values("LinearRegression")
    ),
    **{
        f"linear_model.LogisticRegression with {solver}": Check(_logistic_regression(solver))
        for solver in ("admm", "lbfgs", "proximal_grad", "newton", "gradient_descent")
    },
    "linear_model.LogisticRegression with C of columns of several scales": Check(
        _penalized_logistic_regression(),
        instead="`solver_kwargs={'normalize': False}`: [what `C` means](#what-c-means)",
        error="Different",
        alternative=_penalized_logistic_regression(solver_kwargs={"normalize": False}),
    ),
    "linear_model.LogisticRegression.predict_proba, decision_function, score": Check(
        _logistic_regression_results
    ),
    "linear_model.LogisticRegression of a dataframe": Check(
        _linear_model_of_frame("LogisticRegression"),
        instead=_ARRAY,
        error=_NO_FRAME,
        alternative=_linear_model_of_frame_values("LogisticRegression"),
    ),
    "linear_model.LogisticRegression of three classes": Check(
        without_cluster(_logistic_regression_of_classes),
        instead="`Incremental(SGDClassifier(loss='log_loss'))`, or scikit-learn with `parallel`",
        error="Different: only two classes are predicted",
        alternative=_incremental_of_classes,
    ),
    "linear_model.PoissonRegression": Check(_poisson_regression, "dask_ml.linear_model.glm"),
    "naive_bayes.GaussianNB": Check(_naive_bayes),
    "naive_bayes.GaussianNB.predict_proba, predict_log_proba": Check(_naive_bayes_probabilities),
    "cluster.KMeans with k-means||": Check(_k_means("k-means||")),
    "cluster.KMeans with k-means++": Check(_k_means("k-means++"), "dask_ml.cluster.k_means"),
    "cluster.KMeans with random": Check(_k_means("random")),
    "cluster.KMeans with centers": Check(_k_means("array")),
    "cluster.KMeans.predict, transform": Check(_k_means_results),
    "cluster.KMeans.inertia_": Check(_k_means_inertia, "dask_ml.cluster.k_means"),
    "cluster.KMeans of a dataframe": Check(_k_means_of_frame),
    "cluster.SpectralClustering": Check(_spectral_clustering),
    "decomposition.PCA": Check(_decomposition("PCA", svd_solver="full")),
    "decomposition.PCA with randomized": Check(
        _decomposition("PCA", svd_solver="randomized"), "dask_ml.decomposition.pca"
    ),
    "decomposition.TruncatedSVD": Check(_decomposition("TruncatedSVD", algorithm="tsqr")),
    "decomposition.TruncatedSVD with randomized": Check(
        _decomposition("TruncatedSVD", algorithm="randomized")
    ),
    "decomposition.IncrementalPCA": Check(_incremental_pca),
}
