"""What a check of dask-ml is, the data of all checks, and their execution."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

ROWS = 400


class Data:
    """Rows as arrays and dataframes, of NumPy or pandas and of Dask."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.rows = random.normal(size=(ROWS, 5))
        signal = self.rows @ [1, 2, -1, 0, 0.5]
        self.classes = (signal > 0).astype(int)
        self.unclear_classes = (signal + 2 * random.normal(size=ROWS) > 0).astype(int)
        self.targets = signal + 0.1 * random.normal(size=ROWS)
        self.counts = random.poisson(np.exp(0.3 * signal))
        self.groups = self.rows + np.array([[-9.0] * 5, [9.0] * 5])[self.classes]
        self.weights = random.uniform(0.5, 2, ROWS)
        self.numbers = pd.DataFrame(self.rows, columns=list("abcde"))
        self.frame = self.numbers.assign(kind=pd.Categorical(random.choice(["u", "v", "w"], ROWS)))
        self.X = self.to_dask(self.rows)
        self.y = self.to_dask(self.classes)
        self.r = self.to_dask(self.targets)

    @staticmethod
    def to_dask(values: np.ndarray) -> da.Array:
        """Return an array of two chunks of rows."""
        return da.from_array(values, chunks=(200, *values.shape[1:]))

    @cached_property
    def df(self) -> dd.DataFrame:
        """Five columns of numbers and a categorical one, in two partitions."""
        return dd.from_pandas(self.frame, npartitions=2)

    @cached_property
    def numbers_df(self) -> dd.DataFrame:
        return dd.from_pandas(self.numbers, npartitions=2)


#: Module of dask-ml that is corrected -> its fault, as the table names it.
FAULTS = {
    "dask_ml.model_selection._incremental": "calls `dask.persist` in a coroutine",
    "dask_ml.model_selection._search": "`score` calls a dictionary, `inverse_transform` transforms",
    "dask_ml.metrics.regression": "computes with arrays of unknown chunk sizes",
    "dask_ml.metrics.classification": (
        "passes `eps`, which scikit-learn removed; compares arrays of unknown chunk sizes"
    ),
    "dask_ml.metrics.scorer": "passes `needs_proba`, which scikit-learn removed",
    "dask_ml.compose._column_transformer": (
        "scikit-learn selects no columns of Dask, and passes `n_samples`"
    ),
    "dask_ml.ensemble._blockwise": "`fit` returns None",
    "dask_ml.preprocessing.data": (
        "scikit-learn converts the rows to NumPy; calls `numpy.find_common_type`, which is removed"
    ),
    "dask_ml.decomposition.pca": "scikit-learn reads an attribute that is not set",
    "dask_ml.cluster.k_means": (
        "passes no `sample_weight`, which scikit-learn added; sums distances for their squares"
    ),
    "dask_ml.linear_model.glm": "dask-glm computes `log1p` for `log`",
}


@dataclass(frozen=True)
class Check:
    """A computation that is compared with scikit-learn's result.

    ``corrected`` is the module whose correction it needs on at least one stack. A computation that
    dask-ml cannot do has ``instead``, what to use, ``alternative``, a check of that, and ``error``,
    a pattern of the error of dask-ml.
    """

    run: Callable[[Data], None]
    corrected: str = ""
    instead: str = ""
    error: str = ""
    alternative: Callable[[Data], None] | None = None

    def __post_init__(self) -> None:
        assert not self.corrected or self.corrected in FAULTS
        assert bool(self.instead) == bool(self.error) == bool(self.alternative)


def without_cluster(run: Callable[[Data], None]) -> Callable[[Data], None]:
    """Compute in this thread, if the cluster would take a second for hundreds of iterations."""

    def run_here(data: Data) -> None:
        with dask.config.set(scheduler="synchronous"):
            run(data)

    return run_here


class Different(AssertionError):
    """The result is not that of scikit-learn."""


def close(left: Any, right: Any, tolerance: float = 1e-6) -> None:
    """Compare numbers of any array, also a sparse one or one of Dask."""
    left, right = (_to_numpy(each) for each in (left, right))
    if left.shape != right.shape:
        raise Different(f"{left.shape} != {right.shape}")
    if not np.allclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise Different(f"{left.ravel()[:5]} != {right.ravel()[:5]}")


def _to_numpy(value: Any) -> np.ndarray:
    value = value.compute() if hasattr(value, "compute") else value
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


def compare_transforms(
    ours: Any, theirs: Any, data: Any, expected_data: Any, tolerance: float = 1e-6
) -> tuple[Any, Any]:
    """Compare what two estimators return after they were fitted, and return both results."""
    result, expected = ours.fit(data).transform(data), theirs.fit_transform(expected_data)
    close(result, expected, tolerance)
    return result, expected


def find_failures(checks: dict[str, Check], names: Iterable[str]) -> dict[str, str]:
    """Return the errors of those checks that fail."""
    data, failures = Data(), {}
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                checks[name].run(data)
            except Exception as error:  # noqa: BLE001 - of any kind
                text = re.sub(r"\s+", " ", str(error))[:300]
                failures[name] = f"{type(error).__name__}: {text}"
    return failures
