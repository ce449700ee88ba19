"""Corrections of dask-ml 2025.1.0 for current versions of Dask and scikit-learn.

Each correction is applied when the module of dask-ml that it changes is imported, and has a test
that fails without it. Its docstring names the fault and says when to remove it. Workers need none
of them, except functions that tasks call: those are pickled with the name of their module, whose
import corrects the modules of dask-ml there, too.
CONTRIBUTING.md, *Correct an estimator of dask-ml*, lists the other files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hyperplane.core.optional import is_installed, need
from hyperplane.ml.dask_ml_patches import column_transformer, estimators, metrics


@functools.cache  # once in a process: each call would correct the modules again
def apply_patches() -> None:
    """Correct the modules of dask-ml when they are imported, or now if they are."""
    if not is_installed("dask_ml"):  # shards and functions for scikit-learn do not need it
        return
    when_imported = need("wrapt", "ml").when_imported
    for module, patch in PATCHES.items():
        when_imported(module)(patch)


#: Module of dask-ml -> the correction of it.
PATCHES: dict[str, Callable[[Any], None]] = {
    "dask_ml.model_selection._incremental": estimators.correct_incremental_search,
    "dask_ml.model_selection._search": estimators.correct_search,
    "dask_ml.metrics.regression": metrics.correct_regression_metrics,
    "dask_ml.metrics.classification": metrics.correct_classification_metrics,
    "dask_ml.metrics.scorer": metrics.correct_scorers,  # after the metrics
    "dask_ml.compose._column_transformer": column_transformer.correct_column_transformer,
    "dask_ml.ensemble._blockwise": estimators.correct_voting,
    "dask_ml.preprocessing.data": estimators.correct_preprocessing,
    "dask_ml.decomposition.pca": estimators.correct_pca,
    "dask_ml.cluster.k_means": estimators.correct_k_means,
    "dask_ml.linear_model.glm": estimators.correct_linear_models,
}
