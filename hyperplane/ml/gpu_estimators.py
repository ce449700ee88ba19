"""Selection of cuML's estimators in place of those of scikit-learn."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, field
from typing import Any

from hyperplane.core.argument_checks import find_count_faults, find_flag_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import is_installed
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.platforms.local.gpus import detect_gpus

#: Module below ``sklearn`` -> classes that cuML 26.10 has, too, in a module of that name.
CLASSES: dict[str, tuple[str, ...]] = {
    "cluster": ("AgglomerativeClustering", "DBSCAN", "HDBSCAN", "KMeans", "SpectralClustering"),
    "covariance": ("EmpiricalCovariance", "LedoitWolf"),
    "decomposition": ("IncrementalPCA", "PCA", "TruncatedSVD"),
    "ensemble": ("IsolationForest", "RandomForestClassifier", "RandomForestRegressor"),
    "feature_extraction.text": (
        "CountVectorizer",
        "HashingVectorizer",
        "TfidfTransformer",
        "TfidfVectorizer",
    ),
    "impute": ("MissingIndicator", "SimpleImputer"),
    "kernel_ridge": ("KernelRidge",),
    "linear_model": ("ElasticNet", "Lasso", "LinearRegression", "LogisticRegression", "Ridge"),
    "manifold": ("SpectralEmbedding", "TSNE"),
    "naive_bayes": ("BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"),
    "neighbors": (
        "KernelDensity",
        "KNeighborsClassifier",
        "KNeighborsRegressor",
        "NearestNeighbors",
    ),
    "preprocessing": (
        "Binarizer",
        "FunctionTransformer",
        "KBinsDiscretizer",
        "KernelCenterer",
        "LabelBinarizer",
        "LabelEncoder",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "OneHotEncoder",
        "OrdinalEncoder",
        "PolynomialFeatures",
        "PowerTransformer",
        "QuantileTransformer",
        "RobustScaler",
        "StandardScaler",
        "TargetEncoder",
    ),
    "random_projection": ("GaussianRandomProjection", "SparseRandomProjection"),
    "svm": ("LinearSVC", "LinearSVR", "SVC", "SVR"),
}
#: Module of scikit-learn -> that of cuML, where its name differs.
_OTHER_MODULES = {"impute": "preprocessing"}
#: As ``CLASSES``, for ``cuml.dask``, whose estimators compute with collections on all GPUs of a
#: cluster.
DISTRIBUTED_CLASSES: dict[str, tuple[str, ...]] = {
    "cluster": ("DBSCAN", "KMeans"),
    "decomposition": ("PCA", "TruncatedSVD"),
    "ensemble": ("RandomForestClassifier", "RandomForestRegressor"),
    "feature_extraction.text": ("TfidfTransformer",),
    "linear_model": ("ElasticNet", "Lasso", "LinearRegression", "LogisticRegression", "Ridge"),
    "naive_bayes": ("MultinomialNB",),
    "neighbors": ("KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors"),
    "preprocessing": ("LabelBinarizer", "LabelEncoder", "OneHotEncoder", "OrdinalEncoder"),
}


@check_call
def gpu_equivalent(
    estimator: Any, *, ngpus: int | None = None, distributed: bool = False, required: bool = False
) -> Any:
    """Return the estimator of cuML for one of scikit-learn, if there is a GPU.

    The estimators within a pipeline, a grid search or another estimator are replaced, too.

    Parameters
    ----------
    estimator : estimator of scikit-learn
        Not fitted, or its fit is lost.
    ngpus : int, optional
        Number of GPUs of the processes that will fit it, such as ``plan.worker.ngpus``; by default
        those of this process. With 0 the estimator is returned as it is.
    distributed : bool
        Select from ``cuml.dask``: the estimator computes with collections of Dask on all GPUs of
        the cluster.
    required : bool
        Raise an error if an estimator cannot be replaced. By default it is returned as it is, with
        a warning if cuML's has not all of its parameters.

    Returns
    -------
    estimator
        The estimator of cuML, with those parameters that differ from scikit-learn's defaults; the
        others have cuML's defaults.

    Raises
    ------
    RequestError
        If ``required``, with each estimator and each parameter that cuML does not have.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> gpu_equivalent(KMeans(3), ngpus=0)
    KMeans(n_clusters=3)
    """
    check(
        [
            *(
                []
                if hasattr(estimator, "get_params") and not isinstance(estimator, type)
                else [Fault("estimator", repr(estimator)[:80], "an estimator of scikit-learn")]
            ),
            *([] if ngpus is None else find_count_faults("ngpus", ngpus, 0)),
            *find_flag_faults(distributed=distributed, required=required),
        ]
    )
    count = len(detect_gpus().visible) if ngpus is None else ngpus
    has_cuml = is_installed("cuml")
    if required:
        missing = [] if count else [Fault("ngpus", str(count), "one or more GPUs")]
        if not has_cuml:
            advice = "pip install cuml-cu12, in the environment of hyperplane[gpu]"
            missing.append(Fault("estimator", "", "cuML is not installed", advice))
        check(missing)
    if not count or not has_cuml:
        return estimator
    replacement = _Replacement(distributed)
    result = replacement.replace(estimator)
    if required:
        check(replacement.faults)
    for fault in replacement.faults:
        if fault.where.startswith("parameter "):
            warn_caller(f"{fault}; it stays an estimator of scikit-learn")
    return result


@dataclass
class _Replacement:
    """Replaces an estimator and those within it, and collects what cuML does not have."""

    distributed: bool
    faults: list[Fault] = field(default_factory=list)

    def replace(self, estimator: Any) -> Any:
        parameters = estimator.get_params(deep=False)
        replaced = {name: self._replace_value(value) for name, value in parameters.items()}
        changed = {name: each for name, each in replaced.items() if each is not parameters[name]}
        if changed:
            from sklearn.base import clone

            return clone(estimator).set_params(**changed)
        if any(map(_has_estimators, parameters.values())):
            return estimator
        return self._replace_one(estimator, parameters)

    def _replace_value(self, value: Any) -> Any:
        """Replace an estimator, or those in a list of steps; return other values as they are."""
        if _is_estimator(value):
            return self.replace(value)
        if not _has_estimators(value):
            return value
        steps = [
            tuple(self.replace(part) if _is_estimator(part) else part for part in step)
            for step in value
        ]
        parts = [part for step in value for part in step]
        is_same = all(map(_is_same, parts, [part for step in steps for part in step]))
        return value if is_same else type(value)(steps)

    def _replace_one(self, estimator: Any, parameters: dict[str, Any]) -> Any:
        kind = type(estimator)
        folder = _find_module(kind, DISTRIBUTED_CLASSES if self.distributed else CLASSES)
        if folder is None:
            package = "cuml.dask" if self.distributed else "cuml"
            self.faults.append(
                Fault("estimator", kind.__name__, f"a class that {package} has, too")
            )
            return estimator
        folder = _OTHER_MODULES.get(folder, folder)
        accepted = _parameters_of(_load(f"cuml.{folder}", kind.__name__))
        defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()}
        chosen = {
            name: value
            for name, value in parameters.items()
            if not _is_same(value, defaults.get(name, inspect.Parameter.empty))
        }
        unknown = [] if accepted is None else sorted(set(chosen) - accepted)
        self.faults += [
            Fault(
                f"parameter {name} of {kind.__name__}",
                repr(chosen[name])[:80],
                "a parameter that cuML has, too",
            )
            for name in unknown
        ]
        if unknown:
            return estimator
        package = "cuml.dask" if self.distributed else "cuml"
        return _load(f"{package}.{folder}", kind.__name__)(**chosen)


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _find_module(kind: type, classes: dict[str, tuple[str, ...]]) -> str | None:
    """Return the module of scikit-learn's class in a table; None if it is not there."""
    package, _, rest = kind.__module__.partition(".")
    if package != "sklearn":
        return None
    for module, names in classes.items():
        if f"{rest}.".startswith(f"{module}.") and kind.__name__ in names:
            return module
    return None


def _parameters_of(kind: Any) -> set[str] | None:
    """Return the names of the parameters of a class; None if it accepts any."""
    parameters = inspect.signature(kind).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return None
    return set(parameters)


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _has_estimators(value: Any) -> bool:
    """Return whether a parameter is an estimator or has steps, as that of a pipeline."""
    if isinstance(value, list | tuple):
        return any(isinstance(step, tuple) and any(map(_is_estimator, step)) for step in value)
    return _is_estimator(value)


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two parameters are the same value; arrays are the same only if identical."""
    if left is right:
        return True
    return type(left) is type(right) and isinstance(left, str | int | float) and left == right
