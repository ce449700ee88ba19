"""Corrections that let ``ColumnTransformer`` of dask-ml transform dataframes of Dask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def correct_column_transformer(module: Any) -> None:
    """Let ``ColumnTransformer`` transform dataframes of Dask again.

    Faults: scikit-learn 1.4 passes ``n_samples`` to ``_hstack``, which dask-ml's method does not
    have, and selects columns by name only in dataframes of libraries that it knows; and since 2025
    ``dask.dataframe.concat`` takes ``axis="columns"`` for 0. Affects
    ``ColumnTransformer`` and ``make_column_transformer``. Remove it when dask-ml's tests of them
    pass with the current scikit-learn.
    """
    _select_columns_of_dask()
    original = module.ColumnTransformer._hstack

    @functools.wraps(original)
    def hstack(self: Any, blocks: Any, *, n_samples: int | None = None) -> Any:
        del n_samples
        if not self.sparse_output_ and any(map(_is_dask_frame, blocks)):
            import dask.dataframe as dd

            return dd.concat(blocks, axis=1)
        return original(self, blocks)

    module.ColumnTransformer._hstack = hstack


def _select_columns_of_dask() -> None:
    """Let scikit-learn read the columns of a dataframe of Dask from its empty pandas dataframe."""
    from sklearn.compose import _column_transformer as module

    for name in ("_get_column_indices", "_get_feature_names"):
        setattr(module, name, _with_pandas(getattr(module, name)))
    select, validate, count = module._safe_indexing, module.validate_data, module._num_samples

    @functools.wraps(select)
    def select_of_dask(X: Any, indices: Any, *, axis: int = 0) -> Any:  # noqa: N803
        if axis != 1 or not _is_dask_frame(X):
            return select(X, indices, axis=axis)
        selected = select(X._meta, indices, axis=1)
        return X[list(selected.columns) if selected.ndim == 2 else selected.name]

    @functools.wraps(validate)
    def validate_of_dask(estimator: Any, X: Any, **options: Any) -> Any:  # noqa: N803
        # Sets feature_names_in_ and n_features_in_; the result is not used.
        return validate(estimator, X=_to_pandas(X), **options)

    @functools.wraps(count)
    def count_of_dask(X: Any) -> int:  # noqa: N803
        # Only passed to _hstack, which ignores it; counting would compute the dataframe.
        return 0 if _is_dask_frame(X) else int(count(X))

    module._safe_indexing = select_of_dask
    module.validate_data = validate_of_dask
    module._num_samples = count_of_dask


def _with_pandas(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(X: Any, *arguments: Any) -> Any:  # noqa: N803
        return function(_to_pandas(X), *arguments)

    return wrapper


def _to_pandas(value: Any) -> Any:
    return value._meta if _is_dask_frame(value) else value


def _is_dask_frame(value: Any) -> bool:
    return type(value).__module__.startswith("dask.dataframe") and hasattr(value, "columns")
